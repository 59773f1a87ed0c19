"""Verdicts, each of a run of its own kind. Their texts are in ``verdicts.md``, one sentence a line.

``PYTHONPATH=. .venv/bin/python tests/study/test_verdict_texts.py`` writes them anew.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # where it is run as a program

import pytest
from test_certainty import YARDSTICK, scored

from autoselect.domain.objectives import Constraints
from autoselect.runs.records import Heldout
from autoselect.scoring.target_file import read_target
from autoselect.study.finishing import certainty, verdict
from autoselect.study.references import Reference
from autoselect.study.setup.baselines import REPAIRED

NO_LIMITS = Constraints()
TEXTS = Path(__file__).with_name("verdicts.md")

FLOAT = Reference(name="float", sha256="float", metric=0.9, size_bytes=1000, penalty=80.0)
FIQ = Reference(name="fiq", sha256="fiq", metric=0.7, size_bytes=250, penalty=0.0)
SURE = certainty.Confidence(
    id="aaaaaaaaaa", certified=True, bound=0.008, least_bound=0.007, samples_needed=400, resampled=0.83
)
UNSURE = replace(SURE, certified=False, bound=0.03, least_bound=0.025, samples_needed=1100, chance_to_break=0.23)
OTHER = certainty.Alternative(id="c" * 10, expected=0.009, bound=0.031, left_ops=1, penalty=4.0, saved=0.179)
BLIND = replace(
    SURE,
    certified=False,
    bound=math.nan,
    samples_needed=None,
    resampled=math.nan,
    unknown=certainty.Unknown.ONE_NUMBER,
)
HELDOUT = {
    "float": Heldout(score=0.92, low=0.9, high=0.94),
    "fiq": Heldout(score=0.75, low=0.7, high=0.8, drop=0.17, drop_low=0.1, drop_high=0.2),
    "aaaa" * 10: Heldout(score=0.917, low=0.9, high=0.93, drop=0.003, drop_low=-0.005, drop_high=0.011),
}


def verdict_of(
    confidence: certainty.Confidence | None,
    heldout: dict[str, Heldout],
    *,
    references: Sequence[Reference] = (FLOAT, FIQ),
    feasible: bool = True,
    accelerated: bool = True,
    integer_error: str = "",
    chip: str = "",
    constraints: Constraints = NO_LIMITS,
    **known: Any,
) -> str:
    found = verdict.Findings(
        metric="accuracy",
        yardstick=replace(YARDSTICK, constraints=constraints),
        references=references,
        picks={}
        if confidence is None
        else {"recommended": scored("a" * 4, 0.002, **{"float_ops": 5, "segments": 2, **known})},
        confidence=confidence,
        heldout=heldout,
        samples=250,
        feasible=feasible,
        accelerated=accelerated,
        integer_error=integer_error,
        chip=chip,
    )
    return "\n".join(verdict.sentences(found))


SURER = replace(OTHER, id="b" * 10, bound=0.007, left_ops=2)
SELDOM = replace(SURE, resampled=0.02, resampled_penalties=(0.2, 1.04))
WORSE = {**HELDOUT, "repaired": Heldout(score=0.6, low=0.5, high=0.7, drop=0.32)}
WITH_REPAIRS = Reference(name=REPAIRED, sha256="repaired", metric=0.6, size_bytes=250, penalty=0.0)
DIVIDES = "op 11 (DIV) divides by integers, and one that it divides by was rounded to 0."
NPU: dict[str, Any] = {"accelerated": False, "chip": "the NPU"}
CHEAPER = replace(SURE, cheaper=OTHER)

KINDS: dict[str, tuple[certainty.Confidence | None, dict[str, Heldout], dict[str, Any]]] = {
    "the limit is kept for sure": (SURE, HELDOUT, {}),
    "half of the resamples recommend another": (replace(SELDOM, resampled=0.5), HELDOUT, {}),
    "most resamples recommend another": (SELDOM, HELDOUT, {}),
    "most resamples recommend another of the same penalty": (
        replace(SELDOM, resampled_penalties=(0.51, 0.52)),
        HELDOUT,
        {},
    ),
    "the all-integer model was not scored on held-out samples": (
        SURE,
        {name: score for name, score in HELDOUT.items() if name != "fiq"},
        {},
    ),
    "resamples could not be measured": (
        replace(SURE, resampled=math.nan, not_resampled="The worker died."),
        {},
        {},
    ),
    "the samples cannot show it": (UNSURE, HELDOUT, {}),
    "the limit is missed by a hair": (replace(UNSURE, bound=0.0102, surer=SURER), HELDOUT, {}),
    "nothing was scored": (None, {}, {}),
    "only float is a better trade, and there are more samples than would show it": (
        replace(UNSURE, chance_to_break=1.0, float_is_better=True, samples_needed=3),
        HELDOUT,
        {},
    ),
    "a surer and a cheaper model": (replace(UNSURE, surer=SURER, cheaper=OTHER), HELDOUT, {}),
    "a cheaper model beside a sure one": (CHEAPER, HELDOUT, {}),
    "a cheaper model with no worse a bound": (replace(SURE, cheaper=replace(OTHER, bound=SURE.bound)), HELDOUT, {}),
    "a cheaper model that is proven, too": (
        replace(SURE, cheaper=replace(OTHER, bound=0.0095, certified=True)),
        HELDOUT,
        {},
    ),
    "the limit is expected to be broken": (replace(UNSURE, expected=0.014, chance_to_break=0.8), HELDOUT, {}),
    "the limit is expected to be kept": (replace(UNSURE, expected=0.01), HELDOUT, {}),
    "no candidate meets all limits": (UNSURE, HELDOUT, {"feasible": False}),
    "no candidate meets all limits, and it is known which are missed": (
        UNSURE,
        HELDOUT,
        {"feasible": False, "constraints": Constraints(max_drop=0.5, max_size_bytes=10.0, max_penalty=1.0)},
    ),
    "a cheaper model costs nothing": (
        replace(SURE, cheaper=replace(OTHER, bound=0.0095, certified=True, penalty=0.0, saved=1.0)),
        HELDOUT,
        {},
    ),
    "repairs harm the all-integer model": (SURE, WORSE, {"references": [FLOAT, FIQ, WITH_REPAIRS]}),
    "the repaired integer model is alone": (SURE, WORSE, {"references": [FLOAT, WITH_REPAIRS]}),
    "the repaired integer model is alone, and why": (
        SURE,
        WORSE,
        {"references": [FLOAT, WITH_REPAIRS], "integer_error": DIVIDES},
    ),
    "the integer model could not be scored": (SURE, HELDOUT, {"references": [FLOAT], "integer_error": DIVIDES}),
    "an op of the integer model is float": (
        SURE,
        HELDOUT,
        {"references": [FLOAT, replace(FIQ, quantities={"float_ops": 1.0})]},
    ),
    "nothing runs on the accelerator": (SURE, HELDOUT, {"float_macs_share": 1.0}),
    "hardly anything runs on the accelerator": (SURE, HELDOUT, {"float_macs_share": 0.9}),
    "the target runs float ops too": (CHEAPER, HELDOUT, {"float_macs_share": 1.0, "accelerated": False}),
    "the target runs float ops too, and nothing is sure": (
        UNSURE,
        HELDOUT,
        {"float_macs_share": 1.0, "accelerated": False},
    ),
    "a chip leaves some ops": (CHEAPER, HELDOUT, {**NPU, "segments": 3, "off_chip": 7, "float_ops": 2}),
    "a chip leaves one op": (CHEAPER, HELDOUT, {**NPU, "segments": 1, "off_chip": 1, "float_ops": 0}),
    "a chip leaves no op": (
        replace(UNSURE, cheaper=OTHER),
        HELDOUT,
        {**NPU, "segments": 1, "off_chip": 0, "float_ops": 0},
    ),
    "a chip takes nothing": (CHEAPER, HELDOUT, {**NPU, "segments": 0, "off_chip": 9}),
    **{
        f"no interval is known: {unknown.name.lower()}": (replace(BLIND, unknown=unknown), HELDOUT, {})
        for unknown in certainty.Unknown
    },
}
"""What is known of each run: how sure the recommendation is, held-out scores, and what else is unlike the first."""


def texts() -> dict[str, str]:
    """The verdict of each kind of run."""
    return {kind: verdict_of(confidence, heldout, **known) for kind, (confidence, heldout, known) in KINDS.items()}


def written() -> dict[str, str]:
    """The same as they were reviewed."""
    _, *parts = re.split(r"^## ", TEXTS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {kind: text.strip() for kind, _, text in (part.partition("\n") for part in parts)}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_run_has_the_verdict_that_was_reviewed(kind: str) -> None:
    assert texts()[kind] == written()[kind]


def test_no_other_verdict_was_reviewed() -> None:
    assert list(written()) == list(KINDS)


def test_verdicts_name_what_there_is_and_nothing_else() -> None:
    """No accelerator if the target runs float ops too, no float op if there is none, an evaluator if it is to blame."""
    said = texts()
    assert not [kind for kind, text in said.items() if kind.startswith("the target runs") and "accelerator" in text]
    assert not [kind for kind in ("a chip leaves one op", "a chip leaves no op") if "float op" in said[kind]]
    assert "all-integer" not in said["an op of the integer model is float"]
    unknown = [kind for kind in said if kind.startswith("no interval is known")]
    assert [kind for kind in unknown if "evaluator" in said[kind]] == ["no interval is known: one_number"]
    cycles = replace(SELDOM, resampled_penalties=(94_522.5, 407_523.0))
    assert "94,522 to 407,523 NPU cycles" in verdict._others(cycles, "NPU cycles")


def test_which_targets_run_integers_faster_and_nothing_else() -> None:
    targets = [path.stem for path in (Path(__file__).parents[2] / "search_spaces" / "targets").glob("*.toml")]
    phones = {t for t in targets if t.startswith("qualcomm-")}
    assert phones
    assert {t for t in targets if not read_target(t).accelerates_integers_alone} == {"litert-cpu", "tflm", *phones}


if __name__ == "__main__":
    title = "# Verdicts, one for each kind of run\n"
    TEXTS.write_text(title + "".join(f"\n## {kind}\n\n{text}\n" for kind, text in texts().items()), encoding="utf-8")
