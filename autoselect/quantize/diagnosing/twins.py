"""What rounded weights and what rounded activations do to each node: a float model beside whose ops stand twins.

A twin has one part of quantization and reads what its op reads, so it shows the node's own error. All twins run in one
model, each once a sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.findings import ErrorParts
from autoselect.domain.layers import Node
from autoselect.quantize.repairing.weighted_ops import dequantized
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.operands import WEIGHTS
from autoselect.tflite.runner import Runner
from autoselect.tflite.tflite_file import TfliteFile

_NARROWER = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
"""Shares of the range that are tried."""


def error_parts(
    float_file: TfliteFile,
    built_file: TfliteFile,
    places: Mapping[int, int],
    nodes: Sequence[Node],
    samples: Iterable[Mapping[str, np.ndarray]],
) -> dict[str, ErrorParts]:
    """Measure the parts of every node's error.

    Args:
        float_file: The float model.
        built_file: A model that was built from it, with the scales and the levels of weights.
        places: Index of each float op in the built model.
        nodes: ``node.index`` is the op's index in the float model.
        samples: Inputs by key, float, batch 1; each is run once.

    Returns:
        By node name. Nodes with a state of their own, and those of which nothing is rounded to 8 bits, are left out.
    """
    twins = _Twins(float_file.copied(), built_file.model)
    watched = {node.name: twins.add(node.index, places[node.index]) for node in nodes if node.index in places}
    watched = {name: tensors for name, tensors in watched.items() if tensors.weights or tensors.activations}
    read = {tensor for tensors in watched.values() for tensor in (tensors.output, tensors.weights, tensors.activations)}
    # All others share their memory: each convolution of LiteRT's own kernels takes many times its input.
    runner = Runner(fb.serialise(twins.model), readable=read, delegates=False)
    sums = {name: _Sums() for name in watched}
    for sample in samples:
        runner.go_on(sample)
        for name, tensors in watched.items():
            sums[name].add(runner, tensors)
    return {name: node_sums.parts() for name, node_sums in sums.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """Tensors of one node: its float output and its twins' (0 for none), and the levels of the output."""

    output: int = 0
    weights: int = 0
    activations: int = 0
    levels: fb.Tensor | None = None


@dataclass(slots=True)
class _Sums:
    """Sums over all samples so far: powers, and errors by channel."""

    signal: float = 0.0
    rows: int = 0
    weights: float = math.nan
    activations: float = math.nan
    shift: np.ndarray = field(default_factory=lambda: np.zeros(1))
    output: np.ndarray = field(default_factory=lambda: np.zeros(len(_NARROWER)))
    """Power of the error of rounding the output alone, by the share of its range."""

    def add(self, runner: Runner, watched: _Watched) -> None:
        truth = np.atleast_1d(runner.tensor(watched.output)).astype(np.float64)
        channels = truth.shape[-1]
        self.signal += _power(truth)
        self.rows += truth.size // max(channels, 1)
        if watched.weights:
            error = runner.tensor(watched.weights) - truth
            self.weights = _sum(self.weights, _power(error))
            self.shift = self.shift + error.reshape(-1, channels).sum(axis=0)
        if watched.activations:
            self.activations = _sum(self.activations, _power(runner.tensor(watched.activations) - truth))
        if watched.levels is not None:
            self.output = self.output + [_power(_rounded(truth, watched.levels, share) - truth) for share in _NARROWER]

    def parts(self) -> ErrorParts:
        signal = self.signal or math.nan
        best = float(self.output.min())
        return ErrorParts(
            weights=self.weights / signal,
            shift=_power(self.shift) / max(self.rows, 1) / signal if not math.isnan(self.weights) else math.nan,
            activations=self.activations / signal,
            # The inputs' part stays.
            narrowed=max(self.activations - float(self.output[0]) + best, best) / signal,
        )


def _sum(before: float, more: float) -> float:
    return more if math.isnan(before) else before + more


def _power(values: np.ndarray) -> float:
    return float(np.vdot(values, values))


def _rounded(values: np.ndarray, levels: fb.Tensor, share: float) -> np.ndarray:
    """Values rounded to the int8 levels of a tensor, of whose range only a share is kept."""
    scale, zero_point = fb.scales(levels)[0] * share, fb.zero_points_of(levels)[0]
    rounded_values: np.ndarray = (np.clip(np.rint(values / scale) + zero_point, -128, 127) - zero_point) * scale
    return rounded_values


class _Twins:
    """Puts twins into a float model, in place."""

    def __init__(self, model: fb.Model, built: fb.Model) -> None:
        self.model, self._built = model, built
        self._graph = model.subgraphs[0]
        self._floats = tuple(self._graph.operators)
        self._codes: dict[str, int] = {}

    def add(self, index: int, place: int) -> _Watched:
        op, built = self._floats[index], self._built.subgraphs[0].operators[place]
        output, levels = int(op.outputs[0]), self._built.subgraphs[0].tensors[built.outputs[0]]
        if any(self._graph.tensors[i].isVariable for i in op.inputs if i >= 0) or not self._is_float(output):
            return _Watched()
        has_weights = fb.op_type(self.model, op) in WEIGHTS
        rounded = {
            position: made
            for position, (own, twin) in enumerate(zip(fb.indices(op.inputs), self._in_order(op, built), strict=False))
            if own >= 0 and self._is_float(own) and (made := self._rounded_operand(own, twin)) is not None
        }
        weights = {p: t for p, t in rounded.items() if has_weights and fb.is_constant(self._built, t)}
        others = {p: t for p, t in rounded.items() if p not in weights}
        return _Watched(
            output=output,
            weights=self._twin(op, weights, None) if weights else 0,
            activations=self._twin(op, others, levels) if _in_8_bits(levels) else 0,
            levels=levels if _in_8_bits(levels) else None,
        )

    def _is_float(self, index: int) -> bool:
        return bool(self._graph.tensors[index].type == schema.TensorType.FLOAT32)

    def _in_order(self, op: fb.Operator, built: fb.Operator) -> tuple[int, ...]:
        """Operands of a built op as the float op has them: the quantizer puts the constant of an ADD or a MUL last."""
        own, operands = fb.indices(op.inputs), fb.indices(built.inputs)
        if len(own) != 2 or len(operands) != 2 or min(*own, *operands) < 0:
            return operands
        constant = [fb.is_constant(self.model, self._graph.tensors[i]) for i in own]
        built_constant = [fb.is_constant(self._built, self._built.subgraphs[0].tensors[i]) for i in operands]
        return operands[::-1] if constant == [True, False] and built_constant == [False, True] else operands

    def _rounded_operand(self, own: int, twin: int) -> fb.Tensor | None:
        """The tensor whose levels an operand has; None where it has none, or where a constant is computed."""
        if twin < 0:
            return None
        tensor = self._built.subgraphs[0].tensors[twin]
        was_constant = fb.is_constant(self.model, self._graph.tensors[own])
        return tensor if _in_8_bits(tensor) and fb.is_constant(self._built, tensor) >= was_constant else None

    def _twin(self, op: fb.Operator, rounded: Mapping[int, fb.Tensor], levels: fb.Tensor | None) -> int:
        """A copy of an op with some of its inputs rounded, and its output as well if it has levels."""
        twin = deepcopy(op)
        twin.inputs = np.array(
            [self._as(int(own), rounded[p]) if p in rounded else own for p, own in enumerate(op.inputs)], np.int32
        )
        twin.outputs = np.array([self._tensor(int(i), self._graph.tensors[i].type) for i in op.outputs], np.int32)
        self._graph.operators.append(twin)
        return int(twin.outputs[0]) if levels is None else self._as(int(twin.outputs[0]), levels)

    def _as(self, source: int, levels: fb.Tensor) -> int:
        """A float tensor of what is left of another one in these levels."""
        result = self._tensor(source, schema.TensorType.FLOAT32)
        if fb.is_constant(self.model, self._graph.tensors[source]):
            values = dequantized(self._built, levels).astype(np.float32)
            self._graph.tensors[result].buffer = editing.add_buffer(self.model, values)
            self._graph.tensors[result].shape = np.array(values.shape, np.int32)
            return result
        middle = self._tensor(source, levels.type)
        self._graph.tensors[middle].quantization = levels.quantization
        for op_type, reads, writes in (("QUANTIZE", source, middle), ("DEQUANTIZE", middle, result)):
            if op_type not in self._codes:
                self._codes[op_type] = len(self.model.operatorCodes)
                self.model.operatorCodes.append(editing.conversion_code(op_type, [levels]))
            self._graph.operators.append(editing.conversion_op(self._codes[op_type], reads, writes))
        return result

    def _tensor(self, like: int, kind: int) -> int:
        tensor = deepcopy(self._graph.tensors[like])
        tensor.type, tensor.quantization, tensor.buffer = kind, None, 0
        self._graph.tensors.append(tensor)
        return len(self._graph.tensors) - 1


def _in_8_bits(tensor: fb.Tensor) -> bool:
    return bool(tensor.type == schema.TensorType.INT8 and fb.scales(tensor))
