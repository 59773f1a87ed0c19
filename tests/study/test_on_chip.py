"""What the emulation of a chip changes: who is judged by its score, and what the verdict says of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import test_front_members as fronts
from reviewing import Reviewed

from autoselect.cases.chip_jobs import ChipReply, Emulated
from autoselect.domain.picks import named_picks
from autoselect.runs.records import Heldout, TrialRecord, scores_of
from autoselect.scoring.target_file import read_target
from autoselect.study.finishing import finish, on_chip
from autoselect.study.finishing.certainty import confidence_of, standings_of
from autoselect.study.finishing.verdict import chip_scores
from autoselect.study.proposing.hypervolume_gain import fit_link

SAME = Emulated(
    samples=100,
    chip=0.92,
    cpu=0.92,
    reference=0.93,
    drop=0.01,
    noise=0.01,
    bound=0.03,
    lost=0.0,
    lost_noise=0.01,
    low=-0.01,
    high=0.01,
)
WORSE = replace(SAME, chip=0.65, drop=0.28, bound=0.33, lost=0.27, low=0.2, high=0.3)
UNPROVEN = replace(WORSE, low=-0.2, high=0.7)
SMALL = replace(SAME, chip=0.915, drop=0.015, lost=0.005, low=-0.005, high=0.015)

DIFFERS = {
    "equal": (SAME, False),
    "worse for sure": (WORSE, True),
    "much worse, but not for sure": (UNPROVEN, True),
    "a little worse, within noise and what is allowed": (SMALL, False),
    "one of a hundred samples lost, which is more than is allowed": (replace(SMALL, lost=0.011), False),
    "better for sure": (replace(SAME, lost=-0.05, low=-0.08, high=-0.02), True),
    "an evaluator of one number, as good": (replace(SAME, lost_noise=math.nan, low=math.nan, high=math.nan), False),
    "an evaluator of one number, much worse": (replace(WORSE, lost_noise=math.nan, low=math.nan, high=math.nan), True),
}


@pytest.mark.parametrize(("seen", "differs"), DIFFERS.values(), ids=DIFFERS)
def test_a_score_is_another_by_more_than_noise_or_by_what_is_not_allowed(seen: Emulated, differs: bool) -> None:
    assert seen.differs(allowed_drop=0.01) is differs


@pytest.mark.parametrize(
    ("drop", "bound", "breaks"),
    [(0.05, 0.08, True), (0.05, 0.1, False), (0.015, math.nan, False), (0.021, math.nan, True)],
    ids=["for sure", "perhaps", "one number: less than twice the limit", "one number: more than twice"],
)
def test_the_limit_is_broken_on_the_chip_if_few_samples_cannot_explain_it(
    drop: float, bound: float, breaks: bool
) -> None:
    rule, seen = replace(fronts.YARDSTICK, allowed_drop=0.01).rule, replace(SAME, drop=drop, bound=bound)
    assert rule.is_contradicted(seen.drop, seen.drop_low) is breaks


def found(**emulated: Emulated) -> on_chip.OnChip:
    made: dict[str, Any] = {"segments": 1, "host_ops": {}, "left": {}, "ddr_bytes": 5, "moved": {}, "cost": 2.0}
    return on_chip.OnChip(
        chip="chip", compiled=dict.fromkeys(emulated, made), emulated=emulated, allowed_drop=0.01, versions={}
    )


def records() -> list[TrialRecord]:
    return [fronts.record(number, *fronts.CLOSE, 100) for number in (1, 2)]


def test_only_models_that_score_otherwise_are_judged_by_the_chip() -> None:
    first, second = records()
    judged = on_chip.by_chips([first, second], [found(**{first.id: SAME, second.id: WORSE})])
    assert judged[0] is first
    assert judged[1].scores is not None
    assert (judged[1].scores.metric, judged[1].scores.drop, judged[1].scores.drop_bound) == (0.65, 0.28, 0.33)


@pytest.mark.parametrize(("measured", "bound"), [(0.33, 0.33), (math.nan, math.inf)], ids=["bounded", "no bound"])
def test_what_the_cpus_scores_say_of_closeness_does_not_move_a_score_of_the_chip(measured: float, bound: float) -> None:
    first, _ = records()
    worse = replace(WORSE, chip_sqnr_db=10.0, noise=0.05, bound=measured)
    judged = on_chip.by_chips([first], [found(**{first.id: worse})])
    closeness = np.linspace(-9.0, -1.0, 9)  # The CPU loses next to nothing, whatever the closeness.
    link = fit_link(closeness, np.linspace(0.0, 0.01, 9))
    (standing,) = standings_of(judged, link)
    assert (standing.drop, standing.bound) == pytest.approx((WORSE.drop, bound))


def test_of_several_chips_the_one_that_loses_most_counts() -> None:
    first, _ = records()
    judged = on_chip.by_chips([first], [found(**{first.id: WORSE}), found(**{first.id: replace(WORSE, drop=0.5)})])
    assert judged[0].scores is not None
    assert judged[0].scores.drop == 0.5


def test_what_a_member_costs_by_several_compilers_is_told(reviewed: Reviewed) -> None:
    costs = {
        "first": {"a": 214.0, "b": 187.0},
        "second": {"a": 7.27, "b": 6.97},
        "free": {"a": 0.0},
        "other": {"b": 1.0},
    }
    chips = [
        on_chip.OnChip(chip=name, compiled={key: {"cost": cost} for key, cost in of_model.items()})
        for name, of_model in costs.items()
    ]
    reviewed("what a member costs by several compilers", on_chip.by_compilers("a", chips))
    assert on_chip.by_compilers("c", chips) == []


def test_the_verdict_names_models_that_score_otherwise_and_no_others(reviewed: Reviewed) -> None:
    first, second = records()
    said = chip_scores([found(**{first.id: SAME, second.id: WORSE})], first.id, {"fiq": second}, "accuracy")
    reviewed("one of two models scores otherwise on the chip", said)
    assert chip_scores([found(**{first.id: SAME})], first.id, {}, "accuracy") == []


class Compiles:
    """A pool whose compiler moves so many bytes of each model out of the chip's memory."""

    def __init__(self, *spilled: int) -> None:
        self._spilled = list(spilled)

    def submit(self, *_arguments: Any, **_options: Any) -> Future[ChipReply]:
        done, spilled = Future[ChipReply](), self._spilled.pop(0)
        scores = fronts.record(1, *fronts.CLOSE, 100).scores
        assert scores is not None
        cut = {name: getattr(scores, name) for name in on_chip._FIGURES}
        moved = {"spill": spilled, "fill": spilled}
        done.set_result(ChipReply(fragmentation=cut, compiled={"moved": moved, "cost": 1.0}))
        return done


@pytest.mark.parametrize(("spilled", "words"), [((0, 0), None), ((0, 700), "1 model"), ((900, 500), "2 models")])
def test_models_that_spill_are_told(spilled: tuple[int, int], words: str | None) -> None:
    events = list[object]()
    front, target = records(), read_target("qualcomm-sm8750")
    _, seen = on_chip.compiled(front, 0, target, 1.0, Path(), Compiles(*spilled), events.append)  # type: ignore[arg-type]
    assert len(seen.messages) == (words is not None)
    if words is not None:
        most = front[spilled.index(max(spilled))].id
        assert f"{words} of the front: {most} moves {2 * max(spilled):,} bytes" in seen.messages[0]


def test_a_model_that_the_chip_ruins_does_not_replace_one_that_held_out_samples_contradict() -> None:
    """The second model is the cheapest that these samples, which ran on the CPU, do not contradict."""
    members = [
        replace(one, scores=replace(scores_of([one])[0], penalty=penalty))
        for one, penalty in zip(records(), (1.0, 5.0), strict=True)
    ]
    slightly = {members[0].id: heldout(0.12, 0.1), members[1].id: heldout(0.0, -0.01)}
    ruined, rescued = ({members[1].id: replace(WORSE, drop=drop, bound=drop + 0.1)} for drop in (9.0, 0.01))
    picks = [reconsidered(members, [found(**one)], slightly) for one in (ruined, rescued)]
    assert [chosen["recommended"] for chosen in picks] == [members[0].id, members[1].id]


def heldout(drop: float, low: float) -> Heldout:
    return Heldout(score=8.0 - drop, drop=drop, drop_low=low, drop_high=drop + 0.02)


def reconsidered(
    members: list[TrialRecord], chips: list[on_chip.OnChip], heldout_of: dict[str, Heldout]
) -> Mapping[str, str]:
    """The picks once held-out samples have been scored."""
    judged = on_chip.by_chips(members, chips)
    standings = standings_of(judged, None)
    confidence = confidence_of(judged, scores_of(members), fronts.YARDSTICK, Path(), None)
    picks = dict(named_picks(standings, fronts.YARDSTICK.rule))
    choice = finish._Choice(
        front=members, judged=judged, standings=standings, picks=picks, confidence=confidence, chips=chips
    )
    case: Any = SimpleNamespace(files=SimpleNamespace(root=Path()))
    nothing: Any = None
    ending = finish.Finish(
        folder=nothing, case=case, settings=nothing, objectives=fronts.OBJECTIVES, yardstick=fronts.YARDSTICK
    )
    by_hash = {s.sha256: heldout_of[s.sha256[:10]] for s in scores_of(members)}
    return ending._reconsidered(choice, by_hash, {}, scores_of(members)).picks
