"""Equalization: channels of one layer scaled up, and of the next scaled down, where nothing between can tell.

The method is that of Nagel et al. 2019 (arXiv:1906.04721, section 4.1): scales that make the weights of both layers
range equally far in each channel. Here they are powers of two. So the scaled float model computes the same bits as
before, which :func:`equalize` verifies, and the best scale is missed by a factor of at most the square root of two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.quantize.bias import WEIGHTED, is_weighted
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner

_SWEEPS = 20
_CLIP = 6.0
_HOMOGENEOUS = (schema.ActivationFunctionType.NONE, schema.ActivationFunctionType.RELU)
_RELU6 = schema.ActivationFunctionType.RELU6
_BETWEEN = {"RELU": schema.ActivationFunctionType.RELU, "RELU6": _RELU6, "PRELU": schema.ActivationFunctionType.NONE}
"""Ops of their own between two layers, and the fused activation that each is like here."""
_MOST_DOUBLINGS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two layers with only positively homogeneous activations between.

    Attributes:
        first: Index of the op that writes.
        second: Index of the op that reads.
        clipped: Tensors between that a RELU6 writes.
    """

    first: int
    second: int
    clipped: tuple[int, ...]


def find_pairs(model: fb.Model) -> list[Pair]:
    """Find the pairs of a float model's main subgraph, in graph order."""
    graph = model.subgraphs[0]
    readers = Counter(int(i) for op in graph.operators for i in op.inputs)
    readers.update(int(i) for i in graph.outputs)
    found = []
    for at, op in enumerate(graph.operators):
        pair = _follow(model, at, readers) if _is_own(model, op, readers) else None
        if pair is not None and _fits(model, op, graph.operators[pair.second], readers):
            found.append(pair)
    return found


def _follow(model: fb.Model, first: int, readers: Mapping[int, int]) -> Pair | None:
    """From a layer through homogeneous activations to the next one."""
    graph, at, clipped = model.subgraphs[0], first, []
    reader = {int(i): place for place, op in enumerate(graph.operators) for i in op.inputs}
    while True:
        op = graph.operators[at]
        output, function = int(op.outputs[0]), _activation(model, op)
        if function not in (*_HOMOGENEOUS, _RELU6) or readers[output] != 1 or output not in reader:
            return None
        clipped += [output] if function == _RELU6 else []
        at = reader[output]
        if is_weighted(model, graph.operators[at]):
            return Pair(first=first, second=at, clipped=tuple(clipped))
        if fb.op_type(model, graph.operators[at]) not in _BETWEEN:
            return None


def _activation(model: fb.Model, op: Any) -> int:
    """The fused activation of an op, or what stands for the op itself."""
    name = fb.op_type(model, op)
    return _BETWEEN[name] if name in _BETWEEN else int(op.builtinOptions.fusedActivationFunction)


def _is_own(model: fb.Model, op: Any, readers: Mapping[int, int]) -> bool:
    """True for a layer whose weights and bias are constants that no other op reads."""
    if not is_weighted(model, op):
        return False
    position, graph = WEIGHTED[fb.op_type(model, op)].bias, model.subgraphs[0]
    operands = [int(op.inputs[p]) for p in (1, position) if p < len(op.inputs) and op.inputs[p] >= 0]
    constants = [graph.tensors[i] for i in operands]
    if not all(fb.is_constant(model, t) and t.type == schema.TensorType.FLOAT32 for t in constants):
        return False
    buffers = Counter(t.buffer for t in graph.tensors)
    return all(readers[i] == 1 for i in operands) and all(buffers[t.buffer] == 1 for t in constants)


def _fits(model: fb.Model, first: Any, second: Any, readers: Mapping[int, int]) -> bool:
    """Both own their weights, and channels that the one writes are those that the other reads."""
    if not _is_own(model, second, readers):
        return False
    activation = int(second.inputs[WEIGHTED[fb.op_type(model, second)].activation])
    channels = fb.shape_of(model.subgraphs[0].tensors[first.outputs[0]])[-1]
    weights = fb.shape_of(model.subgraphs[0].tensors[second.inputs[1]])
    same = fb.shape_of(model.subgraphs[0].tensors[activation])[-1] == channels
    return bool(same and weights[-1] == channels)


def equalize(
    content: bytes, samples: Callable[[], Iterable[Mapping[str, np.ndarray]]]
) -> tuple[bytes, tuple[Pair, ...]]:
    """Equalize every pair of a calibrated model.

    A RELU6 stays one. A channel in which it clips on the samples is left alone, and no other is scaled so far up that
    it would.

    Args:
        content: Bytes of the calibrated model.
        samples: Gives the inputs by key, anew at each call; the outputs are compared on them.

    Returns:
        Bytes of the model, whose ranges are those from before, and the pairs that were scaled; the model as it was
        and no pairs where there are none, or where an output differs in a single bit.
    """
    model = fb.parse(content)
    found = find_pairs(model)
    if not found:
        return content, ()
    peaks = channel_peaks(content, samples(), {i for pair in found for i in pair.clipped})
    if not _scale(model, found, peaks):
        return content, ()
    scaled = fb.serialise(model)
    return (scaled, tuple(found)) if _equal(content, scaled, samples()) else (content, ())


def channel_peaks(
    content: bytes, samples: Iterable[Mapping[str, np.ndarray]], tensors: Iterable[int]
) -> dict[int, np.ndarray]:
    """The largest value of each channel of some tensors over samples, shape (channels,)."""
    found: dict[int, np.ndarray] = {}
    if not (chosen := sorted(tensors)):
        return found
    runner = Runner(content, preserve_all_tensors=True)
    for sample in samples:
        runner(sample)
        for index in chosen:
            value = runner.tensor(index)
            peak = value.reshape(-1, value.shape[-1]).max(axis=0).astype(np.float64)
            found[index] = np.maximum(found[index], peak) if index in found else peak
    return found


def tensors_between(model: fb.Model, found: Iterable[Pair]) -> set[int]:
    """The tensors that lie between the layers of pairs: those whose ranges equalization changes."""
    graph = model.subgraphs[0]
    reader = {int(i): at for at, op in enumerate(graph.operators) for i in op.inputs}
    between = set()
    for pair in found:
        at = pair.first
        while at != pair.second:
            tensor = int(graph.operators[at].outputs[0])
            between.add(tensor)
            at = reader[tensor]
    return between


def _scale(model: fb.Model, found: Iterable[Pair], peaks: dict[int, np.ndarray]) -> bool:
    """Scale pair after pair until nothing changes, and the peaks with them; True where anything did."""
    changed = False
    for _ in range(_SWEEPS):
        moved = [_scale_pair(model, pair, peaks) for pair in found]
        changed = changed or any(moved)
        if not any(moved):
            break
    return changed


def _scale_pair(model: fb.Model, pair: Pair, peaks: dict[int, np.ndarray]) -> bool:
    graph = model.subgraphs[0]
    first, second = graph.operators[pair.first], graph.operators[pair.second]
    kind = WEIGHTED[fb.op_type(model, first)]
    ours, theirs = graph.tensors[first.inputs[1]], graph.tensors[second.inputs[1]]
    doublings = _doublings(_peaks(model, ours, kind.axis), _peaks(model, theirs, -1))
    for tensor in pair.clipped:
        doublings = _unclipped(doublings, peaks[tensor])
    if not doublings.any():
        return False
    scales = np.exp2(doublings).astype(np.float32)
    for tensor in pair.clipped:
        peaks[tensor] = peaks[tensor] * scales
    _multiply(model, ours, scales, kind.axis)
    _multiply(model, theirs, 1.0 / scales, -1)
    if len(first.inputs) > kind.bias and first.inputs[kind.bias] >= 0:
        _multiply(model, graph.tensors[first.inputs[kind.bias]], scales, 0)
    return True


def _unclipped(doublings: np.ndarray, peaks: np.ndarray) -> np.ndarray:
    """As many doublings as leave a RELU6 unreached; none where it is reached."""
    room = np.ceil(np.log2(_CLIP / np.maximum(peaks, 2.0**-_MOST_DOUBLINGS))) - 1.0
    found: np.ndarray = np.where(peaks < _CLIP, np.minimum(doublings, np.maximum(room, 0.0)), 0.0)
    return found


def _doublings(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """How often to double each channel of the first layer; none for a channel that either does not use."""
    used = (ours > 0.0) & (theirs > 0.0)
    ratio = np.divide(theirs, ours, out=np.ones_like(theirs), where=used)
    # Half an octave off is as good as it gets; rounding towards zero there makes the sweeps come to an end.
    wanted = 0.5 * np.log2(ratio)
    found: np.ndarray = np.sign(wanted) * np.floor(np.abs(wanted) + 0.49)
    return found.clip(-_MOST_DOUBLINGS, _MOST_DOUBLINGS)


def _peaks(model: fb.Model, tensor: Any, axis: int) -> np.ndarray:
    values = np.moveaxis(np.abs(fb.constant_values(model, tensor).astype(np.float64)), axis, 0)
    rows: np.ndarray = values.reshape(len(values), -1)
    peaks: np.ndarray = rows.max(axis=1)
    return peaks


def _multiply(model: fb.Model, tensor: Any, scales: np.ndarray, axis: int) -> None:
    values = fb.constant_values(model, tensor)
    shape = [1] * values.ndim
    shape[axis] = scales.size
    model.buffers[tensor.buffer].data = np.frombuffer((values * scales.reshape(shape)).tobytes(), dtype=np.uint8)


def _equal(before: bytes, after: bytes, samples: Iterable[Mapping[str, np.ndarray]]) -> bool:
    """Whether two models give the same bits on all samples."""
    ours, theirs = Runner(after), Runner(before)
    for sample in samples:
        expected = theirs(sample)
        if not all(np.array_equal(value, expected[key], equal_nan=True) for key, value in ours(sample).items()):
            return False
    return True
