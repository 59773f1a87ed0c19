"""Advice from data: how the inputs are scaled, and whether calibration saw enough of what the model will see."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autoselect.diagnosis.sources import (
    KERAS_PREPROCESSING,
    LECUN,
    OWN,
    POST_TRAINING_GUIDE,
    WU,
)
from autoselect.domain.findings import ActivationStatistics, Advice, Findings, InputStatistics
from autoselect.domain.graph import Graph
from autoselect.domain.words import counted, some
from autoselect.tflite.operands import FIXED_SCALE_OPS

OFF_CENTRE = 1.0
"""Distance of a channel's mean from 0, in its own standard deviations. Pixels in 0..1 lie at about 1.7."""
LARGEST_PEAK = 6.0
"""Largest magnitude: standardised values stay within 6 deviations, normalised ones within 1."""
SMALLEST_PEAK = 0.1
"""Below, a channel beside another one at -1..1 would have less than a tenth of the levels."""


def input_not_normalised(findings: Findings) -> Advice | None:
    """Inputs that are not centred, or whose channels are not near -1..1.

    If the model itself shifts and scales what it gets, these are only inputs with channels of few steps: all others
    lose no more to 8 bits than they would after normalising.
    """
    unfit_inputs = [(i, bad) for i in findings.inputs if (bad := _unfit_channels(i))]
    if _normalises_itself(findings.graph):
        unfit_inputs = [(i, bad) for i, bad in unfit_inputs if _few_steps(i)]
    if not unfit_inputs:
        return None
    return Advice(
        rule="input_not_normalised",
        title="The input is not normalised",
        subjects=tuple(i.name for i, _ in unfit_inputs),
        evidence=" ".join(
            f"{i.name!r}: {some([_channel_text(i, c) for c in bad])}.{_few_steps(i)}" for i, bad in unfit_inputs
        ),
        threshold=f"mean of a channel within {OFF_CENTRE:g} standard deviation of 0, largest magnitude "
        f"{SMALLEST_PEAK:g} to {LARGEST_PEAK:g}",
        source=f"{KERAS_PREPROCESSING}; {LECUN}; {OWN}",
        action=" ".join(f"{i.name!r}: {_remedy(i)}." for i, _ in unfit_inputs)
        + " Train on inputs prepared so, and prepare calibration data and the application's inputs alike. If the "
        "model is trained already and normalises inside, cut that part off and do it before the model, or leave the "
        "first nodes out of integers.",
    )


def _normalises_itself(graph: Graph) -> bool:
    """Whether all that the model does with its inputs first is arithmetic by element, with constants."""
    producers, readers = graph.producers(), graph.consumers()
    first_ops = [graph.ops[i] for tensor in graph.inputs for i in readers.get(tensor, ())]
    return all(
        op.op_type in ("ADD", "DIV", "MUL", "SUB") and not any(tensor in producers for tensor in op.inputs)
        for op in first_ops
    )


def _unfit_channels(figures: InputStatistics) -> list[int]:
    """Channels off centre or off scale; constant ones and those with NaN are not judged."""
    unfit = []
    for channel, (mean, deviation) in enumerate(zip(figures.means, figures.deviations, strict=True)):
        peak = max(abs(figures.minima[channel]), abs(figures.maxima[channel]))
        if not deviation > 0.0 or not math.isfinite(peak):
            continue
        if abs(mean) > OFF_CENTRE * deviation or not SMALLEST_PEAK <= peak <= LARGEST_PEAK:
            unfit.append(channel)
    return unfit


def _channel_text(figures: InputStatistics, channel: int) -> str:
    return (
        f"channel {channel} mean {figures.means[channel]:.4g}, standard deviation {figures.deviations[channel]:.4g}, "
        f"range {figures.minima[channel]:.4g} to {figures.maxima[channel]:.4g}"
    )


def _few_steps(figures: InputStatistics) -> str:
    """The channels that int8 leaves few steps, in a sentence; channels with NaN are not judged."""
    pairs = enumerate(zip(figures.minima, figures.maxima, strict=True))
    ranges = {c: (low, high) for c, (low, high) in pairs if low < high and math.isfinite(high - low)}
    width = max([0.0, *(high for _, high in ranges.values())]) - min([0.0, *(low for low, _ in ranges.values())])
    steps = {c: 255.0 * (high - low) / width for c, (low, high) in ranges.items()}
    # A tenth of the int8 steps of an input, which has one scale for all channels.
    few = [f"channel {c} {count:.2g}" for c, count in steps.items() if count < 25.5]
    return f" One int8 scale for all channels leaves some few of its 255 steps: {some(few)}." if few else ""


def _remedy(figures: InputStatistics) -> str:
    """One constant where the channels are alike, else a mean and a deviation for each."""
    channels_shown = 16
    used = [c for c, d in enumerate(figures.deviations) if d > 0.0]
    low, high = min(figures.minima[c] for c in used), max(figures.maxima[c] for c in used)
    # Channels whose ranges differ by less than this factor are normalised by one constant.
    if all(high - low <= 2.0 * (figures.maxima[c] - figures.minima[c]) for c in used):
        half = (high - low) / 2.0
        offset = (high + low) / (high - low)
        shift = f" - {offset:.4g}" if offset >= 0.0 else f" + {-offset:.4g}"
        return f"x / {half:.4g}{shift} takes these data to -1..1"
    means = some([f"{figures.means[c]:.4g}" for c in used], channels_shown)
    deviations = some([f"{figures.deviations[c]:.4g}" for c in used], channels_shown)
    return f"(x - mean) / deviation by channel, means {means}, deviations {deviations}"


def small_calibration(findings: Findings) -> Advice | None:
    """Too few calibration samples."""
    fewest_calibration_samples = 100
    if findings.calibration_samples >= fewest_calibration_samples:
        return None
    return Advice(
        rule="small_calibration",
        title="Few calibration samples",
        subjects=(),
        evidence=f"{counted(findings.calibration_samples, 'calibration sample')}.",
        threshold=f"at least {fewest_calibration_samples}",
        source=f"{POST_TRAINING_GUIDE}: around 100 to 500 samples",
        action="Calibrate on more samples, drawn at random from the training or validation data: every class, and the "
        "extremes that occur in use.",
    )


def calibration_unlike_data(findings: Findings) -> Advice | None:
    """Debug data that leave the calibrated ranges; outputs whose int8 scale is fixed anyway are not judged."""
    # What calibration to the 99.9th percentile would clip on purpose.
    largest_clipped_share = 1e-3
    # Width of the range on calibration and debug data together, over that on calibration alone.
    largest_range_growth = 1.1
    if not findings.debug_data_given:
        return None
    op_types = findings.layers.op_types
    judged = {n: a for n, a in findings.activations.items() if op_types.get(n) not in FIXED_SCALE_OPS}
    overruns = [
        (name, a)
        for name, a in judged.items()
        if a.range_growth > largest_range_growth or a.clipped_share > largest_clipped_share
    ]
    if not overruns:
        return None
    overruns.sort(key=lambda pair: _severity(pair[1]), reverse=True)
    return Advice(
        rule="calibration_unlike_data",
        title="The data leave the calibrated ranges",
        subjects=tuple(name for name, _ in overruns),
        evidence=f"{counted(len(overruns), 'node')}: {some(_growth_texts(overruns))}.",
        threshold=f"range growth above {largest_range_growth:g}, or more than {largest_clipped_share:.1%} of the "
        "values clipped",
        source=f"Percentile calibration: {WU}; {OWN}",
        action="Values beyond the calibrated range are cut off. Add samples like these to the calibration data; if "
        "they are rare errors of measurement, keep them out of both.",
    )


def _severity(figures: ActivationStatistics) -> tuple[float, float]:
    clipped, growth = figures.clipped_share, figures.range_growth
    return (-1.0 if math.isnan(clipped) else clipped, -1.0 if math.isnan(growth) else growth)


def _growth_texts(overruns: Sequence[tuple[str, ActivationStatistics]]) -> list[str]:
    return [
        f"{name!r} {a.minimum:.4g} to {a.maximum:.4g} against {a.calibrated_minimum:.4g} to {a.calibrated_maximum:.4g} "
        f"in calibration, {'unknown' if math.isnan(a.clipped_share) else f'{a.clipped_share:.2%}'} clipped"
        for name, a in overruns
    ]
