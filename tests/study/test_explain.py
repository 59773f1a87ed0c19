"""What is written of nodes and islands, on a problem whose forecasts are known."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic import chain_of

from autoselect.cases.events import StageStarted, StepFinished
from autoselect.domain.recipe import Recipe
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import Scores, TrialRecord
from autoselect.study.finishing.explain import ISLAND_COLUMNS, SENSITIVITY_COLUMNS, write_explanations
from autoselect.study.proposing.mask import Mask, Units
from autoselect.study.proposing.problem import Problem
from autoselect.study.stage_clock import StageClock, earlier_seconds

PRIORS = [0.4, 0.01, 0.01, 0.2]


def record(problem: Problem, left_out: Units, drop: float, repairs: tuple[str, ...] = ()) -> TrialRecord:
    """A scored candidate; its divergence is the sum of what it keeps in integers, and a little."""
    forecast = problem.forecast(Mask(left_out))
    divergence = 1e-3 + sum(p for i, p in enumerate(PRIORS) if not left_out >> i & 1)
    scores = Scores(
        sha256=f"{left_out:064x}"[::-1],
        metric=0.9 - drop,
        drop=drop,
        drop_noise=0.0,
        sqnr_db=-10 * math.log10(divergence),
        size_bytes=forecast.size_bytes,
        penalty=forecast.penalty,
        segments=1,
        float_ops=left_out.bit_count(),
        crossing_tensors=0,
        crossing_bytes=0,
        float_macs_share=0.0,
        samples=10,
        build_seconds=0.0,
        score_seconds=0.0,
        inference_seconds=0.0,
    )
    return TrialRecord(
        number=left_out,
        origin="surrogate",
        recipe=Recipe(denylisted_nodes=problem.nodes_of(Mask(left_out)), repairs=repairs),
        scores=scores,
        reused=False,
        error=None,
    )


def written(folder: RunFolder) -> tuple[pd.DataFrame, pd.DataFrame]:
    sensitivity, islands = pd.read_csv(folder.sensitivity), pd.read_csv(folder.islands, dtype={"id_without": str})
    assert tuple(sensitivity.columns) == SENSITIVITY_COLUMNS
    assert tuple(islands.columns) == ISLAND_COLUMNS
    return sensitivity, islands


def test_before_the_first_trial_only_the_probes_are_known(tmp_path: Path) -> None:
    write_explanations(RunFolder(tmp_path), chain_of(PRIORS), Recipe(), [], {})
    sensitivity, islands = written(RunFolder(tmp_path))
    assert sensitivity["probe"].tolist() == PRIORS
    assert sensitivity["estimate"].isna().all()
    assert islands.empty


def test_islands_cost_what_the_forecasts_say_and_buy_what_was_measured(tmp_path: Path) -> None:
    problem = chain_of(PRIORS)
    drops = {0b0000: 0.3, 0b1111: 0.0, 0b1001: 0.01, 0b0001: 0.1}
    records = [record(problem, left_out, drop) for left_out, drop in drops.items()]
    pick = records[2]
    write_explanations(RunFolder(tmp_path), problem, Recipe(), records, {"balanced": pick.id, "integer": pick.id})
    sensitivity, islands = written(RunFolder(tmp_path))
    assert sensitivity["estimate"].idxmax() == 0
    assert islands["id"].nunique() == 1
    assert [set(json.loads(nodes)) for nodes in islands["nodes"]] == [
        problem.nodes_of(Mask(0b0001)),
        problem.nodes_of(Mask(0b1000)),
    ]
    for row, rest in zip(islands.itertuples(), (0b1000, 0b0001), strict=True):
        whole, less = problem.forecast(Mask(0b1001)), problem.forecast(Mask(rest))
        assert row.size_bytes == whole.size_bytes - less.size_bytes
        assert row.penalty == pytest.approx(whole.penalty - less.penalty)
        assert row.divergence_without > row.divergence
        assert row.drop_gain > 0
    # The pick without its second island was scored, without its first it was not.
    assert islands["drop_without"].isna().tolist() == [True, False]
    assert islands.loc[1, "drop_without"] == 0.1
    assert islands.loc[1, "id_without"] == records[3].id


def test_of_models_that_were_compiled_an_island_costs_what_these_do(tmp_path: Path) -> None:
    """The compiler's figures for both are far from the forecasts, and have the other sign."""
    problem = chain_of(PRIORS)
    whole, without = record(problem, 0b1001, 0.01), record(problem, 0b0001, 0.1)
    scores = whole.scores, without.scores
    compiled = [
        replace(one, scores=replace(measured, penalty=penalty))
        for one, measured, penalty in zip((whole, without), scores, (8374.0, 12202.0), strict=True)
        if measured is not None
    ]
    write_explanations(RunFolder(tmp_path), problem, Recipe(), compiled, {"accurate": whole.id})
    _, islands = written(RunFolder(tmp_path))
    less = problem.forecast(Mask(0b1001)).penalty - problem.forecast(Mask(0b1000)).penalty
    assert islands["penalty"].tolist() == pytest.approx([less, -3828.0])


def test_in_a_mixed_search_an_island_in_float_is_compared_with_what_was_scored_without_it(tmp_path: Path) -> None:
    problem = chain_of(PRIORS, hybrid=True, mixed=True)
    whole, without = record(problem, 0b1001, 0.01), record(problem, 0b0001, 0.1)
    pick = replace(whole, recipe=Recipe(denylisted_nodes=frozenset({"n0", "n3"}), float_nodes=frozenset({"n3"})))
    write_explanations(RunFolder(tmp_path), problem, Recipe(), [without, pick], {"balanced": pick.id})
    _, islands = written(RunFolder(tmp_path))
    assert islands["id_without"].tolist()[1] == without.id


def test_a_pick_whose_biases_were_corrected_further_is_explained_and_taught(tmp_path: Path) -> None:
    problem, template = chain_of(PRIORS, repair_sets=(("bias",), ("bias-sequential",))), Recipe(repairs=("bias",))
    records = [record(problem, left_out, drop, ("bias",)) for left_out, drop in {0b0000: 0.3, 0b1111: 0.0}.items()]
    pick = record(problem, 0b1001, 0.01, ("bias-sequential",))
    write_explanations(RunFolder(tmp_path), problem, template, [*records, pick], {"balanced": pick.id})
    with_pick, islands = written(RunFolder(tmp_path))
    assert islands["id"].astype(str).eq(pick.id).sum() == 2
    write_explanations(RunFolder(tmp_path), problem, template, records, {})
    without, _ = written(RunFolder(tmp_path))
    assert not np.allclose(with_pick["estimate"], without["estimate"])


def test_the_clock_adds_up_stages_and_passes_everything_on() -> None:
    now, heard = [10.0], []
    clock = StageClock(heard.append, before={"trials": 5.0}, clock=lambda: now[0])
    assert clock.seconds() == {"trials": 5.0}
    for stage, lasts in (("model", 1.0), ("trials", 2.0), ("heldout", 4.0), ("trials", 8.0)):
        clock(StageStarted(stage=stage))
        clock(StepFinished(stage=stage))
        now[0] += lasts
    assert clock.seconds() == {"trials": 15.0, "model": 1.0, "heldout": 4.0}
    assert clock.elapsed() == 15.0
    assert len(heard) == 8


@pytest.mark.parametrize(
    ("summary", "expected"),
    [(None, {}), ("{", {}), ("{}", {}), ('{"seconds": {"trials": 3}}', {"trials": 3.0})],
    ids=["none", "damaged", "old", "known"],
)
def test_seconds_of_earlier_processes(tmp_path: Path, summary: str | None, expected: dict[str, float]) -> None:
    folder = RunFolder(tmp_path)
    if summary is not None:
        folder.summary.write_text(summary)
    assert earlier_seconds(folder) == expected
