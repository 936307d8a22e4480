"""Write `src/primavista/backbones/data/mobilenet_v1.onnx`: MobileNet v1 as a graph without weights.

    python tools/mobilenet_graph.py

ONNX Runtime gets the weights from the arrays of the weights file, under their names there, so the
package contains them once. The input is uint8, N x H x W x 3; the outputs are the maps that are
read (`primavista.backbones.places`), the last one first. Pictures may have any size.
"""

from __future__ import annotations

from onnx import TensorProto, helper

from primavista.backbones.onnx import GRAPH_FILE, MAPS_READ, NORMALISATION
from primavista.networks.mobilenet_v1 import BLOCKS, MobileNetV1

EPSILON = 1e-3


def main() -> None:
    """Write the graph."""
    graph = helper.make_graph(
        nodes(),
        "mobilenet_v1",
        [helper.make_tensor_value_info("frames", TensorProto.UINT8, ["N", "H", "W", 3])],
        [
            helper.make_tensor_value_info(f"map{k}", TensorProto.FLOAT, ["N", None, None, None])
            for k in range(len(MAPS_READ))
        ],
        initializers(),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    GRAPH_FILE.write_bytes(model.SerializeToString(deterministic=True))


def nodes() -> list[object]:
    """Return the layers in the order in which they run."""
    made = [
        helper.make_node("Cast", ["frames"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["numbers"], ["channels_first"], perm=[0, 3, 1, 2]),
        helper.make_node("Mul", ["channels_first", NORMALISATION[0]], ["scaled"]),
        helper.make_node("Add", ["scaled", NORMALISATION[1]], ["x"]),
        *layer("x", "stem", "stem", stride=2),
    ]
    x = "stem"
    inputs = 32
    for k, (_, outputs, stride) in enumerate(BLOCKS):
        out = f"map{MAPS_READ.index(k)}" if k in MAPS_READ else f"block{k}"
        made += layer(x, f"blocks.{k}.0", f"depthwise{k}", stride=stride, group=inputs)
        made += layer(f"depthwise{k}", f"blocks.{k}.1", out, kernel=1)
        x, inputs = out, outputs
    for low_or_high, value in (("zero", 0.0), ("six", 6.0)):
        tensor = helper.make_tensor("", TensorProto.FLOAT, [], [value])
        made.insert(0, helper.make_node("Constant", [], [low_or_high], value=tensor))
    return made


def layer(
    x: str, name: str, out: str, *, kernel: int = 3, stride: int = 1, group: int = 1
) -> list[object]:
    """Return ReLU6(BN(conv(x))), padded as TensorFlow pads."""
    norm = [f"{name}.bn.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
    return [
        helper.make_node(
            "Conv",
            [x, f"{name}.conv.weight"],
            [f"{name}.convolved"],
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            group=group,
            auto_pad="SAME_UPPER",
        ),
        helper.make_node(
            "BatchNormalization",
            [f"{name}.convolved", *norm],
            [f"{name}.normalised"],
            epsilon=EPSILON,
        ),
        helper.make_node("Clip", [f"{name}.normalised", "zero", "six"], [out]),
    ]


def initializers() -> list[TensorProto]:
    """Declare the weights, whose numbers are elsewhere."""
    shapes = {name: tuple(x.shape) for name, x in MobileNetV1().state_dict().items() if x.ndim}
    shapes |= dict.fromkeys(NORMALISATION, (1, 3, 1, 1))
    declared = []
    for name, shape in shapes.items():
        tensor = TensorProto(
            name=name,
            dims=shape,
            data_type=TensorProto.FLOAT,
            data_location=TensorProto.EXTERNAL,
        )
        tensor.external_data.add(key="location", value="weights")
        declared.append(tensor)
    return declared


if __name__ == "__main__":
    main()
