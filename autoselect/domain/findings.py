"""What a diagnosis finds out about a model: plain values, without how they were measured or drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoselect.domain.graph import Graph
from autoselect.domain.layers import LayerTable
from autoselect.domain.targets import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightStatistics:
    """The weights of one node, in float, and how they were quantized.

    Attributes:
        minima: Smallest float weight of each output channel.
        maxima: Largest float weight of each output channel.
        kurtosis: Excess kurtosis of all weights (0 for a normal distribution); NaN where all are equal.
        outlier_share: Share of weights farther than 6 standard deviations from the mean, 0..1.
        scales: Steps of the quantized weights, one a channel, or one for the tensor; empty where not quantized.
        zero_points: Levels that stand for 0, as many as ``scales``.
    """

    minima: tuple[float, ...]
    maxima: tuple[float, ...]
    kurtosis: float
    outlier_share: float
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]

    @property
    def channel_range_ratio(self) -> float:
        """Largest over smallest channel magnitude; NaN without any.

        Channels below a millionth of the largest are dead, as training leaves them, and left out.
        """
        sizes = [max(-low, high, 0.0) for low, high in zip(self.minima, self.maxima, strict=True)]
        largest = max(sizes, default=0.0)
        # Magnitude of a channel, as a share of the largest, below which nothing of it reaches the output.
        return largest / min(s for s in sizes if s >= 1e-6 * largest) if largest > 0.0 else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationStatistics:
    """The float output of one node on the debug data, against what calibration saw.

    Attributes:
        minimum: Smallest value on the debug data.
        maximum: Largest value on the debug data.
        calibrated_minimum: Smallest value during calibration.
        calibrated_maximum: Largest value during calibration.
        kurtosis: Excess kurtosis over all samples; NaN where all values are equal.
        outlier_share: Share of values farther than 6 standard deviations from the mean, 0..1.
        clipped_share: Share of values outside what the quantized output can hold, 0..1.
    """

    minimum: float
    maximum: float
    calibrated_minimum: float
    calibrated_maximum: float
    kurtosis: float
    outlier_share: float
    clipped_share: float

    @property
    def range_growth(self) -> float:
        """Width of the range on the debug data and calibration together, over that of calibration; NaN for width 0."""
        calibrated = self.calibrated_maximum - self.calibrated_minimum
        both = max(self.maximum, self.calibrated_maximum) - min(self.minimum, self.calibrated_minimum)
        return both / calibrated if calibrated > 0.0 else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class InputStatistics:
    """One input of the model on the debug data, by channel (last axis; one channel for inputs of rank below 3)."""

    name: str
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    minima: tuple[float, ...]
    maxima: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """What one node does to the model's outputs.

    Both figures are the power of the outputs' error over the power of the float outputs, mean over samples;
    0 is no divergence, 1 is an error as strong as the signal.

    Attributes:
        leave_one_in: With only this node quantized to integers.
        leave_one_out: With all nodes quantized but this one, which is float.
    """

    leave_one_in: float
    leave_one_out: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Travel:
    """The error accumulated from the input to one node's output, on the whole-model debug model.

    Attributes:
        mean_squared_error: Of the node's quantized output against the float model's, mean over samples.
        rmse_per_scale: Its root, in steps of the output.
        nsr: Error power over signal power (0 is exact), mean over samples.
        growth: ``nsr`` over the largest ``nsr`` of the nodes that feed this one; NaN for the first nodes.
    """

    mean_squared_error: float
    rmse_per_scale: float
    nsr: float
    growth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorParts:
    """What each part of quantization alone does to the output of one node, the node's inputs being the float model's.

    Powers of the error over the power of the float output; NaN where there is no such part.

    Attributes:
        weights: With rounded weights, and activations and all else in float.
        shift: What of that is one value for each channel, which a bias takes away.
        activations: With inputs, output and constants but the weights rounded, and float weights.
        narrowed: The same with the best narrower range of the output; equal where none is better.
    """

    weights: float
    shift: float
    activations: float
    narrowed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCloseness:
    """How close a group of an output's channels is to the float model's, on a few samples.

    Attributes:
        output: Key of the output.
        channels: The group in words.
        sqnr_db: Mean of decibels over the samples in which the group is not all 0.
        whole_db: Likewise of the whole output.
    """

    output: str
    channels: str
    sqnr_db: float
    whole_db: float

    def __str__(self) -> str:
        """Such as ``output 'a' is 38.7 dB from float's as a whole, but its channels 4 to 6, ...: 0.4 dB``."""
        return (
            f"output {self.output!r} is {self.whole_db:.1f} dB from float's as a whole, but its {self.channels}: "
            f"{self.sqnr_db:.1f} dB"
        )


OWN_SCALE = (
    "Give these channels an output of their own, or let the nodes at the end stay float (--keep-float), or have 16 "
    "bits (--int16) if 256 times the steps are enough. Outputs of the model need a type as fine (--io-type)."
)
"""What helps channels that share a scale with far larger ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All that the advice is given from; figures by node name.

    Attributes:
        layers: Layer statistics; ``node.index`` is the op's index in ``graph``.
        graph: The float model.
        kinds: What the diagnosed model made of each op of ``graph``, by its index: ``integer``, ``hybrid``, ``float``.
        weights: Of the nodes that have weights.
        activations: Of the nodes with a float output.
        inputs: Of the model.
        calibration_samples: Count of calibration samples.
        debug_samples: Count of samples that the figures were measured on.
        debug_data_given: False where the debug data are calibration samples.
        per_channel: Whether weights were to be quantized per channel.
        target: What the advice is for.
        ablations: Where they were measured.
        divergence: Of the outputs with all nodes quantized, in the unit of the ablations; NaN where not measured.
        travel: Where the whole model was verified.
        parts: Of the nodes in 8-bit integers.
        forms: Which forms each op has, by index, see
            :attr:`autoselect.quantize.building.blueprint.Blueprint.forms`.
        failing: Nodes that were left out because their integer kernels fail on a sample.
        groups: Of channels, of the outputs whose channels have unlike ranges.
    """

    layers: LayerTable
    graph: Graph
    kinds: Mapping[int, str]
    weights: Mapping[str, WeightStatistics]
    activations: Mapping[str, ActivationStatistics]
    inputs: tuple[InputStatistics, ...]
    calibration_samples: int
    debug_samples: int
    debug_data_given: bool
    per_channel: bool
    target: Target
    ablations: Mapping[str, Ablation] = field(default_factory=dict)
    divergence: float = math.nan
    travel: Mapping[str, Travel] = field(default_factory=dict)
    parts: Mapping[str, ErrorParts] = field(default_factory=dict)
    forms: Mapping[int, Mapping[str, str | None]] = field(default_factory=dict)
    failing: frozenset[str] = frozenset()
    groups: Sequence[GroupCloseness] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One piece of advice.

    Attributes:
        rule: Its name, for example ``suspicious_error``.
        title: What is wrong, in a few words.
        subjects: Names of the nodes or inputs concerned, worst first; empty for the model as a whole.
        evidence: The figures that triggered it.
        threshold: What they are held against.
        source: Where the threshold comes from.
        action: What to do.
    """

    rule: str
    title: str
    subjects: tuple[str, ...]
    evidence: str
    threshold: str
    source: str
    action: str
