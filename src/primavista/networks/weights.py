"""Loads pretrained weights into networks in torch."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_safetensors
from torch import Tensor, nn

from primavista.backbones.spec import NetworkOption
from primavista.errors import WeightsError

StateDict = dict[str, Tensor]
FACTS = "primavista"  # the metadata of a safetensors file that `read_facts` reads


def load_file(path: Path) -> StateDict:
    """Read weights from a local file.

    Args:
        path: A .safetensors or .pth file; the latter is read with `weights_only`.

    Raises:
        WeightsError: If the file cannot be read.
    """
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise WeightsError(
            f"weights file {path}: {error.strerror or error}. Give the path of a readable file"
        ) from error


@dataclass(frozen=True)
class WeightsFacts:
    """What weights need of their network and of their frames.

    Args:
        options: Arguments of the network.
        mean: Mean of each colour channel, as a fraction of 255; None if it is not known.
        std: Divisor of each colour channel, as a fraction of 255; None if it is not known.
    """

    options: dict[str, NetworkOption] = field(default_factory=dict)
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None


def read_facts(path: Path) -> WeightsFacts:
    """Read the facts in the metadata of a safetensors file: a JSON object under `FACTS`.

    Args:
        path: A file of weights. If it is not a safetensors file or has no such metadata, nothing is
            known.

    Raises:
        WeightsError: If the metadata are damaged.
    """
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(FACTS)
    except (OSError, SafetensorError):
        return WeightsFacts()  # reading the tensors says what is wrong
    if text is None:
        return WeightsFacts()
    try:
        told = json.loads(text)
        means = (told.get("mean"), told.get("std"))
        mean, std = (None if x is None else _colours(x) for x in means)
        return WeightsFacts(dict(told.get("options", {})), mean, std)
    except (ValueError, TypeError, AttributeError) as error:
        raise WeightsError(
            f"the metadata {FACTS} of {path} are damaged ({error}): write the file again"
        ) from error


def _colours(numbers: list[float]) -> tuple[float, float, float]:
    red, green, blue = (float(x) for x in numbers)
    return red, green, blue


def load_weights(body: nn.Module, state: StateDict, name: str) -> None:
    """Copy tensors into a network.

    Args:
        body: The network.
        state: Its tensors by name. Those of a classifier, `fc.*` unless the network defines
            others, are ignored.
        name: The name of the weights for messages.

    Raises:
        WeightsError: If a tensor is missing, unknown, or has the wrong shape.
    """
    classifier = getattr(body, "CLASSIFIER", ("fc.",))
    given = {key: state[key] for key in state if not key.startswith(classifier)}
    own = body.state_dict()
    network = type(body).__name__
    wanted = {key for key in own if not key.endswith("num_batches_tracked")}
    missing, unknown = sorted(wanted - set(given)), sorted(set(given) - set(own))
    if missing or unknown:
        raise WeightsError(
            f"weights {name} do not fit {network}: "
            f"{len(missing)} keys missing {missing[:3]}, {len(unknown)} unknown {unknown[:3]}. "
            "Choose the backbone that these weights belong to"
        )
    for key, value in given.items():
        if own[key].shape != value.shape:
            raise WeightsError(
                f"weights {name}: {key} has shape {tuple(value.shape)}, "
                f"{network} needs {tuple(own[key].shape)}. Give the options that these weights "
                "were made with (pretrained ones exist for width 1.0), or weights='random'"
            )
    body.load_state_dict({key: _as_float32(value) for key, value in given.items()}, strict=False)


def _as_float32(value: Tensor) -> Tensor:
    return value.float() if value.is_floating_point() else value


def parse(data: bytes, name: str) -> StateDict:
    """Parse the bytes of a safetensors file, or of a .pth archive with torch's safe loader.

    Args:
        data: The content of a file.
        name: The name of the weights for messages.

    Returns:
        The tensors under the names that they have in the file.

    Raises:
        WeightsError: If the file is damaged, holds anything but tensors, or would run code.
    """
    is_archive = data[:2] == b"PK" or data[:1] == b"\x80"
    try:
        if not is_archive:
            return load_safetensors(data)
        loaded = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # such as pickle.UnpicklingError for anything but tensors
        raise WeightsError(
            f"weights {name} cannot be read ({error}). Give a .safetensors or .pth file of tensors"
        ) from error
    if not isinstance(loaded, dict) or not all(isinstance(v, Tensor) for v in loaded.values()):
        raise WeightsError(f"weights {name} contain something other than a dictionary of tensors")
    return loaded
