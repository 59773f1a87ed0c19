"""What flows through the float model, against what calibration saw and integers can hold; passes no judgement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from autoselect.diagnosis.moments import OUTLIER_DEVIATIONS, Distances, Moments
from autoselect.domain.findings import ActivationStatistics, InputStatistics
from autoselect.domain.graph import Graph
from autoselect.domain.layers import Node
from autoselect.domain.tensors import TensorSpec
from autoselect.domain.units import MOVERS
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.ranges import range_of
from autoselect.tflite.runner import Runner
from autoselect.tflite.tflite_file import TfliteFile


def activation_statistics(
    calibrated: TfliteFile,
    nodes: Sequence[Node],
    samples: Iterable[Mapping[str, np.ndarray]],
    limits: Mapping[str, tuple[float, float]],
) -> dict[str, ActivationStatistics]:
    """Run the float model once over the samples and describe every node's float outputs.

    Nothing is kept of a sample but sums and counts, so memory does not grow with their number. The mean and the
    deviation that outliers are held against are those of all samples; the border at 6 deviations is met to
    about 0.1 deviations, as values are counted in bins by their distance from the mean of the first ones.

    The outputs of a node with several (a SPLIT's share one scale) count as one population.

    Args:
        calibrated: The calibrated float model; its tensors hold the calibrated minimum and maximum.
        nodes: ``node.index`` is the op's index in the float model.
        samples: Inputs by key, batch 1; each is run once, as in calibration.
        limits: By node name, the lowest and highest value that the node's int8 output can hold. A value
            counts as clipped where it lies beyond by more than half a step, which rounding would not have
            bridged. A node without limits has ``clipped_share`` NaN.

    Returns:
        By node name, in the order of ``nodes``; nodes without a float output or without values are left out.
    """
    graph = calibrated.model.subgraphs[0]
    observers = {n.name: o for n in nodes if (o := _Observer(graph, n, limits.get(n.name))).tensors}
    owners = {index: observer for observer in observers.values() for index in observer.tensors}
    for index, values in Runner(calibrated.content, preserve_all_tensors=True).watch(samples, owners):
        owners[index].add(values)
    return {name: figures for name, observer in observers.items() if (figures := observer.statistics()) is not None}


class _Observer:
    """The float outputs of one node: their tensors, what calibration saw, and what has been seen since."""

    def __init__(self, graph: fb.SubGraph, node: Node, limits: tuple[float, float] | None) -> None:
        outputs = [int(i) for i in graph.operators[node.index].outputs]
        self.tensors = [i for i in outputs if fb.TENSOR_DTYPES[graph.tensors[i].type] == "float32"]
        self._calibrated = [range_of(graph.tensors[i]) or (math.nan, math.nan) for i in self.tensors]
        self._limits = limits
        self._waiting: list[np.ndarray] = []
        self._waiting_values = 0
        self._moments = Moments()
        self._clipped = 0
        self._distances: Distances | None = None

    def add(self, values: np.ndarray) -> None:
        self._waiting.append(values.reshape(-1))
        self._waiting_values += values.size
        # Values that are taken in together: the fixed cost of taking in a piece is that of some thousands of values.
        if self._waiting_values >= 1 << 15:
            self._take_in()

    def _take_in(self) -> None:
        if self._waiting_values == 0:
            return
        values = np.concatenate(self._waiting)
        self._waiting, self._waiting_values = [], 0
        self._moments.add(values[:, np.newaxis])
        if self._distances is None:
            self._distances = Distances(float(self._moments.mean[0]))
        self._distances.add(values)
        if self._limits is not None:
            low, high = self._limits
            half_step = (high - low) / 255 / 2
            self._clipped += int(np.count_nonzero((values < low - half_step) | (values > high + half_step)))

    def statistics(self) -> ActivationStatistics | None:
        """What was seen; None where there were no values."""
        self._take_in()
        moments = self._moments
        if self._distances is None:
            return None
        reach = OUTLIER_DEVIATIONS * float(moments.deviation[0])
        return ActivationStatistics(
            minimum=float(moments.minimum[0]),
            maximum=float(moments.maximum[0]),
            calibrated_minimum=min(low for low, _ in self._calibrated),
            calibrated_maximum=max(high for _, high in self._calibrated),
            kurtosis=float(moments.kurtosis[0]),
            outlier_share=self._distances.share_beyond(float(moments.mean[0]), reach),
            clipped_share=math.nan if self._limits is None else self._clipped / moments.count,
        )


def input_statistics(
    samples: Iterable[Mapping[str, np.ndarray]], specs: Sequence[TensorSpec]
) -> tuple[InputStatistics, ...]:
    """Describe the model's float inputs by channel.

    Args:
        samples: Inputs by key (or tensor name), batch 1.
        specs: The model's inputs. Channels are the last axis; an input of rank below 3, its batch axis
            counted, has one channel. Integer inputs are left out.

    Returns:
        In the order of ``specs``; inputs without values are left out.
    """
    specs = [s for s in specs if s.dtype.kind == "f"]
    columns = {s.key: s.shape[-1] if len(s.shape) >= 3 else 1 for s in specs}
    moments = {s.key: Moments(columns[s.key]) for s in specs}
    for sample in samples:
        for spec in specs:
            values = sample.get(spec.key, sample.get(spec.name))
            if values is not None:
                moments[spec.key].add(np.asarray(values).reshape(-1, columns[spec.key]))
    return tuple(
        InputStatistics(
            name=key,
            means=_floats(input_moments.mean),
            deviations=_floats(input_moments.deviation),
            minima=_floats(input_moments.minimum),
            maxima=_floats(input_moments.maximum),
        )
        for key, input_moments in moments.items()
        if input_moments.count
    )


def cast_to_integers(graph: Graph) -> frozenset[str]:
    """Names of the float inputs that the model uses as whole numbers only, such as indices into an embedding.

    Each op that reads such an input casts it to a type other than float, or only moves its values (a RESHAPE, say) to
    ops that do.
    """
    consumers = graph.consumers()

    def is_number(tensor: int) -> bool:
        readers = [graph.ops[i] for i in consumers.get(tensor, ())]
        return bool(readers) and all(
            not any(graph.tensors[t].dtype.startswith("float") for t in op.outputs)
            if op.op_type == "CAST"
            else op.op_type in MOVERS and all(map(is_number, op.outputs))
            for op in readers
        )

    return frozenset(graph.tensors[i].name for i in graph.inputs if is_number(i))


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(v) for v in values)
