"""The cheapest cure for each node: what is broken in it, and what takes that away at the least cost; measures nothing.

Cures by what they cost: a corrected bias and other roundings cost nothing at run time, a narrower range clips far
values, 16 bits take time, hybrid and float leave integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from autoselect.domain.findings import ErrorParts
from autoselect.domain.graph import Graph, OpKind
from autoselect.domain.layers import Node
from autoselect.domain.targets import Target
from autoselect.domain.verdicts import in_16_bits, judge
from autoselect.tflite.operands import FIXED_SCALE_OPS, WEIGHTED

SMALL_WEIGHTS, SMALL_ACTIVATIONS = 1e-4, 1e-3
"""Error power over signal power (40 and 30 dB) that needs no cure. Levels of 8 bits over 12 standard deviations of a
normal distribution give 37 dB. Rounded weights err the same way in every sample, so less of that is borne."""
HALF = 0.5
"""A cure without cost must take away this share of what it is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cure:
    """What to try for a node first, and why.

    Attributes:
        name: ``none``, ``bias``, ``rounding``, ``range``, ``16 bit``, ``hybrid`` or ``float``.
        reason: In a few words.
        broken: What it is for: ``weights`` or ``activations``; empty where nothing is.
    """

    name: str
    reason: str
    broken: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What cures are for.

    Attributes:
        nodes: Of the float model; ``node.index`` is the op's index in ``graph``.
        graph: The float model.
        target: That pays for what a cure costs.
        forms: Which forms each op has, by index, see
            :attr:`autoselect.quantize.building.blueprint.Blueprint.forms`.
        int16: False where 16 bits are no choice.
    """

    nodes: Iterable[Node]
    graph: Graph
    target: Target
    forms: Mapping[int, Mapping[str, str | None]]
    int16: bool = True


def cures(model: Model, parts: Mapping[str, ErrorParts]) -> dict[str, Cure]:
    """The cure for each node whose parts were measured, by node name."""
    return {node.name: _cure(node, parts[node.name], model) for node in model.nodes if node.name in parts}


def _cure(node: Node, parts: ErrorParts, model: Model) -> Cure:
    shares = {"weights": parts.weights, "activations": parts.activations}
    summary = ", ".join(f"{part} {_told(share)}" for part, share in shares.items() if not math.isnan(share))
    # NaN compares as false: a part that is not there is small.
    weights = parts.weights / SMALL_WEIGHTS if parts.weights > 0.0 else 0.0
    activations = parts.activations / SMALL_ACTIVATIONS if parts.activations > 0.0 else 0.0
    if max(weights, activations) <= 1.0:
        return Cure(name="none", reason=summary)
    if weights > activations:
        name, why = _of_weights(node, parts)
    elif node.op_type not in FIXED_SCALE_OPS and _is_cured_by_range(parts):
        name, why = "range", f"a narrower range leaves {_told(parts.narrowed)}"
    else:
        name, why = _form(node, model)
    broken = "weights" if weights > activations else "activations"
    return Cure(name=name, reason=f"{summary}; {why}" if why else summary, broken=broken)


def _of_weights(node: Node, parts: ErrorParts) -> tuple[str, str]:
    if node.op_type not in WEIGHTED:
        return "float", "no repair knows its weights"
    share = parts.shift / parts.weights
    return ("bias", f"{share:.0%} of the weights' error shifts channels") if share >= HALF else ("rounding", "")


def _is_cured_by_range(parts: ErrorParts) -> bool:
    return parts.narrowed <= min(HALF * parts.activations, SMALL_ACTIVATIONS)


_FORMS: Mapping[str, tuple[OpKind, str]] = {"int16": (OpKind.INT16, "16 bit"), "hybrid": (OpKind.HYBRID, "hybrid")}


def _form(node: Node, model: Model) -> tuple[str, str]:
    """The form that costs the target least, the finer integers first if two cost the same; why it is not 16 bits."""
    op, costs, missing = model.graph.ops[node.index], dict[str, float](), ""
    forms = model.forms.get(node.index, {})
    for form, (kind, name) in (*_FORMS.items(), ("float", (OpKind.FLOAT, "float"))):
        ops = in_16_bits(op) if kind is OpKind.INT16 else (replace(op, kind=kind),)
        ops = tuple(replace(form_op, left_because=forms.get(kind.value)) for form_op in ops)
        is_there = form == "float" or form in forms
        verdict = judge(replace(model.graph, ops=ops), model.target) if is_there else None
        if verdict is not None and not verdict.refused():
            costs[name] = verdict.cost
        elif form == "int16":
            missing = "the target refuses it with 16 bits" if is_there else "it has no 16-bit form"
            missing = missing if model.int16 else "16 bits were left out"
    best = min(costs, key=lambda name: costs[name], default="float")
    return best, missing or ("" if best == "16 bit" else "16 bits cost this target more")


def decibels(share: float) -> float:
    """Signal over error; infinite where there is no error, NaN where there is no such part."""
    return -10.0 * math.log10(share) if share > 0.0 else share + math.inf


def _told(share: float) -> str:
    return f"{round(decibels(share), 1) + 0.0:.1f} dB" if share > 0.0 else "exact"
