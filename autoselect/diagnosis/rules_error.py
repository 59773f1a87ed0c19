"""Advice from measured errors: which nodes are suspicious, and when leaving nodes out is no longer selective."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from autoselect.diagnosis.sources import DEBUGGER_GUIDE, KRISHNAMOORTHI, NAGEL, OWN
from autoselect.domain.findings import OWN_SCALE, Advice, Findings
from autoselect.domain.layers import (
    HEALTHY_RMSE_PER_SCALE,
    SUSPICIOUS_RMSE_PER_SCALE,
    LayerStatistics,
    Node,
)
from autoselect.domain.words import counted, some
from autoselect.tflite.operands import FIXED_SCALE_OPS

ROUNDING_HALVED = HEALTHY_RMSE_PER_SCALE / math.sqrt(2.0)
"""rmse/scale (0.204) at which half of the error power that rounding spread-out values gives is missing."""
LOST_SIGNAL_SQNR_DB = 20.0
"""Below, the error holds more than a hundredth of the signal's power. 8 bits over 12 standard deviations give 37 dB."""
WIDE_RANGE = 255.0
"""Output range at which one int8 step is 1."""
SPREAD_NODES = 0.5
"""Share of the weight layers (or of their multiply-accumulates) beyond which leaving them out is not selective."""
SPREAD_DAMAGE = 0.8
"""Share of the damage that these nodes are looked for to explain."""
DAMAGED_DIVERGENCE = 0.01
"""Error power over signal power of the outputs below which there is no damage to speak of (20 dB)."""
MIN_LAYERS = 3
"""With fewer weight layers concerned, leaving them out is still selective, whatever their share."""

_Measured = tuple[Node, LayerStatistics]


def _measured(findings: Findings) -> Iterator[_Measured]:
    """Nodes whose rmse/scale is a number."""
    for node, figures in zip(findings.layers.nodes, findings.layers.statistics, strict=True):
        if figures is not None and not math.isnan(figures.rmse_per_scale):
            yield node, figures


def _suspicious(findings: Findings) -> list[_Measured]:
    """Nodes above the guide's limit, worst first."""
    suspects = [(n, s) for n, s in _measured(findings) if s.rmse_per_scale > SUSPICIOUS_RMSE_PER_SCALE]
    return sorted(suspects, key=lambda pair: -pair[1].rmse_per_scale)


def _error_text(node: Node, figures: LayerStatistics) -> str:
    return f"{node.name!r} ({node.op_type}) {figures.rmse_per_scale:.3g}{'' if figures.verified else ' (accumulated)'}"


def suspicious_error(findings: Findings) -> Advice | None:
    """Nodes whose rmse/scale is above the Quantization Debugger guide's limit."""
    nodes = _suspicious(findings)
    if not nodes:
        return None
    accumulated = any(not s.verified for _, s in nodes)
    note = ". Accumulated: the error from the input on, not this node's own" if accumulated else ""
    return Advice(
        rule="suspicious_error",
        title="Nodes with a large quantization error",
        subjects=tuple(n.name for n, _ in nodes),
        evidence=f"rmse/scale of {counted(len(nodes), 'node')}: {some([_error_text(n, s) for n, s in nodes])}{note}.",
        threshold=f"rmse/scale above {SUSPICIOUS_RMSE_PER_SCALE:g}; rounding alone gives {HEALTHY_RMSE_PER_SCALE:.3f}",
        source=DEBUGGER_GUIDE,
        action=_what_to_deny(findings, nodes),
    )


def _what_to_deny(findings: Findings, suspects: Sequence[_Measured]) -> str:
    """The suspects, without those that ablation finds harmless."""
    # A node is harmful if leaving it out of integers takes this share of the divergence away, or if it gives it
    # alone.
    harmful_share = 0.1
    effects = _effects(findings, [node.name for node, _ in suspects])
    harmful = [f"{n!r} ({e:.0%} of the divergence)" for n, e in effects.items() if e >= harmful_share]
    harmless = [repr(n) for n, e in effects.items() if e < harmful_share]
    denied = [node for node, _ in suspects if repr(node.name) not in harmless]
    parts = []
    if denied:
        parts.append(f"Put {_denylist(denied, is_all=not harmless)} into denylisted_nodes, worst first.")
    if harmful:
        parts.append(f"Ablation finds harmful: {some(harmful)}.")
    if harmless:
        parts.append(f"Ablation finds harmless, so leave in integers: {some(harmless)}.")
    if not effects:
        parts.append("A node's error need not reach the outputs: --ablate measures what each node does to them.")
    return " ".join(parts)


def _denylist(nodes: Sequence[Node], *, is_all: bool) -> str:
    """A few names, or where to find them all."""
    if len(nodes) > 3:
        return (
            f"these {len(nodes)} nodes (the subjects)" if is_all else f"the {len(nodes)} subjects that are not harmless"
        )
    return ", ".join(repr(n.name) for n in nodes)


def _effects(findings: Findings, suspects: Sequence[str]) -> dict[str, float]:
    """Share of the divergence that leaving each suspect out takes away or that it gives alone, the larger.

    Empty without ablation or damage.
    """
    whole = findings.divergence
    effects: dict[str, float] = {}
    for name in suspects if whole > 0.0 else ():
        if (ablation := findings.ablations.get(name)) is not None:
            shares = (1.0 - ablation.leave_one_out / whole, ablation.leave_one_in / whole)
            effects[name] = max((s for s in shares if not math.isnan(s)), default=0.0)
    return effects


def unhealthy_error(findings: Findings) -> Advice | None:
    """Nodes whose own error is far from rounding's, though the guide does not suspect them."""
    # The most that rounding alone can be wrong by. Rounding with well-spread int8 weights, which double its error
    # power, gives about 0.41; above 0.5, two thirds of the error power are not rounding's.
    unhealthy_rmse_per_scale = 0.5
    nodes = [(n, s) for n, s in _measured(findings) if s.verified]
    high = [(n, s) for n, s in nodes if unhealthy_rmse_per_scale < s.rmse_per_scale <= SUSPICIOUS_RMSE_PER_SCALE]
    low = [(n, s) for n, s in nodes if n.op_type not in FIXED_SCALE_OPS and _loses_signal(s)]
    if not high and not low:
        return None
    high.sort(key=lambda pair: -pair[1].rmse_per_scale)
    low.sort(key=lambda pair: pair[1].sqnr_db)
    return Advice(
        rule="unhealthy_error",
        title="Nodes whose error is not that of rounding",
        subjects=tuple(n.name for n, _ in (*high, *low)),
        evidence=_unhealthy_text(high, low),
        threshold=f"rmse/scale from {unhealthy_rmse_per_scale:g} (half a step, the most that rounding does) to "
        f"{SUSPICIOUS_RMSE_PER_SCALE:g}, or below {ROUNDING_HALVED:.3f} (half of rounding's error power) with a "
        f"signal-to-quantization-noise ratio below {LOST_SIGNAL_SQNR_DB:g} dB",
        source=f"1/sqrt(12) = {HEALTHY_RMSE_PER_SCALE:.3f}: {DEBUGGER_GUIDE}; the band: {OWN}",
        action=_unhealthy_action(bool(high), bool(low), weighted=any(n.name in findings.weights for n, _ in high)),
    )


def _loses_signal(figures: LayerStatistics) -> bool:
    """Little error and little signal: most values lie within one step of 0."""
    return figures.rmse_per_scale < ROUNDING_HALVED and figures.sqnr_db < LOST_SIGNAL_SQNR_DB


def _unhealthy_text(high: Sequence[_Measured], low: Sequence[_Measured]) -> str:
    parts = [f"Above: {some([_error_text(n, s) for n, s in high])}."] if high else []
    if low:
        parts.append(f"Below: {some([f'{_error_text(n, s)} at {s.sqnr_db:.1f} dB' for n, s in low])}.")
    return " ".join(parts)


def _unhealthy_action(high: bool, low: bool, *, weighted: bool) -> str:
    parts = []
    if high:
        cause = "weights or arithmetic add" if weighted else "arithmetic adds"
        look = "look at the weights by channel of a node that has some, and " if weighted else ""
        parts.append(
            f"Above the band, {cause} to the rounding: {look}leave the node out of integers if accuracy asks for more "
            "than the suspicious nodes."
        )
    if low:
        parts.append(
            "Below it, the output's values are smaller than one step, because few large ones set the range: calibrate "
            "without these if they do not occur in use, clip them in training (for example by RELU6), or leave the "
            "node out. Nodes below the band with a healthy ratio are not named: ops that only move values have little "
            "to round, and zeros after a RELU are exact."
        )
    return " ".join(parts)


def wide_range(findings: Findings) -> Advice | None:
    """Nodes whose int8 output has steps above 1."""
    wide_nodes = [(n, s) for n, s in _measured(findings) if s.range > WIDE_RANGE]
    if not wide_nodes:
        return None
    wide_nodes.sort(key=lambda pair: -pair[1].range)
    texts = [f"{n.name!r} ({n.op_type}) range {s.range:.4g}, step {s.scale:.3g}" for n, s in wide_nodes]
    return Advice(
        rule="wide_range",
        title="Outputs with a wide range",
        subjects=tuple(n.name for n, _ in wide_nodes),
        evidence=f"{counted(len(wide_nodes), 'node')}: {some(texts)}.",
        threshold=f"range (255 x scale) above {WIDE_RANGE:g}, where one int8 step is more than 1",
        source=f"{DEBUGGER_GUIDE}, which looks at the range without a limit; {OWN}",
        action="Differences below half a step vanish. Where they matter: normalize the model's inputs if the wide "
        "nodes start there, put batch normalization behind the convolution that widens, or a bounded activation "
        "(RELU6); without retraining, leave these nodes out of integers.",
    )


def unlike_channels(findings: Findings) -> Advice | None:
    """Channels of an output that lose their signal because far larger ones share their scale."""
    lost = [group for group in findings.groups if group.sqnr_db < min(LOST_SIGNAL_SQNR_DB, group.whole_db)]
    groups = sorted(lost, key=lambda group: group.sqnr_db)
    if not groups:
        return None
    return Advice(
        rule="unlike_channels",
        title="Channels that share a scale with far larger ones",
        subjects=tuple(dict.fromkeys(group.output for group in groups)),
        evidence=f"In the integer model {some([str(group) for group in groups])}.",
        threshold=f"a group of channels of like range below {LOST_SIGNAL_SQNR_DB:g} dB, and below the whole output",
        source=OWN,
        action=OWN_SCALE,
    )


def quantization_aware_training(findings: Findings) -> Advice | None:
    """The damage is spread over so much of the model that leaving nodes out is not selective any more."""
    evidence = _widely_suspicious(findings) or _widely_harmful(findings)
    if not evidence:
        return None
    return Advice(
        rule="quantization_aware_training",
        title="The damage is spread over the model",
        subjects=(),
        evidence=evidence,
        threshold=f"at least {MIN_LAYERS} suspicious weight layers that are {SPREAD_NODES:.0%} of all, or of the "
        f"multiply-accumulates; or more than {SPREAD_NODES:.0%} of the nodes to explain {SPREAD_DAMAGE:.0%} of the "
        f"summed leave-one-in divergence, of a model that diverges by {DAMAGED_DIVERGENCE:g} or more",
        source=f"Training instead of leaving out: {DEBUGGER_GUIDE}; {KRISHNAMOORTHI}; {NAGEL}; {OWN}",
        action="Try the cheap causes first (input, calibration, per-channel weights, normalization). If they are not "
        "it, train the model with quantization simulated (quantization-aware training): leaving this many nodes out "
        "would give up most of what integers gain.",
    )


def _widely_suspicious(findings: Findings) -> str:
    layers = {n.name: n.macs for n in findings.layers.nodes if n.name in findings.weights}
    suspects = [n.name for n, s in _suspicious(findings) if n.name in layers and s.verified]
    macs, total = sum(layers[name] for name in suspects), sum(layers.values())
    macs_share = macs / total if total else 0.0
    if len(suspects) < MIN_LAYERS or max(len(suspects) / len(layers), macs_share) < SPREAD_NODES:
        return ""
    return (
        f"{len(suspects)} of {len(layers)} weight layers are suspicious, with {macs_share:.0%} of the "
        "multiply-accumulates."
    )


def _widely_harmful(findings: Findings) -> str:
    alone = sorted((a.leave_one_in for a in findings.ablations.values() if a.leave_one_in > 0.0), reverse=True)
    if not alone or not findings.divergence >= DAMAGED_DIVERGENCE:
        return ""
    wanted, needed = SPREAD_DAMAGE * sum(alone), 0
    while wanted > 0.0 and needed < len(alone):
        wanted -= alone[needed]
        needed += 1
    if needed < MIN_LAYERS or needed <= SPREAD_NODES * len(findings.ablations):
        return ""
    return (
        f"{needed} of {len(findings.ablations)} nodes are needed to explain {SPREAD_DAMAGE:.0%} of the summed "
        f"leave-one-in divergence; the whole model diverges by about {findings.divergence:.3g}."
    )
