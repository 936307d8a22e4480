"""Translation of torch functions into ONNX graphs.

A function is run once, and every operation on its input is recorded. Everything that does not
depend on the input (weights, folded moments, the solution of a linear system) becomes a constant,
so the graph contains only inference. This takes milliseconds and no compiler. A function with an
operation that is not listed here is rejected. Rare settings of an operation, such as a division
that rounds, are not looked at: whoever uses a graph compares its numbers with those of torch first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
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
            translate = OPERATIONS.get(_out_of_place(func))
            if translate is None:
                raise CannotTraceError(f"{func} has no translation to ONNX here")
            first = result[0] if isinstance(result, list | tuple) else result
            name = translate(self, first, _by_name(func, args, kwargs or {}))
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


def _by_name(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> SimpleNamespace:
    """Return the arguments of an operation by the names of its schema, with their defaults."""
    defaults = {argument.name: argument.default_value for argument in func._schema.arguments}
    given = dict(zip(defaults, args, strict=False))
    return SimpleNamespace(**{**defaults, **given, **kwargs})


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


# Takes the graph, the result of torch, and the arguments of torch by the names of its schema.
Operation = Callable[[TracedGraph, Tensor, Any], str]


def _elementwise(kind: str, second: str = "other") -> Operation:
    def translate(g: TracedGraph, out: Tensor, a: Any) -> str:
        right = g.value(getattr(a, second), out)
        alpha = getattr(a, "alpha", 1)
        if alpha != 1:
            right = g.node("Mul", [right, g.value(alpha, out)])
        return g.node(kind, [g.value(a.self, out), right])

    return translate


def _unary(kind: str, **attributes: Any) -> Operation:
    return lambda g, out, a: g.node(kind, [g.value(a.self, out)], **attributes)


def _same(g: TracedGraph, out: Tensor, a: Any) -> str:
    return g.value(a.self, out)


def _clip(low: str, high: str) -> Operation:
    def translate(g: TracedGraph, out: Tensor, a: Any) -> str:
        limits = (getattr(a, low, None), getattr(a, high, None))
        names = ["" if limit is None else g.value(limit, out) for limit in limits]
        return g.node("Clip", [g.value(a.self), *names])

    return translate


def _leaky_relu(g: TracedGraph, out: Tensor, a: Any) -> str:
    return g.node("LeakyRelu", [g.value(a.self)], alpha=float(a.negative_slope))


def _silu(g: TracedGraph, out: Tensor, a: Any) -> str:
    return g.node("Mul", [g.value(a.self), g.node("Sigmoid", [g.value(a.self)])])


def _permute(g: TracedGraph, out: Tensor, a: Any) -> str:
    return g.node("Transpose", [g.value(a.self)], perm=[d % out.ndim for d in a.dims])


def _transpose(g: TracedGraph, out: Tensor, a: Any) -> str:
    order = list(range(out.ndim))
    i, j = getattr(a, "dim0", 0), getattr(a, "dim1", 1)
    order[i], order[j] = order[j], order[i]
    return g.node("Transpose", [g.value(a.self)], perm=order)


def _reshape(g: TracedGraph, out: Tensor, a: Any) -> str:
    return g.node("Reshape", [g.value(a.self), g.array(np.array([-1, *out.shape[1:]], np.int64))])


def _cat(g: TracedGraph, out: Tensor, a: Any) -> str:
    return g.node("Concat", [g.value(part, out) for part in a.tensors], axis=a.dim % out.ndim)


def _slice(g: TracedGraph, out: Tensor, a: Any) -> str:
    dim = a.dim % out.ndim
    if dim == 0:
        raise CannotTraceError("a slice over the frames")
    begin = 0 if a.start is None else a.start
    stop = 2**62 if a.end is None else a.end
    limits = [g.array(np.array([n], np.int64)) for n in (begin, stop, dim, a.step)]
    return g.node("Slice", [g.value(a.self), *limits])


def _reduce(kind: str) -> Operation:
    def translate(g: TracedGraph, out: Tensor, a: Any) -> str:
        x, keep = a.self, getattr(a, "keepdim", False)
        axes = sorted(d % x.ndim for d in getattr(a, "dim", None) or range(x.ndim))
        if 0 in axes:
            raise CannotTraceError("a sum over the frames")
        if kind == "ReduceMean" and axes == [2, 3] and x.ndim == 4:
            pooled = g.node("GlobalAveragePool", [g.value(x)])
            return pooled if keep else g.node("Flatten", [pooled])
        return g.node(kind, [g.value(x), g.array(np.array(axes, np.int64))], keepdims=int(keep))

    return translate


def _norm(g: TracedGraph, out: Tensor, a: Any) -> str:
    if a.ord not in (1, 2):
        raise CannotTraceError(f"a norm of order {a.ord}")
    return _reduce(f"ReduceL{int(a.ord)}")(g, out, a)


def _pad(g: TracedGraph, out: Tensor, a: Any) -> str:
    ends = np.zeros((2, out.ndim), np.int64)
    for k in range(len(a.pad) // 2):
        ends[:, out.ndim - 1 - k] = a.pad[2 * k : 2 * k + 2]
    return g.node("Pad", [g.value(a.self), g.array(ends.reshape(-1)), g.value(a.value, out)])


def _convolution(g: TracedGraph, out: Tensor, a: Any) -> str:
    if a.transposed or g.depends_on_input(a.weight):
        raise CannotTraceError("a transposed or dynamic convolution")
    return g.node(
        "Conv",
        [g.value(x) for x in (a.input, a.weight, a.bias) if x is not None],
        strides=a.stride,
        pads=[*a.padding, *a.padding],
        dilations=a.dilation,
        group=a.groups,
        kernel_shape=list(a.weight.shape[2:]),
    )


def _batch_norm(g: TracedGraph, out: Tensor, a: Any) -> str:
    if getattr(a, "training", False):
        raise CannotTraceError("a batch norm in training mode")
    mean = a.running_mean
    scale = torch.ones_like(mean) if a.weight is None else a.weight
    shift = torch.zeros_like(mean) if a.bias is None else a.bias
    names = [g.value(x) for x in (a.input, scale, shift, mean, a.running_var)]
    return g.node("BatchNormalization", names, epsilon=a.eps)


def _pool(kind: str, *attributes: str) -> Operation:
    def translate(g: TracedGraph, out: Tensor, a: Any) -> str:
        def per_side(values: Sequence[int]) -> list[int]:
            return list(values) * (2 // len(values))

        settings: dict[str, Any] = {name: int(getattr(a, name)) for name in attributes}
        return g.node(
            kind,
            [g.value(a.self)],
            kernel_shape=per_side(a.kernel_size),
            strides=per_side(a.stride or a.kernel_size),
            pads=per_side(a.padding) * 2,
            **settings,
        )

    return translate


def _addmm(g: TracedGraph, out: Tensor, a: Any) -> str:
    names = [g.value(x) for x in (a.mat1, a.mat2, a.self)]
    return g.node("Gemm", names, alpha=float(a.alpha), beta=float(a.beta))


def _matmul(g: TracedGraph, out: Tensor, a: Any) -> str:
    return g.node("MatMul", [g.value(a.self), g.value(a.mat2)])


def _softmax(g: TracedGraph, out: Tensor, a: Any) -> str:
    return g.node("Softmax", [g.value(a.self)], axis=a.dim % out.ndim)


def _layer_norm(g: TracedGraph, out: Tensor, a: Any) -> str:
    like = torch.ones(list(a.normalized_shape), dtype=a.input.dtype)
    scale = like if a.weight is None else a.weight
    shift = torch.zeros_like(like) if a.bias is None else a.bias
    names = [g.value(x) for x in (a.input, scale, shift)]
    return g.node("LayerNormalization", names, axis=-like.ndim, epsilon=a.eps)


def _gelu(g: TracedGraph, out: Tensor, a: Any) -> str:
    x = g.value(a.self)
    erf = g.node("Erf", [g.node("Mul", [x, g.value(0.5**0.5, out)])])
    half = g.node("Mul", [x, g.value(0.5, out)])
    return g.node("Mul", [half, g.node("Add", [erf, g.value(1.0, out)])])


OPERATIONS: dict[Any, Operation] = {
    aten.add: _elementwise("Add"),
    aten.sub: _elementwise("Sub"),
    aten.mul: _elementwise("Mul"),
    aten.div: _elementwise("Div"),
    aten.pow: _elementwise("Pow", "exponent"),
    aten.maximum: _elementwise("Max"),
    aten.minimum: _elementwise("Min"),
    aten.neg: _unary("Neg"),
    aten.abs: _unary("Abs"),
    aten.cos: _unary("Cos"),
    aten.exp: _unary("Exp"),
    aten.log: _unary("Log"),
    aten.sqrt: _unary("Sqrt"),
    aten.reciprocal: _unary("Reciprocal"),
    aten.tanh: _unary("Tanh"),
    aten.sigmoid: _unary("Sigmoid"),
    aten.relu: _unary("Relu"),
    aten.leaky_relu: _leaky_relu,
    aten.hardswish: _unary("HardSwish"),
    aten.hardsigmoid: _unary("HardSigmoid", alpha=1 / 6, beta=0.5),
    aten.silu: _silu,
    aten.hardtanh: _clip("min_val", "max_val"),
    aten.clamp: _clip("min", "max"),
    aten.clamp_min: _clip("min", "max"),
    aten.detach: _same,
    aten.alias: _same,
    aten.clone: _same,
    aten._to_copy: _same,
    aten.permute: _permute,
    aten.transpose: _transpose,
    aten.t: _transpose,
    aten.view: _reshape,
    aten._unsafe_view: _reshape,
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
    aten.max_pool2d_with_indices: _pool("MaxPool", "ceil_mode"),
    aten.avg_pool2d: _pool("AveragePool", "ceil_mode", "count_include_pad"),
    aten.addmm: _addmm,
    aten.mm: _matmul,
    aten.bmm: _matmul,
    aten._softmax: _softmax,
    aten.native_layer_norm: _layer_norm,
    aten.gelu: _gelu,
}
