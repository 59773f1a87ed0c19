"""The result in a few sentences: what all-integer loses, which model is recommended, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoselect.domain.objectives import drop_from
from autoselect.domain.rule import FAR_DB
from autoselect.domain.words import (
    CLOSENESS,
    asked,
    between,
    counted,
    listed,
    lost,
    lost_at_most,
    said,
    whole_model,
)
from autoselect.errors import sentence
from autoselect.runs.records import Heldout, Scores, TrialRecord
from autoselect.study.finishing.certainty import Alternative, Confidence, Unknown
from autoselect.study.finishing.on_chip import OnChip
from autoselect.study.references import Reference
from autoselect.study.setup.baselines import REPAIRED
from autoselect.study.yardstick import Yardstick

_MOST = 0.5
"""Share of the multiplications."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the sentences are made of.

    Attributes:
        metric: Its name.
        yardstick: Float's figures.
        references: Float, all-integer and so on.
        picks: Scores by pick name; empty if nothing was scored.
        confidence: Likewise.
        heldout: By hash.
        contradicted: Models that would be recommended if held-out samples did not contradict them, the preferred first.
        doubted: What would be recommended if its score counted, though its outputs are far from float's; None else.
        samples: Of the search; 0 with an evaluator.
        feasible: Whether a candidate meets the user's limits.
        other_state: As :func:`other_state` says.
        wide: Nodes of the recommended model that have 16-bit activations.
        integer_error: Why the integer model could not be scored; empty if it was, or was not tried.
        accelerated: Whether the target has an accelerator that runs integers alone.
        chip: What the target's accelerator is called, where its compiler decides what it runs; else empty.
        on_chip: What :func:`chip_scores` says.
        unit: Of penalties, ``points`` or a unit of the target.
        is_member_unlike: Whether it says so of a member of the front, so that the verdict begins with it.
    """

    metric: str
    yardstick: Yardstick
    references: Sequence[Reference]
    picks: Mapping[str, Scores]
    confidence: Confidence | None
    heldout: Mapping[str, Heldout]
    samples: int
    feasible: bool
    other_state: str = ""
    wide: int = 0
    integer_error: str = ""
    accelerated: bool = True
    chip: str = ""
    on_chip: Sequence[str] = ()
    is_member_unlike: bool = False
    contradicted: Sequence[Scores] = ()
    doubted: Scores | None = None
    unit: str = "points"

    @property
    def costs(self) -> str:
        """What a model of a lower penalty does to the target, before ``less`` and ``least``."""
        return f"costs {'an accelerator' if self.accelerated else 'the target'}"

    def strays(self, count: int) -> str:
        """A count of ops that the accelerator does not run, in words: ops that its compiler leaves, or float ops."""
        if self.chip:
            return f"{counted(count, 'op') if count else 'no op'} left on the CPU"
        return counted(count, "float op") if count else "no float op"


def sentences(findings: Findings) -> list[str]:
    """The verdict: on held-out samples where all models that it names were scored there, else on the search samples.

    Returns:
        The headline, then the rest.
    """
    own, confidence = findings.picks.get("recommended"), findings.confidence
    if own is None or confidence is None:
        return ["No candidate was scored."]
    named = [r for r in findings.references if r.name in ("float", "fiq", REPAIRED)]
    unseen = all(sha in findings.heldout for sha in (own.sha256, *(r.sha256 for r in named)))
    parts = [
        *_contradicted(findings, own),
        *(findings.on_chip if findings.is_member_unlike else ()),
        *_recommended(findings, own, confidence, unseen),
        _whole_models(findings, named, unseen),
        _sure(findings, confidence),
        _doubted(findings),
        findings.other_state,
        *(() if findings.is_member_unlike else findings.on_chip),
    ]
    return [part for part in parts if part]


def other_state(scored: Sequence[Scores], yardstick: Yardstick, fallback: str | None, *, runs_hybrid: bool) -> str:
    """Which state would keep the allowed drop if the one that a user asked for does not; empty if it does.

    Args:
        scored: All candidates.
        yardstick: With the limits.
        fallback: The state, or the search over all.
        runs_hybrid: Whether the target runs hybrid ops.
    """
    limits = [yardstick.violations(s) for s in scored]
    drops = [s.drop for s, passed in zip(scored, limits, strict=True) if max(passed["max_size"], 0.0) == 0.0]
    if fallback not in _OTHERS or min(drops, default=math.inf) <= yardstick.allowed_drop:
        return ""
    if fallback == "float" and (yardstick.constraints.max_size_bytes is None or not runs_hybrid):
        return ""  # Float makes no error: only its size can be in the way, and only where there is a smaller state.
    return _OTHERS[fallback]


_OTHERS = {
    "drq": "No candidate keeps the allowed drop, and hybrid ops make errors of their own: float ops make none, and "
    "--fallback search chooses between the two for each unit.",
    "float": "No candidate within --max-size keeps the allowed drop, and float ops take four bytes a weight: hybrid "
    "ones take one, and --fallback search chooses between the two for each unit.",
}
"""Other states, by the state that a user asked for."""


def chip_scores(chips: Sequence[OnChip], recommended: str, wholes: Mapping[str, TrialRecord], metric: str) -> list[str]:
    """Which models score otherwise on emulated chips than on the CPU.

    Args:
        chips: What was found on each chip.
        recommended: Id of the member.
        wholes: The whole models by name.
        metric: Its name.

    Returns:
        Empty where none does.
    """
    names = {wholes[key].id: name for key, name in _WHOLES.items() if key in wholes} | {recommended: _RECOMMENDED}
    parts = [part for chip in chips if chip.unlike_cpu for part in _on_chip(chip, names, metric)]
    if not parts:
        return []
    return [
        *parts,
        "The recommendation goes by the chip's scores of these; all other scores are the CPU's. This is an "
        "emulation: check the model on a device.",
    ]


def _on_chip(chip: OnChip, names: Mapping[str, str], metric: str) -> list[str]:
    """The recommended model and the whole ones first, then the others, those that lose most before the rest."""
    most_named = 3
    order = [*names, *sorted(chip.unlike_cpu, key=lambda key: -chip.unlike_cpu[key].lost)]
    unlike = [key for key in dict.fromkeys(order) if key in chip.unlike_cpu]
    clauses = [
        f"{names.get(key, key)} has {said(reply.chip, metric)} (CPU: {said(reply.cpu, metric)})"
        for key, reply in ((key, chip.emulated[key]) for key in unlike[:most_named])
    ]
    more = f" and {len(unlike) - most_named} more do" if len(unlike) > most_named else ""
    samples = max((reply.samples for reply in chip.emulated.values()), default=0)
    where = f" on {counted(samples, 'search sample')}" if samples else ""
    own = "" if _RECOMMENDED in (names.get(key) for key in unlike) else "The recommended model does not."
    count = counted(len(unlike), "model")
    return [
        f"On the emulation of {chip.chip} {count} of {len(chip.emulated)} {'scores' if len(unlike) == 1 else 'score'} "
        f"otherwise than on the CPU{where}: {listed(clauses)}{more}.",
        own,
    ]


_RECOMMENDED = "the recommended model"
_WHOLES = {"fiq": "the all-integer model", "int16": "the model of 16 bits"}


def far_from_float(scores: Scores | None) -> list[str]:
    """A warning if a model scores like float though its outputs are unlike float's."""
    if scores is None or not scores.drop <= 0.0 or not scores.sqnr_db < FAR_DB:
        return []
    return [
        f"The recommended model scores no worse than float, but its outputs are only {scores.sqnr_db:.0f} dB from "
        "float's: these samples cannot tell the two apart. Bring more of them, or check the model on data of your own."
    ]


def _whole_models(findings: Findings, named: Sequence[Reference], unseen: bool) -> str:
    scores = {r.name: findings.heldout[r.sha256].score if unseen else r.metric for r in named}
    base = scores.get("float")
    if base is None:
        return ""
    drops = {n: drop_from(base, s, findings.yardstick.direction) for n, s in scores.items() if s is not None}
    floats = {r.name: r.quantities.get("float_ops") for r in named}
    parts = [f"The float model scores {said(base, findings.metric)}"]
    if "fiq" in drops:
        parts.append(f"the {whole_model(floats['fiq'])} {lost(drops['fiq'], findings.metric)}")
    if REPAIRED in drops:
        subject = "it" if "fiq" in drops else f"the {whole_model(floats[REPAIRED])}"
        parts.append(f"with the repairs chosen for 8 bits, {subject} {lost(drops[REPAIRED], findings.metric)}")
    if findings.integer_error:
        which = "without the repairs the" if REPAIRED in drops else "the"
        parts.append(f"{which} integer model could not be scored. {findings.integer_error}")
    return sentence("; ".join(parts))


def _recommended(findings: Findings, own: Scores, confidence: Confidence, unseen: bool) -> list[str]:
    measured = findings.heldout.get(own.sha256) if unseen else None
    loss = _loss(own, measured, findings)
    ops = _pieces(findings, own)
    idle = [f"`{name}`" for name, scores in findings.picks.items() if scores.float_macs_share >= 1.0]
    alone = f"An integer-only accelerator gains nothing from {listed(idle)}." if idle and findings.accelerated else ""
    where = "held-out" if unseen else "search"
    sixteen = f"; {counted(findings.wide, 'node')} {'has' if findings.wide == 1 else 'have'} 16-bit activations"
    outcome = f"on the {where} samples it {loss}, with {ops}{sixteen if findings.wide else ''}"
    further = [alone, _mostly_float(findings, own, confidence, unseen)]
    if findings.feasible:
        return [f"Recommended is {confidence.id}: {outcome}.", *further]
    closest = f"Of those that come closest, {confidence.id} is recommended: {outcome}."
    return ["No candidate meets all limits.", closest, _missed(findings, own), *further]


_LIMITS = {"max_drop": "the drop", "max_size": "the size", "max_penalty": "the penalty"}


def _missed(findings: Findings, own: Scores) -> str:
    """Which limits of the user's a model misses on the search samples; empty if it misses none there."""
    missed = [_LIMITS[name] for name, excess in findings.yardstick.violations(own).items() if excess > 0.0]
    return f"It misses the limit of {listed(missed)}." if missed else ""


def _contradicted(findings: Findings, own: Scores) -> list[str]:
    """The sentence that held-out samples contradict what the search samples recommend; empty if they do not."""
    if not findings.contradicted:
        return []
    first, limit = findings.contradicted[0], asked(findings.yardstick.allowed_drop, findings.metric)
    others = counted(len(findings.contradicted) - 1, "other model")
    more = f" They also contradict {others} that would be preferred." if len(findings.contradicted) > 1 else ""
    if own.sha256 in {s.sha256 for s in findings.contradicted}:
        outcome = "They contradict every other model of the front, too."
    else:
        outcome = "The recommended model is the next one that they do not contradict."
    loss = _loss(first, findings.heldout.get(first.sha256), findings)
    return [
        f"The held-out samples contradict what the search samples recommend: {first.sha256[:10]} {loss} there; "
        f"{limit}.",
        f"{outcome}{more} Held-out samples have now chosen, so none are untouched: check the model on others.",
    ]


def _pieces(findings: Findings, own: Scores) -> str:
    """What of a model the accelerator runs."""
    if findings.chip and not own.segments:
        return f"nothing on {findings.chip}"
    if findings.chip:
        floats = f", {counted(own.float_ops, 'float op')}" if own.float_ops else ""
        return f"{counted(own.segments, 'partition')} on {findings.chip}{floats} and {findings.strays(own.left_ops)}"
    ops = counted(own.float_ops, "float op") if own.float_ops else "all ops in integers"
    if own.float_ops and findings.accelerated:
        ops += f" and {counted(own.segments, 'accelerator segment') if own.segments else 'nothing on an accelerator'}"
    return ops


def _loss(scores: Scores, measured: Heldout | None, findings: Findings) -> str:
    """What a model loses, with the interval on held-out samples if it was scored there."""
    if measured is None or measured.drop is None:
        return lost(scores.drop, findings.metric)
    ends = _ends(measured, findings)
    interval = f" (95 % interval: {between(*ends, findings.metric)})" if ends else ""
    return f"{lost(measured.drop, findings.metric)}{interval}"


def _mostly_float(findings: Findings, own: Scores, confidence: Confidence, unseen: bool) -> str:
    """What integers cost, if the recommended model leaves most of the work in float; empty else, or if it is said."""
    integer = findings.picks.get("integer", own)
    is_known = integer.sha256[:10] in confidence.named or (unseen and integer.sha256 not in findings.heldout)
    if is_known or own.float_macs_share <= _MOST or integer.float_macs_share > _MOST or not findings.accelerated:
        return ""
    measured = findings.heldout.get(integer.sha256) if unseen else None
    ops = findings.strays(integer.left_ops)
    return (
        f"Most of its work is in float: with {ops}, `integer` ({integer.sha256[:10]}) "
        f"{_loss(integer, measured, findings)}."
    )


def _ends(measured: Heldout, findings: Findings) -> tuple[float, float] | None:
    """The interval of a drop; where the score is said instead, the score's own, which all tables have."""
    if findings.metric == CLOSENESS and measured.low is not None and measured.high is not None:
        return findings.yardstick.float_score - measured.high, findings.yardstick.float_score - measured.low
    if measured.drop_low is None or measured.drop_high is None:
        return None
    return measured.drop_low, measured.drop_high


def _sure(findings: Findings, confidence: Confidence) -> str:
    if confidence.unknown is not None:
        return _UNKNOWN[confidence.unknown]
    limit, again = asked(findings.yardstick.allowed_drop, findings.metric), ""
    if not math.isnan(confidence.resampled):
        again = f" In {confidence.resampled:.0%} of resamples of the search samples the same model is recommended"
        again = f"{again.replace('%', ' %')}{_others(confidence, findings.unit)}."
    elif confidence.not_resampled:
        again = f" {sentence(f'How much hangs on the samples could not be measured. {confidence.not_resampled}')}"
    cheaper = _cheaper(findings, confidence, confidence.cheaper) if confidence.cheaper else ""
    most = lost_at_most(confidence.bound, findings.metric)
    if confidence.certified:
        return f"By the search samples the recommended model {most} with 95 % confidence; {limit}.{again}{cheaper}"
    needed = ""
    if confidence.samples_needed is not None and confidence.samples_needed > findings.samples:
        needed = f" If it does keep the limit, about {confidence.samples_needed:,} samples would show it."
    samples = counted(findings.samples, "search sample") if findings.samples else "search samples"
    what, least = "the recommended model keeps the limit: it", confidence.bound
    if confidence.surer is None:
        what, least = "any model keeps the limit: the best", confidence.least_bound
    limit = asked(findings.yardstick.allowed_drop, findings.metric, missed_by=least)
    shown = (
        f"The {samples} cannot show that {what} {lost_at_most(least, findings.metric)} with 95 % confidence; {limit}."
    )
    trade = f"and is the best trade between that chance and what a model {findings.costs}"
    trade += "; only the float model is a better one" if confidence.float_is_better else ""
    why = f"The recommended model breaks it with a chance of {100 * confidence.chance_to_break:.0f} %, {trade}."
    if confidence.expected > findings.yardstick.allowed_drop:
        why += f" As far as these samples tell, it {lost(confidence.expected, findings.metric)}."
    surer = _surer(findings, confidence.surer) if confidence.surer else ""
    return f"{shown} {why}{needed}{surer}{again}{cheaper}"


_UNKNOWN = {
    Unknown.ONE_NUMBER: "The evaluator gives one number for each model, so no interval is known. Check the model on "
    "data of your own, or let the evaluator return one score for each sample.",
    Unknown.NOT_MEASURED: "The search was stopped before it was measured how sure scores are, so no interval is known, "
    "and the recommendation may change. `autoselect resume` measures it.",
    Unknown.UNDEFINED: "The search samples are all of one group, or the metric has no value if some of them are left "
    "out, for example those of a rare class, so no interval is known. Bring more samples of that kind, or of other "
    "groups, or check the model on data of your own.",
    Unknown.FAILED: "How sure the score of the recommended model is could not be measured, so no interval is known: "
    "a warning says why. Check the model on data of your own.",
}


def _doubted(findings: Findings) -> str:
    """A sentence: a cheaper model is not recommended on the word of a score whose noise nobody knows."""
    if findings.doubted is None:
        return ""
    doubted = findings.doubted
    return (
        f"{doubted.sha256[:10]} {findings.costs} less and by its score {lost(doubted.drop, findings.metric)}, but its "
        f"outputs are only {doubted.sqnr_db:.0f} dB from float's: there a score does not count if nobody knows how "
        "sure it is."
    )


def _others(confidence: Confidence, unit: str) -> str:
    """What other resamples recommend, where they are many: often a neighbour that does as well."""
    # A model that a smaller share of resamples recommends is one of several that would do.
    if confidence.resampled_penalties is None or confidence.resampled >= 0.5:
        return ""
    low, high = (f"{cost:.1f}" if cost < 1000.0 else f"{cost:,.0f}" for cost in confidence.resampled_penalties)
    span = high if low == high else f"{low} to {high}"
    return f"; nine in ten recommend a penalty of {span} {'point' if (unit, high) == ('points', '1.0') else unit}"


def _surer(findings: Findings, surer: Alternative) -> str:
    ops, most = findings.strays(surer.left_ops), lost_at_most(surer.bound, findings.metric)
    return f" If proof is wanted: {surer.id}, with {ops}, {findings.costs} more, and with 95 % confidence it {most}."


def _cheaper(findings: Findings, confidence: Confidence, cheaper: Alternative) -> str:
    """A member that costs less; what speaks for the recommended one if that member is proven, too."""
    ops, most = findings.strays(cheaper.left_ops), lost_at_most(cheaper.bound, findings.metric)
    saved = 100.0 * cheaper.saved
    share = f"{saved:.0f} %" if saved >= 9.5 else f"{saved:.2g} %" if saved >= 0.1 else "hardly"
    less = f"{findings.costs} {share} less"
    if cheaper.bound <= confidence.bound:
        return (
            f" Cheaper is {cheaper.id}, with {ops}: it {less}, and with 95 % confidence it {most}, "
            "no worse a bound. The rule puts it behind the recommended model for its size, closeness or expected drop."
        )
    if confidence.certified and cheaper.certified:
        return (
            f" Cheaper is {cheaper.id}, with {ops}: it {less}, and it is proven to keep the limit, too: "
            f"with 95 % confidence it {most}. By the rule, that saving is too small for its chance to break the limit; "
            "a lower --break-price weighs it more."
        )
    return (
        f" If less proof will do: {cheaper.id}, with {ops}, {less} and is expected to keep the limit too; "
        f"with 95 % confidence it {most}."
    )
