"""The search benchmark: its samplers' names, and its tables of what is recommended."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from autoselect.errors import UsageError
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.proposers import Proposer
from autoselect.study.recording.samplers import check_sampler

BENCHMARK = Path(__file__).resolve().parents[1] / "experiments" / "search_benchmark"


@pytest.fixture
def regret(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """experiments/search_benchmark/regret.py, with its own neighbours: other experiments have files of these names."""
    monkeypatch.syspath_prepend(str(BENCHMARK))
    for path in BENCHMARK.glob("*.py"):
        monkeypatch.setitem(sys.modules, path.stem, None)  # What is imported instead goes with the test.
        del sys.modules[path.stem]
    monkeypatch.setenv("AUTOSELECT_REAL_DATA", "nowhere")
    return importlib.import_module("regret")


Baselines = Callable[[str], Proposer]


@pytest.fixture
def baselines(regret: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Baselines:
    """The samplers to compare with by name, on three units whose ranking is 1, 0, 2."""
    monkeypatch.syspath_prepend(str(BENCHMARK.parents[1] / "tests" / "study"))
    problem = importlib.import_module("synthetic").chain_of([0.2, 0.5, 0.1])
    made = importlib.import_module("baseline_samplers").BASELINES
    return lambda name: made[name](problem, 0, None)


def scored(left_out: int, loss: float | None = 0.5) -> Seen:
    return Seen(mask=Mask(left_out), loss=loss, log_divergence=0.0, share=1.0, size_bytes=100, penalty=1.0)


def told(proposer: Proposer, losses: Mapping[int, float | None], known: tuple[int, ...] = ()) -> list[int]:
    """What it proposes one after the other until it ends, told the losses; others lose 0.5."""
    seen = [scored(left_out, losses.get(left_out, 0.5)) for left_out in known]
    while (mask := proposer.propose(seen, [])) is not None:
        seen.append(scored(mask.left_out, losses.get(mask.left_out, 0.5)))
    return [s.mask.left_out for s in seen[len(known) :]]


SEQUENCES = {
    "prefix": ("prefix", (), [0b000, 0b010, 0b011, 0b111]),
    "prefix, some known": ("prefix", (0b000, 0b011), [0b010, 0b111]),
    "heuristic, known": ("heuristic", (0b000,), []),
}


@pytest.mark.parametrize(("name", "known", "expected"), SEQUENCES.values(), ids=SEQUENCES)
def test_sequences_by_hand(baselines: Baselines, name: str, known: tuple[int, ...], expected: list[int]) -> None:
    assert told(baselines(name), {}, known) == expected


def test_searches_know_the_samplers_to_compare_with_inside_of_the_benchmark_alone(regret: ModuleType) -> None:
    module = importlib.import_module("baseline_samplers")
    with module.known():
        for name in module.BASELINES:
            check_sampler(name)
    with pytest.raises(UsageError, match="no sampler 'greedy'"):
        check_sampler("greedy")


GREEDY = {
    "each step helps": ({0: 0.9, 0b010: 0.8, 0b011: 0.7, 0b111: 0.6}, (0,), [0b010, 0b011, 0b111]),
    "the first step is taken back": (
        {0: 0.5, 0b010: 0.6, 0b001: 0.4, 0b101: 0.3, 0b111: 0.2},
        (0,),
        [0b010, 0b001, 0b101, 0b111],
    ),
    "a refused unit comes again after the next step that helps": (
        {0: 1.0, 0b010: 0.5, 0b011: 0.6, 0b110: 0.4, 0b111: 0.5},
        (0,),
        [0b010, 0b011, 0b110, 0b111],
    ),
    "a step that changes nothing is taken back": ({0: 0.5, 0b010: 0.5}, (0,), [0b010, 0b001, 0b100]),
    "a dropped candidate is no help": ({0: 0.5, 0b010: None, 0b001: 0.4}, (0,), [0b010, 0b001, 0b101, 0b011]),
    "no step helps": ({0: 0.1}, (0,), [0b010, 0b001, 0b100]),
    "all prefixes are known": (
        {0: 0.5, 0b010: 0.6, 0b011: 0.7, 0b111: 0.8, 0b001: 0.6, 0b100: 0.7},
        (0, 0b010, 0b011, 0b111),
        [0b001, 0b100],
    ),
}


@pytest.mark.parametrize(("losses", "known", "expected"), GREEDY.values(), ids=GREEDY)
def test_greedy_steps_by_hand(
    baselines: Baselines, losses: dict[int, float | None], known: tuple[int, ...], expected: list[int]
) -> None:
    assert told(baselines("greedy"), losses, known) == expected


def test_greedy_looks_ahead_while_its_step_is_under_way(baselines: Baselines) -> None:
    greedy = baselines("greedy")
    seen = [scored(0, 0.9)]
    assert greedy.propose(seen, []) == Mask(0b010)
    assert greedy.propose(seen, [Mask(0b010)]) == Mask(0b011)
    assert greedy.propose(seen, [Mask(0b010), Mask(0b011)]) == Mask(0b111)
    # The step did not help: the next goes on from all-integer with the next unit.
    assert greedy.propose([*seen, scored(0b010, 0.95)], [Mask(0b011), Mask(0b111)]) == Mask(0b001)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tpe", {"sampler": "tpe", "repairs": False, "int16": False, "racing": True}),
        ("surrogate+full", {"sampler": "surrogate", "repairs": False, "int16": False, "racing": False}),
        (
            "surrogate+search+int16+repairs",
            {"sampler": "surrogate", "repairs": True, "int16": True, "racing": True, "fallback": "search"},
        ),
    ],
)
def test_words_behind_a_sampler_are_settings(regret: ModuleType, name: str, words: dict[str, Any]) -> None:
    assert importlib.import_module("bench").options_of(name) == words


def test_a_word_that_means_nothing_is_refused(regret: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"\brepair\.$"):
        importlib.import_module("bench").options_of("tpe+repair")


def row(sampler: str, seed: int, evaluations: float, **figures: float) -> dict[str, Any]:
    known = {"penalty": 15.0, "least": 10.0, "tried": 12.0, "broken": 0.0, "spent": 42.0, "probes": 2.0, "trials": 100}
    about = {"case": "made up", "sampler": sampler, "seed": seed, "evaluations": evaluations, "allowed": 0.01}
    return {**about, **known, "volume": 0.5, "size_bytes": 42_500, "drop": 0.0025, "seconds": 30.0, **figures}


def test_regret_is_what_was_not_tried_and_what_was_not_chosen(regret: ModuleType) -> None:
    seeds = [row("tpe", 0, 30.0), row("tpe", 1, 30.0, tried=10.0, penalty=11.0), row("tpe", 2, 30.0, penalty=20.0)]
    lines = regret.table_of(pd.DataFrame(seeds)).splitlines()
    cells = [line.split(" | ") for line in lines if line.startswith("| tpe | 3 |")]
    assert [found[4] for found in cells] == ["5.0 (0%)", "1.3 + 4.0"]


def test_what_is_recommended_at_the_end_is_told_with_its_size_and_drop(regret: ModuleType) -> None:
    seeds = [row("tpe", seed, regret.END, allowed=share) for seed in (0, 1) for share in regret.ALLOWED]
    lines = regret.table_of(pd.DataFrame(seeds)).splitlines()
    assert lines[-1] == f"| tpe | 2 |{3 * ' 15.0, 42.5 kB, 0.25 % |'} 30 |"


def test_races_are_compared_with_full_scores_of_the_same_seeds(regret: ModuleType) -> None:
    name = "surrogate+search"
    raced = [row(name, seed, regret.END, spent=spent) for seed, spent in ((0, 52.0), (1, 62.0), (2, 99.0))]
    full = [row(f"{name}+full", seed, regret.END, spent=102.0, penalty=14.0) for seed in (0, 1)]
    lines = regret.races_of(pd.DataFrame([*raced, *full, row("tpe", 0, regret.END)])).splitlines()
    assert lines[-2:] == [
        "| made up | surrogate+search | 2 | 100 | 55.0 (57.0) | – | 5.0 (0%) | – |",
        "| made up | surrogate+search+full | 2 | 100 | 100.0 (102.0) | – | 4.0 (0%) | – |",
    ]


def test_the_tables_of_regret_are_what_was_measured(regret: ModuleType) -> None:
    results = BENCHMARK / "results"
    rows = pd.read_csv(results / "regret.csv")
    assert regret.table_of(rows) == (results / "regret.md").read_text(encoding="utf-8")
    assert regret.races_of(rows) == (results / "races.md").read_text(encoding="utf-8")


def test_the_page_of_comparisons_shows_rows_of_these_tables() -> None:
    page = (BENCHMARK.parents[1] / "docs" / "comparison.md").read_text(encoding="utf-8")
    cited = page.split("## Samplers of these tools")[1].splitlines()
    rows = [line for line in cited if line.startswith("| `")]
    tables = (BENCHMARK / "results" / "regret.md").read_text(encoding="utf-8").splitlines()
    assert len(rows) >= 5
    assert [line for line in rows if line.replace("`", "") not in tables] == []
