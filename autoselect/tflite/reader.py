"""From a parsed TFLite model to the graph that the rest of autoselect reasons about."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.graph import Graph, Op, OpKind, Tensor
from autoselect.domain.tensors import TensorSpec, free_name
from autoselect.errors import ModelError
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.schema_types import Metadata

FLOAT_DTYPES = frozenset({"float32", "float16", "bfloat16", "float64"})
QUANTIZED_DTYPES = frozenset({"int8", "uint8", "int16", "int4"})
ANY_FORM = frozenset({"SHAPE", "RANK"})
"""Op types that take a value in whatever form there is: they do not read its numbers."""
_ITEM_BYTES = {"bool": 1, "string": 1, "int4": 1, "bfloat16": 2, "resource": 0, "variant": 0}
_ITEM_BYTES |= {"int2": 1, "uint4": 1, "float8_e4m3fn": 1, "float8_e5m2": 1}
_WITHOUT = {
    "inputs": "Export the model from where it has numbers on, for example without its vocabulary.",
    "outputs": "Export the model without this output.",
}
"""What to do with a side of the model that holds no numbers."""


def read_graph(model: fb.Model, index: int = 0) -> Graph:
    """Read one subgraph of a parsed model, by default the main one (the first)."""
    subgraph = model.subgraphs[index]
    computed = {int(i) for op in subgraph.operators or [] for i in op.outputs} | set(_indices(subgraph.inputs))
    tensors = tuple(read_tensor(model, t) for t in subgraph.tensors or [])
    ops = tuple(_op(model, op, tensors, computed) for op in subgraph.operators or [])
    return Graph(tensors=tensors, ops=ops, inputs=_indices(subgraph.inputs), outputs=_indices(subgraph.outputs))


def _indices(values: fb.Indices | None) -> tuple[int, ...]:
    return tuple(i for i in fb.indices(values) if i >= 0)


def read_tensor(model: fb.Model, tensor: fb.Tensor) -> Tensor:
    """Read one tensor of a parsed model."""
    dtype, shape = fb.TENSOR_DTYPES[tensor.type], fb.shape_of(tensor)
    item = _ITEM_BYTES[dtype] if dtype in _ITEM_BYTES else np.dtype(dtype).itemsize
    return Tensor(
        name=fb.tensor_name(tensor),
        dtype=dtype,
        shape=shape,
        is_constant=fb.is_constant(model, tensor),
        size_bytes=item * prod(shape),
        scales=max(fb.scale_count(tensor), 1),
    )


def _op(model: fb.Model, op: fb.Operator, tensors: tuple[Tensor, ...], computed: set[int]) -> Op:
    """One op; a variable is no activation of it, and neither is a constant of no elements, which has no data."""
    name = fb.op_type(model, op)
    inputs = _indices(op.inputs)
    activations = tuple(i for i in inputs if not tensors[i].is_constant and i in computed)
    constants = tuple(i for i in inputs if tensors[i].is_constant)
    outputs = _indices(op.outputs)
    kind = _kind(name, [tensors[i].dtype for i in activations + outputs], [tensors[i].dtype for i in constants])
    # Of the inputs the first only: a fused LSTM of int8 keeps a cell state of int16.
    if kind is OpKind.INTEGER and any(tensors[i].dtype == "int16" for i in activations[:1] + outputs):
        kind = OpKind.INT16
    if name in ("DENSIFY", "DEQUANTIZE") and constants and not activations:
        kind = OpKind.NEUTRAL  # LiteRT unpacks a constant once, before it runs.
    return Op(
        op_type=name,
        kind=kind,
        inputs=activations,
        constants=constants,
        outputs=outputs,
        macs=_macs(op, name, [tensors[i] for i in inputs], [tensors[i] for i in outputs]),
        stride=max(_option(op, "strideH"), _option(op, "strideW")),
        is_padded=_is_padded(op),
        constant_bytes=sum(tensors[i].size_bytes for i in constants),
    )


def _option(op: fb.Operator, name: str) -> int:
    return int(getattr(op.builtinOptions, name, 1))


def _is_padded(op: fb.Operator) -> bool:
    padding = getattr(op.builtinOptions, "padding", schema.Padding.VALID)
    return padding != schema.Padding.VALID or max(_option(op, "dilationHFactor"), _option(op, "dilationWFactor")) > 1


def _kind(name: str, activation_dtypes: list[str], constant_dtypes: list[str]) -> OpKind:
    if name in ANY_FORM:
        return OpKind.NEUTRAL
    touches_float = any(d in FLOAT_DTYPES for d in activation_dtypes)
    touches_quantized = any(d in QUANTIZED_DTYPES for d in activation_dtypes)
    if touches_float and touches_quantized and name in ("QUANTIZE", "DEQUANTIZE"):
        return OpKind.BOUNDARY
    if touches_float:
        return OpKind.HYBRID if any(d in QUANTIZED_DTYPES for d in constant_dtypes) else OpKind.FLOAT
    return OpKind.INTEGER if touches_quantized else OpKind.NEUTRAL


_Shape = tuple[int, ...]
_MACS: dict[str, Callable[[list[_Shape], int], int]] = {
    "CONV_2D": lambda shapes, out: out * prod(shapes[1][1:]),
    "CONV_3D": lambda shapes, out: out * prod(shapes[1][:-1]),
    "DEPTHWISE_CONV_2D": lambda shapes, out: out * prod(shapes[1][1:3]),
    "TRANSPOSE_CONV": lambda shapes, _: prod(shapes[2]) * prod(shapes[1][:3]),
    "FULLY_CONNECTED": lambda shapes, out: out * shapes[1][-1],
    "BATCH_MATMUL": lambda shapes, out: out * shapes[0][-1],
}
"""Multiply-accumulates of an op, from the shapes of its inputs and the elements of its first output."""


def _macs(op: fb.Operator, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """Multiply-accumulates per inference, from shapes alone."""
    if name == "UNIDIRECTIONAL_SEQUENCE_LSTM":
        return _lstm_macs(inputs)
    if name not in _MACS or not outputs:
        return 0
    shapes = [tensor.shape for tensor in inputs]
    if getattr(op.builtinOptions, "adjX", False):
        shapes[0] = (*shapes[0][:-2], shapes[0][-1], shapes[0][-2])
    return _MACS[name](shapes, prod(outputs[0].shape))


def _lstm_macs(operands: Sequence[Tensor]) -> int:
    """Every weight matrix once for each step of the sequence."""
    steps = prod(operands[0].shape[:-1])
    return steps * sum(prod(t.shape) for t in operands[1:] if t.is_constant and len(t.shape) == 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """What a caller of a model deals with.

    Attributes:
        inputs: As :func:`input_specs` gives them.
        outputs: As :func:`output_specs` gives them.
        is_stateful: Whether the model keeps variables from one inference to the next.
        has_resources: Whether it keeps them, or tables, in resources, which are no tensors.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    is_stateful: bool
    has_resources: bool


def read_interface(content: bytes) -> Interface:
    """Read the interface of a model, without its ops and constants, which takes a fiftieth of the time.

    Raises:
        ModelError: If the bytes are no TFLite file.
    """
    model = fb.parse_interface(content)
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    return Interface(
        inputs=input_specs(model),
        outputs=output_specs(model),
        is_stateful=any(tensor.isVariable for tensor in tensors),
        has_resources=any(tensor.type == schema.TensorType.RESOURCE for tensor in tensors),
    )


def input_specs(model: fb.Model) -> tuple[TensorSpec, ...]:
    """The model's inputs, in the model's order, with the signature's keys as caller's names."""
    return _specs(model, model.subgraphs[0].inputs, "inputs")


def output_specs(model: fb.Model) -> tuple[TensorSpec, ...]:
    """The model's outputs, in the model's order, with the signature's keys as caller's names."""
    return _specs(model, model.subgraphs[0].outputs, "outputs")


def _fitting(turned: tuple[int, ...] | None, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return turned if turned is not None and sorted(turned) == list(range(len(shape))) else None


_LAYOUT = "source_layout"
"""Begins the name of a metadata entry that says how samples in the source's layout are turned: axes, then the input."""


def layout_entry(name: str, turned: Sequence[int]) -> Metadata:
    """What says in a file that samples of an input may come in another layout, see :attr:`TensorSpec.turned`."""
    entry: Metadata = schema.MetadataT()
    entry.name, entry.buffer = f"{_LAYOUT} {','.join(map(str, turned))} {name}".encode(), 0
    return entry


def _layouts(model: fb.Model) -> dict[str, tuple[int, ...]]:
    layouts = {}
    for entry in model.metadata or []:
        mark, _, rest = (entry.name or b"").decode("utf-8", "replace").partition(" ")
        axes, _, name = rest.partition(" ")
        if mark == _LAYOUT:
            with contextlib.suppress(ValueError):  # Of another writer, who may mean something else.
                layouts[name] = tuple(map(int, axes.split(",")))
    return layouts


def _specs(model: fb.Model, indices: fb.Indices, side: str) -> tuple[TensorSpec, ...]:
    layouts = _layouts(model) if side == "inputs" else {}
    keys: dict[int, list[str]] = {}  # several where a signature gives one value under several names
    for signature in model.signatureDefs or []:
        if (signature.subgraphIndex or 0) == 0:
            for entry in getattr(signature, side) or []:
                keys.setdefault(int(entry.tensorIndex), []).append(entry.name.decode("utf-8", "replace"))
            break
    specs, taken = [], set[str]()
    for place, index in enumerate(_indices(indices)):
        tensor = model.subgraphs[0].tensors[index]
        name, dtype = fb.tensor_name(tensor), fb.TENSOR_DTYPES[tensor.type]
        own = keys.get(index) or [name]
        key = " ".join((own.pop(0) if len(own) > 1 else own[0]).splitlines()) or f"{side[:-1]}_{place}"
        if dtype not in _ITEM_BYTES or dtype == "bool":
            specs.append(
                TensorSpec(
                    name=name,
                    key=free_name(key, taken),
                    shape=fb.shape_of(tensor),
                    dtype=np.dtype(dtype),
                    is_quantized=bool(fb.scales(tensor)),
                    turned=_fitting(layouts.get(name), fb.shape_of(tensor)),
                )
            )
        else:
            raise ModelError(
                f"The model's {side[:-1]} {name!r} is of type {dtype}: expected numbers or bool. {_WITHOUT[side]}"
            )
    return tuple(specs)
