"""Translation of torch functions into ONNX graphs.

A function is run once, and every operation on its input is recorded. Everything that does not
depend on the input (weights, folded moments, the solution of a linear system) becomes a constant,
so the graph contains only inference. This takes milliseconds and no compiler. A function with an
operation that is not listed here is rejected.
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
aten = torch.ops.aten


class CannotTraceError(PrimavistaError):
    """Raised if a function uses an operation that has no translation here."""


class TracedGraph(TorchDispatchMode):
    """The nodes and constants of an ONNX graph, collected while a function runs.

    Args:
        source: The input of the function.
        name: The name of the input in the graph.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # skipping the compiler would import it, which takes 2 s and 150 MB

    def __init__(self, source: Tensor, name: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.onnx = require_extra("onnx", "onnx")
        self.model = self.onnx.ModelProto(ir_version=IR_VERSION, producer_name="primavista")
        self.model.opset_import.append(self.onnx.helper.make_opsetid("", OPSET))
        self.model.graph.name = "primavista"
        # by the id of the tensor; the tensor is kept so that its id is not reused
        self._values: dict[int, tuple[Tensor, str]] = {id(source): (source, name)}
        self._constants: dict[int, tuple[Tensor, str]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(id(x) in self._values for x in _flattened(args)):
            packet = _out_of_place(func)
            if packet not in OPERATIONS:
                raise CannotTraceError(f"{func} has no translation to ONNX here")
            first = result[0] if isinstance(result, list | tuple) else result
            name = OPERATIONS[packet](self, first, *args, **(kwargs or {}))
            self._values[id(first)] = (first, name)
        return result

    def node(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Add one operation with one output.

        Args:
            kind: The ONNX operator.
            inputs: The names of its inputs.
            output: The name of its output; by default the next free name.
            **attributes: The attributes of the operator.

        Returns:
            The name of the output.
        """
        output = output or f"v{len(self.model.graph.node)}"
        node = self.onnx.helper.make_node(kind, inputs, [output], **attributes)
        self.model.graph.node.append(node)
        return output

    def array(self, array: np.ndarray[Any, Any]) -> str:
        """Add a constant array and return its name."""
        name = f"c{len(self.model.graph.initializer)}"
        constant = self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
        self.model.graph.initializer.append(constant)
        return name

    def value(self, x: Tensor | float, like: Tensor | None = None) -> str:
        """Return the name of a tensor or a number, which is added as a constant if necessary.

        Args:
            x: A tensor that was computed during the run, a constant tensor, or a number.
            like: A tensor whose type the value is cast to; required for a number.
        """
        if not isinstance(x, Tensor):
            assert like is not None
            return self.array(torch.tensor(x, dtype=like.dtype).numpy())
        if self.depends_on_input(x):
            name = self._values[id(x)][1]
            if like is None or x.dtype == like.dtype:
                return name
            kind = self.onnx.helper.np_dtype_to_tensor_dtype(_numpy_type(like))
            return self.node("Cast", [name], to=kind)
        x = x if like is None else x.to(like.dtype)
        if id(x) not in self._constants:
            self._constants[id(x)] = (x, self.array(x.detach().cpu().numpy()))
        return self._constants[id(x)][1]

    def depends_on_input(self, x: Tensor) -> bool:
        """Return True for the input and for every tensor that was computed from it."""
        return id(x) in self._values


def _flattened(args: Sequence[Any]) -> list[Any]:
    """Return the arguments of an operation, with each list replaced by its members."""
    return [x for arg in args for x in (arg if isinstance(arg, list | tuple) else [arg])]


def _out_of_place(func: Any) -> Any:
    """Return the operation that `func` is an overload of, without the suffix of in-place ones."""
    name = func._schema.name
    if name.endswith("_"):
        return getattr(aten, name.removeprefix("aten::").rstrip("_"), None)
    return func.overloadpacket


def trace(
    function: Callable[[Tensor], Tensor | tuple[Tensor, ...]],
    frames: Tensor,
    *,
    outputs: Sequence[str] = ("z",),
    metadata: Mapping[str, str] | None = None,
    any_size: bool = False,
) -> tuple[bytes, tuple[Tensor, ...]]:
    """Translate a function of frames into an ONNX model.

    Args:
        function: Maps frames, uint8, N x H x W x 3, to one or several tensors, N x ... each.
        frames: The frames of the recorded run, two or more; the graph accepts any number.
        outputs: The names of the results.
        metadata: Texts to store in the model.
        any_size: True to declare the sides of frames and of results as free. The caller must check
            that the graph is valid for other sizes; a graph of convolutions only is.

    Returns:
        The serialised model, whose input is called `frames` and accepts any N, and the results of
        the function for `frames`.

    Raises:
        CannotTraceError: If an operation has no translation, or a result is not computed frame by
            frame.
        MissingExtraError: If the package `onnx` is not installed.
    """
    onnx = require_extra("onnx", "onnx")
    with torch.no_grad(), TracedGraph(frames, "frames") as graph:
        given = function(frames)
        results = (given,) if isinstance(given, Tensor) else given
        for name, result in zip(outputs, results, strict=True):
            if not graph.depends_on_input(result) or result.ndim < 1 or len(result) != len(frames):
                raise CannotTraceError(f"{name} does not depend on the frames one by one")
            graph.node("Identity", [graph.value(result)], name)
    inside = graph.model.graph
    _declare(onnx, inside.input, "frames", ["H", "W", 3] if any_size else frames.shape[1:], frames)
    for name, result in zip(outputs, results, strict=True):
        shape: list[int | str] = list(result.shape[1:])
        if any_size:
            shape[1:] = [f"{name}_h", f"{name}_w"]
        _declare(onnx, inside.output, name, shape, result)
    onnx.helper.set_model_props(graph.model, dict(sorted((metadata or {}).items())))
    return graph.model.SerializeToString(deterministic=True), results


def _declare(onnx: Any, ends: Any, name: str, shape: Sequence[int | str], x: Tensor) -> None:
    """Add a tensor to the inputs or outputs of a graph, for any number of frames."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(_numpy_type(x))
    ends.append(onnx.helper.make_tensor_value_info(name, kind, ["N", *shape]))


def _numpy_type(x: Tensor) -> np.dtype[Any]:
    return torch.empty(0, dtype=x.dtype).numpy().dtype


Operation = Callable[..., str]  # takes the graph, the result of torch and the arguments of torch


def _elementwise(kind: str) -> Operation:
    def translate(g: TracedGraph, out: Tensor, a: Any, b: Any, *, alpha: float = 1) -> str:
        right = g.value(b, out)
        if alpha != 1:
            right = g.node("Mul", [right, g.value(alpha, out)])
        return g.node(kind, [g.value(a, out), right])

    return translate


def _unary(kind: str, **attributes: Any) -> Operation:
    return lambda g, out, a: g.node(kind, [g.value(a, out)], **attributes)


def _same(g: TracedGraph, out: Tensor, a: Tensor, *_: Any, **__: Any) -> str:
    return g.value(a, out)


def _clamp(
    g: TracedGraph, out: Tensor, a: Tensor, low: float | None = None, high: float | None = None
) -> str:
    limits = ["" if limit is None else g.value(limit, out) for limit in (low, high)]
    return g.node("Clip", [g.value(a), *limits])


def _hardtanh(g: TracedGraph, out: Tensor, a: Tensor, low: float = -1, high: float = 1) -> str:
    return _clamp(g, out, a, low, high)


def _silu(g: TracedGraph, out: Tensor, a: Tensor) -> str:
    return g.node("Mul", [g.value(a), g.node("Sigmoid", [g.value(a)])])


def _hardsigmoid(g: TracedGraph, out: Tensor, a: Tensor) -> str:
    return g.node("HardSigmoid", [g.value(a)], alpha=1 / 6, beta=0.5)


def _permute(g: TracedGraph, out: Tensor, a: Tensor, dims: Sequence[int]) -> str:
    return g.node("Transpose", [g.value(a)], perm=[d % a.ndim for d in dims])


def _transpose(g: TracedGraph, out: Tensor, a: Tensor, i: int = 0, j: int = 1) -> str:
    order = list(range(a.ndim))
    order[i], order[j] = order[j], order[i]
    return _permute(g, out, a, order)


def _reshape(g: TracedGraph, out: Tensor, a: Tensor, *_: Any) -> str:
    return g.node("Reshape", [g.value(a), g.array(np.array([-1, *out.shape[1:]], np.int64))])


def _cat(g: TracedGraph, out: Tensor, parts: Sequence[Tensor], dim: int = 0) -> str:
    return g.node("Concat", [g.value(part, out) for part in parts], axis=dim % out.ndim)


def _slice(
    g: TracedGraph,
    out: Tensor,
    a: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> str:
    if dim % a.ndim == 0:
        raise CannotTraceError("a slice over the frames")
    begin = 0 if start is None else start
    stop = 2**62 if end is None else end
    limits = [g.array(np.array([n], np.int64)) for n in (begin, stop, dim % a.ndim, step)]
    return g.node("Slice", [g.value(a), *limits])


def _reduce(kind: str) -> Operation:
    def translate(
        g: TracedGraph,
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
    g: TracedGraph,
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


def _pad(g: TracedGraph, out: Tensor, a: Tensor, pads: Sequence[int], value: float = 0) -> str:
    ends = np.zeros((2, a.ndim), np.int64)
    for k in range(len(pads) // 2):
        ends[:, a.ndim - 1 - k] = pads[2 * k : 2 * k + 2]
    return g.node("Pad", [g.value(a), g.array(ends.reshape(-1)), g.value(value, out)])


def _convolution(
    g: TracedGraph,
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
    if transposed or g.depends_on_input(weight):
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
    g: TracedGraph,
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


def _pool(kind: str, attributes: Callable[..., dict[str, Any]]) -> Operation:
    def translate(
        g: TracedGraph,
        out: Tensor,
        a: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        *rest: Any,
    ) -> str:
        sides = a.ndim - 2

        def per_side(values: Sequence[int]) -> list[int]:
            return list(values) * (sides // len(values))

        return g.node(
            kind,
            [g.value(a)],
            kernel_shape=per_side(kernel),
            strides=per_side(stride or kernel),
            pads=per_side(padding) * 2,
            **attributes(*rest),
        )

    return translate


def _average_attributes(
    ceil_mode: bool = False, count_include_pad: bool = True, divisor: int | None = None
) -> dict[str, Any]:
    if divisor is not None:
        raise CannotTraceError("an average with a divisor of its own")
    return {"ceil_mode": int(ceil_mode), "count_include_pad": int(count_include_pad)}


def _maximum_attributes(dilation: Sequence[int] = (), *ceil_mode: bool) -> dict[str, Any]:
    if any(step != 1 for step in dilation):
        raise CannotTraceError("a dilated maximum")
    return {"ceil_mode": int(ceil_mode[0])} if ceil_mode else {}


def _adaptive_mean(g: TracedGraph, out: Tensor, a: Tensor, _size: Sequence[int]) -> str:
    rows, columns = (
        _cells(have, wanted) for have, wanted in zip(a.shape[2:], out.shape[2:], strict=True)
    )
    return g.node("MatMul", [g.array(rows), g.node("MatMul", [g.value(a), g.array(columns.T)])])


def _cells(have: int, wanted: int) -> np.ndarray[Any, Any]:
    """Return the matrix that averages `have` numbers over `wanted` cells, as torch does.

    Cells overlap if they cannot all have the same size.
    """
    means = np.zeros((wanted, have), np.float32)
    for k in range(wanted):
        cell = slice(k * have // wanted, -(-(k + 1) * have // wanted))
        means[k, cell] = 1 / (cell.stop - cell.start)
    return means


def _addmm(
    g: TracedGraph,
    out: Tensor,
    bias: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> str:
    return g.node(
        "Gemm", [g.value(a), g.value(b), g.value(bias)], alpha=float(alpha), beta=float(beta)
    )


def _matmul(g: TracedGraph, out: Tensor, a: Tensor, b: Tensor) -> str:
    return g.node("MatMul", [g.value(a), g.value(b)])


def _softmax(g: TracedGraph, out: Tensor, a: Tensor, dim: int, _half: bool = False) -> str:
    return g.node("Softmax", [g.value(a)], axis=dim % a.ndim)


def _layer_norm(
    g: TracedGraph,
    out: Tensor,
    a: Tensor,
    shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> str:
    like = torch.ones(list(shape), dtype=a.dtype)
    scale = like if weight is None else weight
    shift = torch.zeros_like(like) if bias is None else bias
    names = [g.value(x) for x in (a, scale, shift)]
    return g.node("LayerNormalization", names, axis=-len(shape), epsilon=eps)


def _gelu(g: TracedGraph, out: Tensor, a: Tensor, *, approximate: str = "none") -> str:
    if approximate != "none":
        raise CannotTraceError("the approximate GELU")
    x = g.value(a)
    erf = g.node("Erf", [g.node("Mul", [x, g.value(0.5**0.5, out)])])
    half = g.node("Mul", [x, g.value(0.5, out)])
    return g.node("Mul", [half, g.node("Add", [erf, g.value(1.0, out)])])


def _leaky(g: TracedGraph, out: Tensor, a: Tensor, slope: float = 0.01) -> str:
    return g.node("LeakyRelu", [g.value(a)], alpha=slope)


OPERATIONS: dict[Any, Operation] = {
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
    aten.max_pool2d_with_indices: _pool("MaxPool", _maximum_attributes),
    aten.avg_pool2d: _pool("AveragePool", _average_attributes),
    aten._adaptive_avg_pool2d: _adaptive_mean,
    aten.addmm: _addmm,
    aten.mm: _matmul,
    aten.bmm: _matmul,
    aten._softmax: _softmax,
    aten.native_layer_norm: _layer_norm,
    aten.gelu: _gelu,
}
