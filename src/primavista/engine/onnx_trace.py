"""From what torch computes to an ONNX graph: a function is run once, and every operation on its input is written down.

Whatever does not depend on the input (weights, folded moments, the solution of a linear system) becomes a constant, so the
graph holds inference alone. It takes milliseconds and no compiler; a function that does something not listed here is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from primavista.errors import PrimavistaError, require_extra

OPSET = 18
IR_VERSION = 9
BATCH = 2  # of the run that is written down; the graph takes any
aten = torch.ops.aten


class CannotTraceError(PrimavistaError):
    """The function does something that has no translation here."""


class Graph(TorchDispatchMode):
    """The nodes and constants of an ONNX graph, gathered while a function runs."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to skip the compiler, torch would import it: two seconds and 150 MB

    def __init__(self, source: Tensor, name: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.onnx = require_extra("onnx", "onnx")
        self.model = self.onnx.ModelProto(ir_version=IR_VERSION, producer_name="primavista")
        self.model.opset_import.append(self.onnx.helper.make_opsetid("", OPSET))
        self.model.graph.name = "primavista"
        self._values: dict[int, tuple[Tensor, str]] = {
            id(source): (source, name)
        }  # holds them: ids must stay theirs
        self._constants: dict[int, tuple[Tensor, str]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        flat = [x for arg in args for x in (arg if isinstance(arg, list | tuple) else [arg])]
        if any(id(x) in self._values for x in flat):
            inplace = func._schema.name.endswith("_")
            packet = (
                getattr(aten, func._schema.name.removeprefix("aten::").rstrip("_"), None)
                if inplace
                else func.overloadpacket
            )
            if packet not in OPS:
                raise CannotTraceError(f"{func} has no translation to ONNX here")
            first = result[0] if isinstance(result, list | tuple) else result
            name = OPS[packet](self, first, *args, **(kwargs or {}))
            self._values[id(first)] = (first, name)
        return result

    def node(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """One operation with one output."""
        output = output or f"v{len(self.model.graph.node)}"
        self.model.graph.node.append(
            self.onnx.helper.make_node(kind, inputs, [output], **attributes)
        )
        return output

    def array(self, array: np.ndarray[Any, Any]) -> str:
        """A constant."""
        name = f"c{len(self.model.graph.initializer)}"
        self.model.graph.initializer.append(
            self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
        )
        return name

    def value(self, x: Any, like: Tensor | None = None) -> str:
        """The name of a tensor or a number, in the type of `like`."""
        if not isinstance(x, Tensor):
            assert like is not None
            return self.array(torch.tensor(x, dtype=like.dtype).numpy())
        if id(x) in self._values:
            name = self._values[id(x)][1]
            if like is None or x.dtype == like.dtype:
                return name
            return self.node(
                "Cast", [name], to=self.onnx.helper.np_dtype_to_tensor_dtype(_numpy_type(like))
            )
        x = x if like is None else x.to(like.dtype)
        if id(x) not in self._constants:
            self._constants[id(x)] = (x, self.array(x.detach().cpu().numpy()))
        return self._constants[id(x)][1]

    def known(self, x: Tensor) -> bool:
        """Whether it depends on the input."""
        return id(x) in self._values


def trace(
    function: Callable[[Tensor], Tensor | tuple[Tensor, ...]],
    shape: Sequence[int],
    *,
    outputs: Sequence[str] = ("z",),
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """The ONNX model of `function`, from `frames`, uint8, N x `shape` for any N, to the tensors that it gives, N x ... each."""
    onnx = require_extra("onnx", "onnx")
    source = torch.zeros(BATCH, *shape, dtype=torch.uint8)
    with torch.no_grad(), Graph(source, "frames") as graph:
        given = function(source)
        results = (given,) if isinstance(given, Tensor) else given
        for name, result in zip(outputs, results, strict=True):
            if not graph.known(result) or result.ndim < 1 or len(result) != BATCH:
                raise CannotTraceError(f"{name} does not depend on the frames, one by one")
            graph.node("Identity", [graph.value(result)], name)
    inside = graph.model.graph
    ends = [
        (inside.input, "frames", source),
        *((inside.output, *pair) for pair in zip(outputs, results, strict=True)),
    ]
    for end, name, x in ends:
        kind = onnx.helper.np_dtype_to_tensor_dtype(_numpy_type(x))
        end.append(onnx.helper.make_tensor_value_info(name, kind, ["N", *x.shape[1:]]))
    onnx.helper.set_model_props(graph.model, dict(sorted((metadata or {}).items())))
    return graph.model.SerializeToString(deterministic=True)  # type: ignore[no-any-return]


def _numpy_type(x: Tensor) -> np.dtype[Any]:
    return torch.empty(0, dtype=x.dtype).numpy().dtype


Operation = Callable[..., str]


def _elementwise(kind: str) -> Operation:
    def translate(g: Graph, out: Tensor, a: Any, b: Any, *, alpha: float = 1) -> str:
        right = g.value(b, out)
        if alpha != 1:
            right = g.node("Mul", [right, g.value(alpha, out)])
        return g.node(kind, [g.value(a, out), right])

    return translate


def _unary(kind: str, **attributes: Any) -> Operation:
    return lambda g, out, a: g.node(kind, [g.value(a, out)], **attributes)


def _same(g: Graph, out: Tensor, a: Tensor, *_: Any, **__: Any) -> str:
    return g.value(a, out)


def _clamp(
    g: Graph, out: Tensor, a: Tensor, low: float | None = None, high: float | None = None
) -> str:
    limits = ["" if limit is None else g.value(limit, out) for limit in (low, high)]
    return g.node("Clip", [g.value(a), *limits])


def _hardtanh(g: Graph, out: Tensor, a: Tensor, low: float = -1, high: float = 1) -> str:
    return _clamp(g, out, a, low, high)


def _silu(g: Graph, out: Tensor, a: Tensor) -> str:
    return g.node("Mul", [g.value(a), g.node("Sigmoid", [g.value(a)])])


def _hardsigmoid(g: Graph, out: Tensor, a: Tensor) -> str:
    return g.node("HardSigmoid", [g.value(a)], alpha=1 / 6, beta=0.5)


def _permute(g: Graph, out: Tensor, a: Tensor, dims: Sequence[int]) -> str:
    return g.node("Transpose", [g.value(a)], perm=[d % a.ndim for d in dims])


def _transpose(g: Graph, out: Tensor, a: Tensor, i: int = 0, j: int = 1) -> str:
    order = list(range(a.ndim))
    order[i], order[j] = order[j], order[i]
    return _permute(g, out, a, order)


def _reshape(g: Graph, out: Tensor, a: Tensor, *_: Any) -> str:
    return g.node("Reshape", [g.value(a), g.array(np.array([-1, *out.shape[1:]], np.int64))])


def _cat(g: Graph, out: Tensor, parts: Sequence[Tensor], dim: int = 0) -> str:
    return g.node("Concat", [g.value(part, out) for part in parts], axis=dim % out.ndim)


def _slice(
    g: Graph,
    out: Tensor,
    a: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> str:
    if dim % a.ndim == 0:
        raise CannotTraceError("a slice over the frames")
    begin = [0 if start is None else start], [2**62 if end is None else end], [dim % a.ndim], [step]
    return g.node("Slice", [g.value(a), *(g.array(np.array(part, np.int64)) for part in begin)])


def _reduce(kind: str) -> Operation:
    def translate(
        g: Graph,
        out: Tensor,
        a: Tensor,
        dims: Sequence[int] | int | None = None,
        keep: bool = False,
        **_: Any,
    ) -> str:
        dims = [dims] if isinstance(dims, int) else dims or range(a.ndim)
        axes = sorted(d % a.ndim for d in dims)
        if 0 in axes:
            raise CannotTraceError("a sum over the frames")
        if kind == "ReduceMean" and axes == [2, 3] and a.ndim == 4:
            pooled = g.node("GlobalAveragePool", [g.value(a)])
            return pooled if keep else g.node("Flatten", [pooled])
        return g.node(kind, [g.value(a), g.array(np.array(axes, np.int64))], keepdims=int(keep))

    return translate


def _norm(
    g: Graph,
    out: Tensor,
    a: Tensor,
    p: float = 2,
    dims: Sequence[int] = (),
    keep: bool = False,
    **_: Any,
) -> str:
    if p not in (1, 2):
        raise CannotTraceError(f"a norm of order {p}")
    return _reduce(f"ReduceL{int(p)}")(g, out, a, dims, keep)


def _pad(g: Graph, out: Tensor, a: Tensor, pads: Sequence[int], value: float = 0) -> str:
    ends = np.zeros((2, a.ndim), np.int64)
    for k in range(len(pads) // 2):
        ends[:, a.ndim - 1 - k] = pads[2 * k : 2 * k + 2]
    return g.node("Pad", [g.value(a), g.array(ends.reshape(-1)), g.value(value, out)])


def _convolution(
    g: Graph,
    out: Tensor,
    a: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Sequence[int],
    groups: int,
) -> str:
    if transposed or g.known(weight):
        raise CannotTraceError("a transposed or dynamic convolution")
    inputs = [g.value(a), g.value(weight), *([] if bias is None else [g.value(bias)])]
    return g.node(
        "Conv",
        inputs,
        strides=list(stride),
        pads=[*padding, *padding],
        dilations=list(dilation),
        group=groups,
        kernel_shape=list(weight.shape[2:]),
    )


def _batch_norm(
    g: Graph,
    out: Tensor,
    a: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    *rest: Any,
) -> str:
    training, eps = (rest[0], rest[2]) if len(rest) == 3 else (False, rest[-1])
    if training:
        raise CannotTraceError("a batch norm in training mode")
    weight = torch.ones_like(mean) if weight is None else weight
    bias = torch.zeros_like(mean) if bias is None else bias
    return g.node(
        "BatchNormalization", [g.value(x) for x in (a, weight, bias, mean, var)], epsilon=eps
    )


def _pool(kind: str) -> Operation:
    def translate(
        g: Graph,
        out: Tensor,
        a: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        *rest: Any,
    ) -> str:
        sides = a.ndim - 2

        def both(values: Sequence[int]) -> list[int]:
            return list(values) * (sides // len(values))

        extra: dict[str, Any] = (
            {"ceil_mode": int(rest[0] if kind == "AveragePool" else rest[1])}
            if len(rest) > 1
            else {}
        )
        if kind == "AveragePool":
            extra = {
                "ceil_mode": int(rest[0]) if rest else 0,
                "count_include_pad": int(rest[1]) if len(rest) > 1 else 1,
            }
            if len(rest) > 2 and rest[2] is not None:
                raise CannotTraceError("an average with a divisor of its own")
        elif rest and list(rest[0]) != [1] * len(rest[0]):
            raise CannotTraceError("a dilated maximum")
        return g.node(
            kind,
            [g.value(a)],
            kernel_shape=both(kernel),
            strides=both(stride or kernel),
            pads=both(padding) * 2,
            **extra,
        )

    return translate


def _adaptive_mean(g: Graph, out: Tensor, a: Tensor, _size: Sequence[int]) -> str:
    rows, columns = (
        _cells(have, wanted) for have, wanted in zip(a.shape[2:], out.shape[2:], strict=True)
    )
    return g.node("MatMul", [g.array(rows), g.node("MatMul", [g.value(a), g.array(columns.T)])])


def _cells(have: int, wanted: int) -> np.ndarray[Any, Any]:
    """The means of `wanted` cells of `have` numbers as a matrix; they overlap where they cannot be of one size."""
    means = np.zeros((wanted, have), np.float32)
    for k in range(wanted):
        cell = slice(k * have // wanted, -(-(k + 1) * have // wanted))
        means[k, cell] = 1 / (cell.stop - cell.start)
    return means


def _addmm(
    g: Graph, out: Tensor, bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
) -> str:
    return g.node(
        "Gemm", [g.value(a), g.value(b), g.value(bias)], alpha=float(alpha), beta=float(beta)
    )


def _matmul(g: Graph, out: Tensor, a: Tensor, b: Tensor) -> str:
    return g.node("MatMul", [g.value(a), g.value(b)])


def _softmax(g: Graph, out: Tensor, a: Tensor, dim: int, _half: bool = False) -> str:
    return g.node("Softmax", [g.value(a)], axis=dim % a.ndim)


def _leaky(g: Graph, out: Tensor, a: Tensor, slope: float = 0.01) -> str:
    return g.node("LeakyRelu", [g.value(a)], alpha=slope)


OPS: dict[Any, Operation] = {
    aten.add: _elementwise("Add"),
    aten.sub: _elementwise("Sub"),
    aten.mul: _elementwise("Mul"),
    aten.div: _elementwise("Div"),
    aten.pow: _elementwise("Pow"),
    aten.maximum: _elementwise("Max"),
    aten.minimum: _elementwise("Min"),
    aten.neg: _unary("Neg"),
    aten.abs: _unary("Abs"),
    aten.exp: _unary("Exp"),
    aten.log: _unary("Log"),
    aten.sqrt: _unary("Sqrt"),
    aten.reciprocal: _unary("Reciprocal"),
    aten.tanh: _unary("Tanh"),
    aten.sigmoid: _unary("Sigmoid"),
    aten.relu: _unary("Relu"),
    aten.hardswish: _unary("HardSwish"),
    aten.hardsigmoid: _hardsigmoid,
    aten.silu: _silu,
    aten.hardtanh: _hardtanh,
    aten.clamp: _clamp,
    aten.clamp_min: lambda g, out, a, low: _clamp(g, out, a, low),
    aten.leaky_relu: _leaky,
    aten.detach: _same,
    aten.alias: _same,
    aten.clone: _same,
    aten._to_copy: _same,
    aten.contiguous: _same,
    aten.permute: _permute,
    aten.transpose: _transpose,
    aten.t: _transpose,
    aten.view: _reshape,
    aten._unsafe_view: _reshape,
    aten.reshape: _reshape,
    aten.unsqueeze: _reshape,
    aten.squeeze: _reshape,
    aten.cat: _cat,
    aten.slice: _slice,
    aten.mean: _reduce("ReduceMean"),
    aten.sum: _reduce("ReduceSum"),
    aten.amax: _reduce("ReduceMax"),
    aten.linalg_vector_norm: _norm,
    aten.constant_pad_nd: _pad,
    aten.convolution: _convolution,
    aten.native_batch_norm: _batch_norm,
    aten._native_batch_norm_legit_no_training: _batch_norm,
    aten.max_pool2d_with_indices: _pool("MaxPool"),
    aten.avg_pool2d: _pool("AveragePool"),
    aten._adaptive_avg_pool2d: _adaptive_mean,
    aten.addmm: _addmm,
    aten.mm: _matmul,
    aten.bmm: _matmul,
    aten._softmax: _softmax,
}
