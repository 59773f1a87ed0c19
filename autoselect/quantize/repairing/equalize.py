"""Equalization: channels of one layer scaled up, and of the next scaled down, where nothing between can tell.

The method is that of Nagel et al. 2019 (arXiv:1906.04721, section 4.1): scales that make the weights of both layers
range equally far in each channel. Here they are powers of two. So the scaled float model computes the same bits as
before, which :func:`equalize` verifies, and the best scale is missed by a factor of at most the square root of two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.quantize.repairing.weighted_ops import SkipError, bias_of, is_weighted
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.operands import WEIGHTED
from autoselect.tflite.runner import Runner
from autoselect.tflite.schema_types import names_of_codes
from autoselect.tflite.tflite_file import TfliteFile

_HOMOGENEOUS = (schema.ActivationFunctionType.NONE, schema.ActivationFunctionType.RELU)
_RELU6 = schema.ActivationFunctionType.RELU6
_BETWEEN = {"RELU": schema.ActivationFunctionType.RELU, "RELU6": _RELU6, "PRELU": schema.ActivationFunctionType.NONE}
"""Ops of their own between two layers, and the fused activation that each is like here."""
_MOST_DOUBLINGS = 16
_FUSED = names_of_codes(schema.ActivationFunctionType)
_NO_CONSTANTS = "weights or bias are no float constants that it alone reads"
_EVEN = "its channels range like those of the next layer, or a clip is in the way"
_OTHER_BITS = "the scaled model gave other bits"
_SHARED = "a branch of the model reads the same weights or the same bias"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Equalized:
    """What became of a calibrated model.

    Attributes:
        file: The model; its ranges are those from before.
        pairs: Those that were scaled.
        reasons: Why a layer was not scaled against the next one, by op index; of every layer that no pair begins with.
    """

    file: TfliteFile
    pairs: tuple[Pair, ...]
    reasons: Mapping[int, str]


def find_pairs(model: fb.Model) -> tuple[list[Pair], dict[int, str]]:
    """Find the pairs of a float model's main subgraph, in graph order, and why other layers begin none, by op index."""
    graph = model.subgraphs[0]
    readers = Counter(int(i) for op in graph.operators for i in op.inputs)
    readers.update(int(i) for i in graph.outputs)
    pairs, reasons = [], {}
    for at, op in enumerate(graph.operators):
        if fb.op_type(model, op) in WEIGHTED:
            try:
                pairs.append(_pair(model, at, readers))
            except SkipError as skipped:
                reasons[at] = str(skipped)
    return pairs, reasons


def _pair(model: fb.Model, at: int, readers: Mapping[int, int]) -> Pair:
    """The pair that begins with a layer.

    Raises:
        SkipError: If there is none; with the reason.
    """
    ops = model.subgraphs[0].operators
    if not _is_own(model, ops[at], readers):
        raise SkipError(f"its {_NO_CONSTANTS}")
    pair = _follow(model, at, readers)
    if not _is_own(model, ops[pair.second], readers):
        raise SkipError(f"the next layer's {_NO_CONSTANTS}")
    if not _fits(model, ops[at], ops[pair.second]):
        raise SkipError("the next layer has no weights of its own for each channel")
    return pair


def _follow(model: fb.Model, first: int, readers: Mapping[int, int]) -> Pair:
    """From a layer through homogeneous activations to the next one."""
    graph, at, clipped = model.subgraphs[0], first, []
    reader = {int(i): place for place, op in enumerate(graph.operators) for i in op.inputs}
    while True:
        output, function = int(graph.operators[at].outputs[0]), _activation(model, graph.operators[at])
        if function not in (*_HOMOGENEOUS, _RELU6):
            raise SkipError(f"{_FUSED[function]} is fused into it")
        if readers[output] != 1 or output not in reader:
            raise SkipError("its output is an output of the model, or has several readers")
        clipped += [output] if function == _RELU6 else []
        at = reader[output]
        op, name = graph.operators[at], fb.op_type(model, graph.operators[at])
        is_layer = is_weighted(model, op)
        if not is_layer and name not in _BETWEEN:
            raise SkipError(f"{name} follows it")
        if int(op.inputs[WEIGHTED[name].activation if is_layer else 0]) != output:
            raise SkipError(f"{name} reads it as another operand than its input")
        if is_layer:
            return Pair(first=first, second=at, clipped=tuple(clipped))


def _activation(model: fb.Model, op: fb.Operator) -> int:
    """The fused activation of an op, or what stands for the op itself."""
    name = fb.op_type(model, op)
    return _BETWEEN[name] if name in _BETWEEN else int(op.builtinOptions.fusedActivationFunction)


def _is_own(model: fb.Model, op: fb.Operator, readers: Mapping[int, int]) -> bool:
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


def _fits(model: fb.Model, first: fb.Operator, second: fb.Operator) -> bool:
    """Channels that the one layer writes are those that the other reads, each with weights of its own."""
    activation = int(second.inputs[WEIGHTED[fb.op_type(model, second)].activation])
    channels = fb.shape_of(model.subgraphs[0].tensors[first.outputs[0]])[-1]
    weights = fb.shape_of(model.subgraphs[0].tensors[second.inputs[1]])
    same = fb.shape_of(model.subgraphs[0].tensors[activation])[-1] == channels
    return bool(same and weights[-1] == channels)


def equalize(calibrated: TfliteFile, samples: Callable[[], Iterable[Mapping[str, np.ndarray]]]) -> Equalized:
    """Equalize every pair of a calibrated model.

    A RELU6 stays one. A channel in which it clips on the samples is left alone, and no other is scaled so far up that
    it would. If an output of the scaled model differs in a single bit, the model stays as it was.

    Args:
        calibrated: The calibrated model.
        samples: Gives the inputs by key, anew at each call; the outputs are compared on them.
    """
    model = calibrated.copied()
    pairs, reasons = find_pairs(model)
    peaks = channel_peaks(calibrated.content, samples(), {i for pair in pairs for i in pair.clipped})
    scaled = _scale(model, pairs, peaks)
    reasons |= {pair.first: _EVEN for pair in pairs if pair not in scaled}
    if not scaled:
        return Equalized(file=calibrated, pairs=(), reasons=reasons)
    if _are_read_elsewhere(model, scaled):
        return unchanged(calibrated, reasons, scaled, _SHARED)
    after = TfliteFile(model=model)
    if not _equal(calibrated.content, after.content, samples()):
        return unchanged(calibrated, reasons, scaled, _OTHER_BITS)
    return Equalized(file=after, pairs=tuple(scaled), reasons=reasons)


def _are_read_elsewhere(model: fb.Model, pairs: Iterable[Pair]) -> bool:
    """Whether constants of pairs lie in buffers that another subgraph reads, which the samples may never run."""
    main, *others = model.subgraphs
    elsewhere = {tensor.buffer for graph in others for tensor in graph.tensors}
    ops = (main.operators[at] for pair in pairs for at in (pair.first, pair.second))
    constants = (main.tensors[i] for op in ops for i in fb.indices(op.inputs) if i >= 0)
    return any(t.buffer in elsewhere for t in constants if fb.is_constant(model, t))


def unchanged(calibrated: TfliteFile, reasons: Mapping[int, str], pairs: Iterable[Pair], why: str) -> Equalized:
    """The model as it was, because pairs could not be scaled after all."""
    return Equalized(file=calibrated, pairs=(), reasons={**reasons, **{pair.first: why for pair in pairs}})


def channel_peaks(
    content: bytes, samples: Iterable[Mapping[str, np.ndarray]], tensors: Iterable[int]
) -> dict[int, np.ndarray]:
    """The largest value of each channel of some tensors over samples, shape (channels,)."""
    peaks: dict[int, np.ndarray] = {}
    if not (chosen := sorted(tensors)):
        return peaks
    for index, value in Runner(content, readable=chosen).watch(samples, chosen):
        peak = value.reshape(-1, value.shape[-1]).max(axis=0).astype(np.float64)
        peaks[index] = np.maximum(peaks[index], peak) if index in peaks else peak
    return peaks


def tensors_between(model: fb.Model, pairs: Iterable[Pair]) -> set[int]:
    """The tensors that lie between the layers of pairs: those whose ranges equalization changes."""
    graph = model.subgraphs[0]
    reader = {int(i): at for at, op in enumerate(graph.operators) for i in op.inputs}
    between = set()
    for pair in pairs:
        at = pair.first
        while at != pair.second:
            tensor = int(graph.operators[at].outputs[0])
            between.add(tensor)
            at = reader[tensor]
    return between


def tensors_that_may_change(model: fb.Model) -> set[int]:
    """The tensors between layers that could be a pair: all others keep their values."""
    return tensors_between(model, find_pairs(model)[0])


def _scale(model: fb.Model, pairs: Sequence[Pair], peaks: dict[int, np.ndarray]) -> list[Pair]:
    """Scale pair after pair until nothing changes, and the peaks with them; gives those that were."""
    scaled = set()
    for _ in range(20):
        moved = {pair for pair in pairs if _scale_pair(model, pair, peaks)}
        scaled |= moved
        if not moved:
            break
    return [pair for pair in pairs if pair in scaled]


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
    if (bias := bias_of(first, kind)) >= 0:
        _multiply(model, graph.tensors[bias], scales, 0)
    return True


def _unclipped(doublings: np.ndarray, peaks: np.ndarray) -> np.ndarray:
    """As many doublings as leave a RELU6 unreached; none where it is reached."""
    clip = 6.0
    room = np.ceil(np.log2(clip / np.maximum(peaks, 2.0**-_MOST_DOUBLINGS))) - 1.0
    return np.asarray(np.where(peaks < clip, np.minimum(doublings, np.maximum(room, 0.0)), 0.0))


def _doublings(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """How often to double each channel of the first layer; none for a channel that either does not use."""
    used = (ours > 0.0) & (theirs > 0.0)
    ratio = np.divide(theirs, ours, out=np.ones_like(theirs), where=used)
    # Half an octave off is as good as it gets; rounding towards zero there makes the sweeps come to an end.
    wanted = 0.5 * np.log2(ratio)
    doublings: np.ndarray = np.sign(wanted) * np.floor(np.abs(wanted) + 0.49)
    return doublings.clip(-_MOST_DOUBLINGS, _MOST_DOUBLINGS)


def _peaks(model: fb.Model, tensor: fb.Tensor, axis: int) -> np.ndarray:
    values = np.moveaxis(np.abs(fb.constant_values(model, tensor).astype(np.float64)), axis, 0)
    rows: np.ndarray = values.reshape(len(values), -1)
    return np.asarray(rows.max(axis=1))


def _multiply(model: fb.Model, tensor: fb.Tensor, scales: np.ndarray, axis: int) -> None:
    values = fb.constant_values(model, tensor)
    scaled = values * fb.along(scales, axis, values.ndim)
    model.buffers[tensor.buffer].data = np.frombuffer(scaled.tobytes(), dtype=np.uint8)


def _equal(before: bytes, after: bytes, samples: Iterable[Mapping[str, np.ndarray]]) -> bool:
    """Whether two models give the same bits on all samples."""
    ours, theirs = Runner(after), Runner(before)
    for sample in samples:
        expected = theirs(sample)
        if not all(np.array_equal(value, expected[key], equal_nan=True) for key, value in ours(sample).items()):
            return False
    return True
