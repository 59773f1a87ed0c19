"""The result in a few sentences: what all-integer loses, which model is recommended, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoselect.domain.objectives import drop_from
from autoselect.domain.words import asked, between, counted, listed, lost, lost_at_most, said
from autoselect.runs.records import Heldout, Scores
from autoselect.study.finishing.certainty import Confidence
from autoselect.study.references import Reference
from autoselect.study.setup.baselines import REPAIRED
from autoselect.study.yardstick import Yardstick

FAR_DB = 20.0
"""Outputs with more error than this, a hundredth of their power, do not go with a score like float's: the samples
cannot tell. A hundredth is also what a score may lose by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the sentences are made of.

    Attributes:
        metric: Its name.
        yardstick: Float's figures.
        references: Float, all-integer and so on.
        picks: Scores by pick name; empty where nothing was scored.
        confidence: Likewise.
        heldout: By hash.
        samples: Of the search; 0 with an evaluator.
        feasible: Whether a candidate meets the user's limits.
    """

    metric: str
    yardstick: Yardstick
    references: Sequence[Reference]
    picks: Mapping[str, Scores]
    confidence: Confidence | None
    heldout: Mapping[str, Heldout]
    samples: int
    feasible: bool


def sentences(found: Findings) -> str:
    """The verdict: on held-out samples where all models that it names were scored there, else on the search samples."""
    own, confidence = found.picks.get("recommended"), found.confidence
    if own is None or confidence is None:
        return "No candidate was scored."
    named = [r for r in found.references if r.name in ("float", "fiq", REPAIRED)]
    unseen = all(sha in found.heldout for sha in (own.sha256, *(r.sha256 for r in named)))
    parts = [
        _recommended(found, own, confidence, unseen),
        _whole_models(found, named, unseen),
        _sure(found, confidence),
    ]
    if not found.feasible:
        parts.append("No candidate meets the limits; the closest are kept.")
    return " ".join(part for part in parts if part)


def far_from_float(scores: Scores | None) -> list[str]:
    """A warning where a model scores like float though its outputs are unlike float's."""
    if scores is None or not scores.drop <= 0.0 or not scores.sqnr_db < FAR_DB:
        return []
    return [
        f"The recommended model scores no worse than float, but its outputs are only {scores.sqnr_db:.0f} dB from "
        "float's: these samples cannot tell the two apart. Bring more of them, or check the model on data of your own."
    ]


def _whole_models(found: Findings, named: Sequence[Reference], unseen: bool) -> str:
    parts, base = [], math.nan
    for reference in named:
        score = found.heldout[reference.sha256].score if unseen else reference.metric
        if score is None:
            continue
        if reference.name == "float":
            base = score
            parts.append(f"The float model scores {said(score, found.metric)}")
        else:
            repaired = "" if reference.name == "fiq" else " with repairs"
            drop = drop_from(base, score, found.yardstick.direction)
            parts.append(f"the all-integer model{repaired} {lost(drop, found.metric)}")
    return f"{', '.join(parts)}." if parts else ""


def _recommended(found: Findings, own: Scores, confidence: Confidence, unseen: bool) -> str:
    measured = found.heldout.get(own.sha256) if unseen else None
    drop, interval = own.drop, ""
    if measured is not None and measured.drop is not None:
        drop = measured.drop
        if measured.drop_low is not None and measured.drop_high is not None:
            ends = between(measured.drop_low, measured.drop_high, found.metric)
            interval = f" (95 % interval: {ends})"
    ops = (
        f"{counted(own.float_ops, 'float op')} in {counted(own.segments, 'segment')}"
        if own.float_ops
        else "no float op"
    )
    idle = [f"`{name}`" for name, scores in found.picks.items() if scores.float_macs_share >= 1.0]
    alone = f" On an integer-only accelerator nothing of {listed(idle)} runs." if idle else ""
    where = "held-out" if unseen else "search"
    outcome = f"on the {where} samples it {lost(drop, found.metric)}{interval}, with {ops}"
    return f"Recommended is {confidence.id}: {outcome}.{alone}"


def _sure(found: Findings, confidence: Confidence) -> str:
    allowed = asked(found.yardstick.allowed_drop, found.metric)
    if math.isnan(confidence.bound):
        return (
            "The evaluator gives one number for each model, so no interval is known. Check the model on data of your "
            "own, or let the evaluator return one score for each sample."
        )
    again = ""
    if not math.isnan(confidence.resampled):
        again = f" Resamples of the search samples recommend the same model in {confidence.resampled:.0%}."
    if confidence.certified:
        return f"With 95 % confidence it {lost_at_most(confidence.bound, found.metric)}; {allowed}.{again}"
    needed = ""
    if confidence.samples_needed is not None:
        needed = f" If it does lose less, about {confidence.samples_needed:,} samples would show it."
    samples = f"these {found.samples:,}" if found.samples else "the"
    return (
        f"By {samples} search samples no model is sure to lose less: the best "
        f"{lost_at_most(confidence.least_bound, found.metric)}; {allowed}. It comes closest.{needed}{again}"
    )
