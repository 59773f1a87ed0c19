"""Every verdict reads well, whatever was found: better, equal, worse or none; certified or not; any metric."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import test_certainty
from hypothesis import given, settings
from hypothesis import strategies as st

from autoselect.runs.records import Heldout, Scores
from autoselect.study.finishing import verdict
from autoselect.study.finishing.certainty import Alternative, Confidence, Unknown
from autoselect.study.references import Reference
from autoselect.study.setup.baselines import REPAIRED

YARDSTICK = replace(test_certainty.YARDSTICK, allowed_drop=0.009)
METRICS = ("accuracy", "top5_accuracy", "agreement", "f1_macro", "mse", "psnr", "sqnr_db", "my_package.module:my_score")
NOUN = r"(?:point|float op|op|accelerator segment|partition|search sample|sample|node)"
NUMBER = r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?!\w|[.,]\d)"
UNITS = rf"{NOUN}s?|%|dB|to [\d.]+ (?:dB|points?)|bits|f1 macro|mse|my score"
FAULTS = {
    "a blank too many": r"  | [.,;:]|^\s|\s$",
    "a negative loss": r"(loses|gains|at most|than|is|to) -(?![\d.]+ (dB|to))",
    "a dangling no": r"\bno\b[^ ]|\bno$|loses no\b",
    "no number": r"\bnan\b|\binf\b|None",
    "a name of the code": r"_|my_package",
    "many of one": rf"(?<![\d.,])(1|1\.0) {NOUN}s\b",
    "one of many": rf"(?<![\d.,])(?!1 |1\.0 )[\d.,]+ {NOUN}\b",
    "a number without its unit": rf"{NUMBER}(?! (?:{UNITS})\b| %|-bit)",
    "a sentence without its stop": r"[^.]$",
    "a sentence that begins small": r"(?:^|\. )[a-z]",
}
DROPS = st.sampled_from([-0.3, -0.01, -1e-4, -1e-7, 0.0, 1e-7, 4e-4, 0.01, 0.0949, 0.5])


def heldout(drops: st.SearchStrategy[float]) -> st.SearchStrategy[Heldout]:
    def made(ends: tuple[float, float, float], known: bool) -> Heldout:
        low, drop, high = sorted(ends)
        bounds = {"drop_low": low, "drop_high": high} if known else {}
        return Heldout(score=0.9 - drop, low=0.8, high=0.95, drop=drop, **bounds)

    return st.builds(made, st.tuples(drops, drops, drops), st.booleans())


def scores(
    drop: float, float_ops: int, segments: int, share: float, letter: str = "a", off_chip: int | None = None
) -> Scores:
    values = dict.fromkeys(Scores.__dataclass_fields__, 0)
    own = {"sha256": letter * 40, "drop": drop, "metric": 0.9 - drop, "float_ops": float_ops, "segments": segments}
    own |= {"float_macs_share": share, "off_chip": off_chip, "fallbacks": {}, "compiled": {}, "quantities": {}}
    return Scores(**{**values, **own})  # type: ignore[arg-type]


def confidence(
    certified: bool,
    bound: float,
    needed: int | None,
    again: tuple[float, tuple[float, float] | None],
    expected: float,
    others: tuple[Alternative | None, Alternative | None],
    chance: float = 0.2,
) -> Confidence:
    return Confidence(
        expected=expected,
        surer=others[0],
        cheaper=others[1],
        chance_to_break=chance,
        id="a" * 10,
        certified=certified,
        bound=bound,
        least_bound=max(bound, 1e-7),
        samples_needed=needed,
        resampled=again[0],
        resampled_penalties=again[1],
        unknown=Unknown.UNDEFINED if math.isnan(bound) else None,
    )


def alternatives(letter: str) -> st.SearchStrategy[Alternative | None]:
    return st.none() | st.builds(
        Alternative,
        id=st.just(letter * 10),
        expected=DROPS,
        bound=DROPS,
        left_ops=st.sampled_from([0, 1, 4]),
        penalty=st.just(9.0),
    )


FINDINGS = st.builds(
    lambda metric, picked, integer, sure, ends, unseen, wholes, allowed, samples, feasible, wide: verdict.Findings(
        metric=metric,
        wide=wide,
        yardstick=replace(YARDSTICK, direction="minimize" if metric == "mse" else "maximize", allowed_drop=allowed),
        references=[
            Reference(
                name=name, sha256=name, metric=0.9 - drop, size_bytes=9, penalty=0.0, quantities={"float_ops": ops}
            )
            for name, drop, ops in wholes
        ],
        picks={"recommended": picked, "accurate": picked, "integer": integer} if picked else {},
        confidence=sure,
        heldout=dict(zip(["a" * 40, *(w[0] for w in wholes), "d" * 40], ends, strict=False)) if unseen else {},
        samples=samples,
        feasible=feasible,
    ),
    st.sampled_from(METRICS),
    st.none() | st.builds(scores, DROPS, st.sampled_from([0, 1, 7]), st.integers(0, 2), st.sampled_from([0.0, 1.0])),
    st.builds(scores, DROPS, st.integers(0, 2), st.integers(0, 2), st.sampled_from([0.0, 0.2, 1.0]), st.just("d")),
    st.builds(
        confidence,
        st.booleans(),
        DROPS | st.just(math.nan),
        st.none() | st.just(1200),
        st.tuples(
            st.sampled_from([0.0, 0.48, 1.0, math.nan]),
            st.sampled_from([None, (0.0, 0.0), (0.21, 1.04), (1.0, 60.0)]),
        ),
        DROPS,
        st.tuples(alternatives("b"), alternatives("c")),
        st.sampled_from([0.0, 1e-6, 0.01, 0.5, 1.0]),
    ),
    st.lists(heldout(DROPS), min_size=5, max_size=5),
    st.booleans(),
    st.tuples(
        st.just(("float", 0.0, 5)),
        st.tuples(st.just("fiq"), DROPS, st.integers(0, 2)),
        st.tuples(st.just(REPAIRED), DROPS, st.integers(0, 2)),
    ),
    st.sampled_from([0.0, 0.01, 0.3]),
    st.sampled_from([0, 1, 250, 12000]),
    st.booleans(),
    st.integers(0, 2),
)


def test_a_cheaper_model_that_is_far_from_float_is_named_with_the_reason() -> None:
    doubted = replace(scores(-0.002, 0, 0, 0.0, "d"), sqnr_db=12.2)
    found = verdict.Findings(
        metric="accuracy",
        yardstick=YARDSTICK,
        references=[],
        picks={"recommended": scores(0.0, 7, 1, 0.3)},
        confidence=confidence(False, math.nan, None, (math.nan, None), 0.0, (None, None)),
        heldout={},
        samples=0,
        feasible=True,
        doubted=doubted,
    )
    expected = (
        "dddddddddd costs an accelerator less and by its score gains 0.2 points, but its outputs are only 12 dB from "
        "float's: there a score does not count if nobody knows how sure it is."
    )
    assert expected in verdict.sentences(found)
    assert not any("dddddddddd" in said for said in verdict.sentences(replace(found, doubted=None)))


NEARLY_FLOAT = "Most of its work is in float: with no float op, `integer` (dddddddddd) "


@pytest.mark.parametrize(
    ("share", "other", "unseen", "accelerated", "known", "told"),
    [
        pytest.param(
            0.9, 0.0, True, True, "b", "loses 3.0 points (95 % interval: 2.0 points to 4.0 points lost).", id="held out"
        ),
        pytest.param(0.9, 0.0, False, True, "b", "loses 2.5 points.", id="search samples"),
        pytest.param(0.5, 0.0, True, True, "b", "", id="half of its work is in integers"),
        pytest.param(0.9, 0.6, True, True, "b", "", id="the other is mostly float, too"),
        pytest.param(0.9, 0.0, True, False, "b", "", id="no accelerator"),
        pytest.param(0.9, 0.0, True, True, "d", "", id="named as cheaper already"),
    ],
)
def test_of_a_model_that_is_mostly_float_it_is_said_what_integers_cost(
    share: float, other: float, unseen: bool, accelerated: bool, known: str, told: str
) -> None:
    measured = Heldout(score=0.87, low=0.8, high=0.9, drop=0.03, drop_low=0.02, drop_high=0.04)
    found = verdict.Findings(
        metric="accuracy",
        yardstick=YARDSTICK,
        references=[],
        picks={"recommended": scores(0.0, 7, 1, share), "integer": scores(0.025, 0, 1, other, "d")},
        confidence=confidence(
            False,
            0.02,
            None,
            (math.nan, None),
            0.0,
            (None, Alternative(id=known * 10, expected=0.0, bound=0.03, left_ops=0, penalty=9.0)),
        ),
        heldout={"a" * 40: measured, "d" * 40: measured} if unseen else {},
        samples=100,
        feasible=True,
        accelerated=accelerated,
    )
    said = " ".join(verdict.sentences(found))
    assert (f"{NEARLY_FLOAT}{told}" in said) == bool(told)
    assert ("Most of its work" in said) == bool(told)


@pytest.mark.parametrize(
    ("contradicted", "outcome"),
    [
        (["b"], "The recommended model is the next one that they do not contradict. Held-out samples have"),
        (["b", "c"], "do not contradict. They also contradict 1 other model that would be preferred."),
        (["b", "a"], "They contradict every other model of the front, too."),
    ],
    ids=["the next", "the third", "none is left"],
)
def test_the_verdict_begins_with_what_held_out_samples_contradict(contradicted: list[str], outcome: str) -> None:
    found = verdict.Findings(
        metric="accuracy",
        yardstick=YARDSTICK,
        references=[],
        picks={"recommended": scores(0.0, 7, 1, 0.5)},
        confidence=confidence(True, 0.01, None, (math.nan, None), 0.0, (None, None)),
        heldout={"b" * 40: Heldout(score=0.8, low=0.7, high=0.9, drop=0.1, drop_low=0.05, drop_high=0.15)},
        samples=100,
        feasible=len(contradicted) == 1,
        contradicted=[scores(0.0, 7, 1, 0.5, letter) for letter in contradicted],
    )
    first, second, *_ = verdict.sentences(found)
    assert first == (
        "The held-out samples contradict what the search samples recommend: bbbbbbbbbb loses 10.0 points (95 % "
        "interval: 5.0 points to 15.0 points lost) there; the limit is 0.9 points."
    )
    assert outcome in second
    assert "none are untouched" in second


def test_a_score_is_said_with_the_interval_that_tables_have() -> None:
    drops = {"drop": 173.3, "drop_low": 148.0, "drop_high": 174.6}
    found = verdict.Findings(
        metric="sqnr_db",
        wide=0,
        yardstick=replace(YARDSTICK, float_score=200.0, allowed_drop=180.0),
        references=[],
        picks={"recommended": scores(173.7, 0, 1, 0.0)},
        confidence=confidence(True, 174.7, None, (1.0, None), 173.7, (None, None)),
        heldout={"a" * 40: Heldout(score=26.7, low=25.4, high=28.0, **drops)},
        samples=50,
        feasible=True,
    )
    assert "it has 26.7 dB (95 % interval: 25.4 to 28 dB)" in " ".join(verdict.sentences(found))


@settings(deadline=None)
@given(FINDINGS)
def test_every_verdict_reads_well(found: verdict.Findings) -> None:
    headline, *_ = told = verdict.sentences(found)
    text = " ".join(told)
    assert headline.startswith(("Recommended is", "No candidate", "On the emulation"))
    assert {fault for fault, pattern in FAULTS.items() if re.search(pattern, text)} == set(), text


@settings(deadline=None)
@given(FINDINGS, st.integers(0, 3), st.booleans())
def test_every_verdict_on_a_chip_reads_well(found: verdict.Findings, left: int, accelerated: bool) -> None:
    picks = {name: replace(own, off_chip=left) for name, own in found.picks.items()}
    told = verdict.sentences(replace(found, picks=picks, chip="the NPU", accelerated=accelerated))
    text = " ".join(told)
    assert {fault for fault, pattern in FAULTS.items() if re.search(pattern, text)} == set(), text


@pytest.mark.parametrize(
    "fault",
    [
        ("a blank too many", "It loses  1.0 point."),
        ("a negative loss", "It loses -0.005013 accuracy."),
        ("a dangling no", "All-integer loses no, it does."),
        ("no number", "It loses nan points."),
        ("many of one", "It loses 1.0 points."),
        ("one of many", "It has 5 float op."),
        ("a number without its unit", "With 5 it loses nothing."),
    ],
    ids=lambda fault: fault[0],
)
def test_each_fault_would_be_seen(fault: tuple[str, str]) -> None:
    assert re.search(FAULTS[fault[0]], fault[1])
