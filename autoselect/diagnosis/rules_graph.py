"""Advice from the model itself: what stands in the graph, what its weights look like, and what the target can run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from autoselect.diagnosis.sources import KRISHNAMOORTHI, NAGEL, OWN
from autoselect.domain.findings import Advice, Findings, WeightStatistics
from autoselect.domain.graph import IN_INTEGERS, Graph, Op, OpKind
from autoselect.domain.target_islands import computing_in
from autoselect.domain.targets import Place, Target
from autoselect.domain.verdicts import Placement, judge
from autoselect.domain.words import counted, some

WEIGHT_OPS = frozenset({"CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"})
"""Op types into whose weights a batch normalization behind them folds."""
BOUNDING_OPS = frozenset(
    {"L2_NORMALIZATION", "LOCAL_RESPONSE_NORMALIZATION", "LOGISTIC", "RELU6", "RSQRT", "SOFTMAX", "TANH"}
)
"""Op types behind which a range starts anew: they normalise or bound it."""

MIN_CHAIN = 3
MIN_GROWTH = 10.0
"""Largest growth of the range over a chain, in all."""
MAX_CHANNEL_RATIO = 10.0
"""Ratio of channel magnitudes at which the smallest channel has a tenth of the 127 levels."""


def _op_name(findings: Findings, index: int) -> str:
    """A node's name, else the name of the op's first output."""
    names = {n.index: n.name for n in findings.layers.nodes}
    graph = findings.graph
    outputs = graph.ops[index].outputs
    return names.get(index) or (graph.tensors[outputs[0]].name if outputs else f"op {index}")


def _is_per_channel(graph: Graph, op: Op) -> bool:
    """One constant operand with a value for each channel (last axis) of the output, and nothing else."""
    if len(op.constants) != 1 or len(op.inputs) != 1 or not op.outputs:
        return False
    shape, output = graph.tensors[op.constants[0]].shape, graph.tensors[op.outputs[0]].shape
    return bool(shape) and bool(output) and shape[-1] == output[-1] > 1 and math.prod(shape) == shape[-1]


def batch_normalizations(graph: Graph) -> list[tuple[int, int]]:
    """Indices of each MUL by a constant per channel and the ADD or SUB of one that alone reads it."""
    consumers = graph.consumers()
    pairs = []
    for index, op in enumerate(graph.ops):
        if op.op_type != "MUL" or not _is_per_channel(graph, op):
            continue
        readers = consumers.get(op.outputs[0], [])
        shifts = [i for i in readers if graph.ops[i].op_type in ("ADD", "SUB") and _is_per_channel(graph, graph.ops[i])]
        if shifts and len(readers) == 1:
            pairs.append((index, shifts[0]))
    return pairs


def unfolded_batch_normalization(findings: Findings) -> Advice | None:
    """Batch normalization that the converter could not fold into a layer's weights."""
    pairs = batch_normalizations(findings.graph)
    if not pairs:
        return None
    texts = [f"{_op_name(findings, m)!r} and {_op_name(findings, a)!r}: {_obstacle(findings, m)}" for m, a in pairs]
    return Advice(
        rule="unfolded_batch_normalization",
        title="Batch normalization is left in the graph",
        subjects=tuple(_op_name(findings, mul) for mul, _ in pairs),
        evidence=f"{counted(len(pairs), 'pair')} of MUL and ADD by constants per channel: {'; '.join(texts[:5])}.",
        threshold="any",
        source=f"Batch normalization folding: {NAGEL}; {KRISHNAMOORTHI}",
        action="Each such op rounds its output once more, and its constants share one scale. Train with the order "
        "convolution (or dense layer), batch normalization, activation: then the converter folds the "
        "normalization into the weights. An activation, pooling or second reader between the two prevents it.",
    )


def _obstacle(findings: Findings, mul: int) -> str:
    """What stands between a normalization and the weights that it would fold into."""
    graph, producers, consumers = findings.graph, findings.graph.producers(), findings.graph.consumers()
    between: list[str] = []
    tensor = graph.ops[mul].inputs[0]
    while tensor in producers:
        op = graph.ops[producers[tensor]]
        name = _op_name(findings, producers[tensor])
        if op.op_type in WEIGHT_OPS:
            if between:
                return f"{' and '.join(reversed(between))} after {op.op_type} {name!r}"
            if len(consumers[tensor]) > 1:
                return f"the output of {op.op_type} {name!r} is read by other ops too"
            return f"the activation (or the bias's own op) fused into {op.op_type} {name!r}"
        between.append(op.op_type)
        if len(op.inputs) != 1:
            return f"{op.op_type} {name!r}, which has several inputs"
        tensor = op.inputs[0]
    return "no layer with weights before it"


def missing_normalization(findings: Findings) -> Advice | None:
    """Layers in a row whose ranges grow from one to the next."""
    chain = _longest_growth(findings)
    if not chain:
        return None
    texts = [f"{name!r} {width:.4g}" for name, width in chain]
    return Advice(
        rule="missing_normalization",
        title="Ranges grow from layer to layer",
        subjects=tuple(name for name, _ in reversed(chain)),
        evidence=f"Calibrated range of {len(chain)} layers in a row, {chain[-1][1] / chain[0][1]:.3g} times in all: "
        f"{' -> '.join(texts)}.",
        threshold=f"{MIN_CHAIN} or more layers with weights, each wider than the one before, by {MIN_GROWTH:g} times "
        "in all, without a normalization or a bounded activation between",
        source=f"Ranges and batch normalization: {KRISHNAMOORTHI}; {OWN}",
        action="Put batch normalization between these layers (convolution, normalization, activation, so that it "
        "folds), or bounded activations such as RELU6, and train again; without training, leave the widest nodes out "
        "of integers.",
    )


def _longest_growth(findings: Findings) -> list[tuple[str, float]]:
    """The chain of weight layers whose range grows most, as (name, width); empty if none grows enough."""
    widths = _widths(findings)
    feeders = _feeding_layers(findings.graph)
    chains: dict[int, list[int]] = {}
    for index in sorted(widths):
        before = [chains[f] for f in feeders[index] if f in chains and widths[f] < widths[index]]
        # Of several branches, the one that started narrowest.
        chains[index] = [*min(before, key=lambda c: widths[c[0]], default=[]), index]
    grown = [c for c in chains.values() if len(c) >= MIN_CHAIN and widths[c[-1]] >= MIN_GROWTH * widths[c[0]]]
    best = max(grown, key=lambda c: widths[c[-1]] / widths[c[0]], default=[])
    return [(_op_name(findings, i), widths[i]) for i in best]


def _widths(findings: Findings) -> dict[int, float]:
    """Calibrated range of each weight layer's output, by op index; layers without one are left out."""
    widths = {}
    for node in findings.layers.nodes:
        if node.op_type in WEIGHT_OPS and node.name in findings.activations:
            figures = findings.activations[node.name]
            width = figures.calibrated_maximum - figures.calibrated_minimum
            if width > 0.0 and math.isfinite(width):
                widths[node.index] = width
    return widths


def _feeding_layers(graph: Graph) -> list[set[int]]:
    """For each op, the weight layers that reach it through neither another layer nor a normalization."""
    normalising = {add for _, add in batch_normalizations(graph)}
    ends = {i for i, op in enumerate(graph.ops) if op.op_type in WEIGHT_OPS | BOUNDING_OPS} | normalising
    return [{i for i in before if graph.ops[i].op_type in WEIGHT_OPS} for before in graph.nearest(ends)]


def per_channel_disabled(findings: Findings) -> Advice | None:
    """Weights with fewer scales than channels, though the channels are of different size."""
    uneven_weights = [(name, w) for name, w in findings.weights.items() if _suffers_per_tensor(w)]
    if not uneven_weights:
        return None
    uneven_weights.sort(key=lambda pair: -pair[1].channel_range_ratio)
    texts = [f"{name!r} {w.channel_range_ratio:.3g} times over {len(w.minima)} channels" for name, w in uneven_weights]
    if findings.per_channel:
        action = (
            "Per-channel quantization is on, but these ops' kernels know one scale a tensor: train with weights of "
            "even size, or leave the nodes out of integers."
        )
    else:
        action = "Quantize weights per channel, if the target can: leave --per-tensor away. Else equalize the channels."
    return Advice(
        rule="per_channel_disabled",
        title="One scale for channels of different size",
        subjects=tuple(name for name, _ in uneven_weights),
        evidence=f"Largest over smallest channel: {some(texts)}.",
        threshold=f"one scale for the tensor, channel magnitudes apart by more than {MAX_CHANNEL_RATIO:g} times",
        source=f"Per-channel weights: {KRISHNAMOORTHI}; {NAGEL}, which also describes equalization; {OWN}",
        action=action,
    )


def _suffers_per_tensor(figures: WeightStatistics) -> bool:
    return 0 < len(figures.scales) < len(figures.minima) and figures.channel_range_ratio > MAX_CHANNEL_RATIO


def unsupported_by_target(findings: Findings) -> Advice | None:
    """Ops that the target refuses, or that its accelerator leaves to the host."""
    target, graph = findings.target, findings.graph
    nodes = {n.index for n in findings.layers.nodes if n.name not in findings.failing}
    kinds = {index: OpKind(kind) for index, kind in findings.kinds.items()}
    both = (kinds, {**kinds, **dict.fromkeys(nodes, OpKind.INTEGER)})
    built, integer = (computing_in(graph, k, findings.forms) for k in both)
    placements = judge(built, target).placements
    stray_ops = [i for i, placement in enumerate(placements) if _is_astray(placement, target)]
    if not stray_ops:
        return None
    # What each op does by itself, wherever others end the segment, and what it would do in integers.
    alone, in_integers = (judge(made, replace(target, segments="any")).placements for made in (built, integer))
    culprits = [i for i in stray_ops if _is_astray(alone[i], target)]
    mendable = [i for i in culprits if kinds[i] not in IN_INTEGERS and not _is_astray(in_integers[i], target)]
    lost = sorted({_spoken(placements[i], graph.ops[i]) for i in culprits if i not in mendable})
    parts = [f"Replace these op types: {some(lost)}."] if lost else []
    if mendable:
        names = [repr(_op_name(findings, i)) for i in mendable]
        parts.append(f"Take off the denylist what accuracy allows: {some(names)}.")
    refuses = any(placements[i].place is Place.NOWHERE for i in stray_ops)
    runner = target.accelerator or target.host
    return Advice(
        rule="unsupported_by_target",
        title=f"Ops that the target {target.name!r} {'refuses' if refuses else f'does not run on {runner.name}'}",
        subjects=tuple(_op_name(findings, i) for i in stray_ops),
        evidence=f"{counted(len(stray_ops), 'op')}: {'; '.join(_by_reason(graph, placements, stray_ops))}.",
        threshold=f"any op that {'the target refuses or ' if target.rules else ''}{runner.name} does not run",
        source=f"The profile of the target {target.name!r}",
        action=" ".join(
            [*parts, "It takes no such model." if refuses else f"What remains runs on {target.host.name}."]
        ),
    )


def _is_astray(placement: Placement, target: Target) -> bool:
    """Whether an op runs nowhere, or on the host where there is an accelerator."""
    return placement.place is Place.NOWHERE or (placement.place is Place.HOST and target.accelerator is not None)


def _spoken(placement: Placement, op: Op) -> str:
    return f"{placement.precision.value} {op.op_type}" if placement.precision else op.op_type


def _by_reason(graph: Graph, placements: Sequence[Placement], stray_ops: Sequence[int]) -> list[str]:
    """``2 x float SIN, 1 x float EXP (the accelerator runs no float ops)``, most ops first."""
    groups: dict[str, Counter[str]] = {}
    for i in stray_ops:
        groups.setdefault(placements[i].reason, Counter())[_spoken(placements[i], graph.ops[i])] += 1
    ranked = sorted(groups.items(), key=lambda pair: -pair[1].total())
    return [f"{some([f'{n} x {name}' for name, n in ops.most_common()])} ({reason})" for reason, ops in ranked]
