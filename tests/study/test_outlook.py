from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import cycle, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zoo
from fakes import table
from settling import settled

from autoselect.cases.events import Event, StageStarted, ignore
from autoselect.cases.files import CaseFiles
from autoselect.domain.graph import peak_activation_bytes
from autoselect.domain.objectives import Constraints
from autoselect.domain.recipe import Recipe
from autoselect.domain.search_space import BoundSpace, Toggle
from autoselect.domain.states import EXACT, further_of, states_of
from autoselect.errors import BuildError, JobFailed, ScoreError
from autoselect.scoring.target_file import read_target
from autoselect.scoring.target_penalty import on_target, refusal
from autoselect.study.proposing.mask import Mask, bits
from autoselect.study.proposing.problem import NO_RULE, Problem, Unit
from autoselect.study.setup import problem as problem_module
from autoselect.study.setup.probing import probe_count, probe_samples, probed
from autoselect.study.setup.problem import forecaster, make_problem


@pytest.mark.parametrize(
    ("search_samples", "expected"), [(0, 8), (1, 2), (15, 2), (16, 2), (24, 3), (63, 7), (64, 8), (1000, 8)]
)
def test_a_probe_takes_an_eighth_of_a_candidate_between_two_and_eight(search_samples: int, expected: int) -> None:
    assert probe_samples(search_samples) == expected


class Probes:
    """Answers for each unit what it does alone: error shares, or an error."""

    def __init__(self, answers: list[list[float] | Exception]) -> None:
        self._answers = iter(answers)

    def submit(self, *_: Any, **__: Any) -> Future[list[float]]:
        future: Future[list[float]] = Future()
        answer = next(self._answers)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future


def try_alone(
    answers: list[list[float] | Exception], count: int, statistics: Sequence[float] = (7.0,)
) -> tuple[list[float], tuple[str, ...]]:
    """Sensitivities and remarks for units of whom the statistics say these in turns."""
    known = islice(cycle(statistics), count)
    units = [Unit(nodes=frozenset({f"n{i}"}), op_type="ADD", position=i, sensitivity=s) for i, s in enumerate(known)]
    layers = table(*((f"n{i}", "ADD", 0.3) for i in range(count)))
    case: Any = SimpleNamespace(files=SimpleNamespace(root=Path("case")), layers=layers, counts={"calibration": 3})
    found, remarks = probed(units, case, settled(), Probes(answers), ignore)  # type: ignore[arg-type]
    return [unit.sensitivity for unit in found], remarks


def test_units_are_known_by_what_they_do_alone() -> None:
    assert try_alone([[0.1, 0.3], [0.5]], 2) == ([0.2, 0.5], ())


def test_a_probe_that_fails_leaves_the_statistics_and_is_told() -> None:
    found, remarks = try_alone([[0.1], BuildError("It died."), []], 3)
    assert found == [0.1, 7.0, 7.0]
    (remark,) = remarks
    assert remark.startswith("2 of 3 units ")
    assert "debugger's statistics" in remark.lower()
    assert remark.endswith(": It died.")


def test_a_unit_that_cannot_run_in_integers_is_the_worst_of_all() -> None:
    found, (remark,) = try_alone([[0.1], ScoreError("It fails."), [900.0]], 3)
    assert found[1] > max(found[0], found[2])
    assert remark.startswith("1 of 3 units ")
    assert remark.endswith(": It fails.")


def test_of_many_units_neighbours_are_tried_together() -> None:
    """Statistics say 1, 7, 1, 7 ...: of half of a group's 0.8 the second unit has seven eighths; the last is alone."""
    found, remarks = try_alone([[0.8]] * 100 + [[0.5]], 201, statistics=[1.0, 7.0])
    assert found == pytest.approx([0.25, 0.55] * 100 + [0.5])
    (remark,) = remarks
    assert re.search(r"\b201 units .*\b200\b", remark)
    assert "up to 2 neighbours" in remark
    assert try_alone([[0.1]] * 200, 200) == ([0.1] * 200, ())
    assert try_alone([[0.6]] * 134, 401, statistics=[0.0])[0][:4] == pytest.approx([0.2] * 4)
    assert [probe_count(units) for units in (1, 200, 201, 401)] == [1, 200, 101, 134]


DENIED = {
    "nothing": ([], []),
    "hybrid": ([6], []),
    "float": ([2, 6], [6]),
    "both": ([0, 3, 6], [3]),
    "all": ([*range(8)], []),
}
MICRO = ("ethos-u55-128", "tflm")


@pytest.mark.parametrize(("denied", "in_float"), DENIED.values(), ids=DENIED)
@pytest.mark.parametrize("target", ["integer-only", "litert-cpu", *MICRO])
def test_a_forecast_says_what_the_target_makes_of_the_file(target: str, denied: list[int], in_float: list[int]) -> None:
    prepared, profile = zoo.cnn().prepared, read_target(target)
    objectives = ("accuracy", "size", "segments", "arena_bytes")
    layers: Any = SimpleNamespace(nodes=prepared.nodes)
    forecast = forecaster({(): prepared.builder.blueprint(Recipe())}, layers, settled(objectives=objectives), profile)
    nodes, float_nodes = (frozenset(prepared.nodes[i].name for i in chosen) for chosen in (denied, in_float))
    recipe = Recipe(denylisted_nodes=nodes, float_nodes=float_nodes)

    found = forecast(recipe.denylisted_nodes, further_of(recipe), ())
    built = prepared.builder.build(recipe)

    assert found.size_bytes == len(built.content)
    assert found.penalty == on_target(built.graph, profile).penalty
    assert found.refusal == refusal(built.graph, profile)
    assert (found.refusal is not None) == (target in MICRO and "hybrid" in found.kinds)
    assert found.kinds == tuple(built.kinds[node.name] for node in prepared.nodes)
    segments = on_target(built.graph, profile).segments
    assert found.figures == {"segments": segments, "arena_bytes": peak_activation_bytes(built.graph)}


def test_forecasts_with_one_key_are_of_one_file() -> None:
    prepared = zoo.cnn().prepared
    layers: Any = SimpleNamespace(nodes=prepared.nodes)
    forecast = forecaster({(): prepared.builder.blueprint(Recipe())}, layers, settled(), read_target())
    names = [node.name for node in prepared.nodes]
    files: dict[object, set[bytes]] = {}
    for nodes in map(frozenset, ([], names[:1], names[1:2], names[:2], names[2:], names)):
        for floats in (frozenset[str](), nodes):
            recipe = Recipe(denylisted_nodes=nodes, float_nodes=floats)
            files.setdefault(forecast(nodes, {"float": floats}, ()).key, set()).add(
                prepared.builder.build(recipe).content
            )
    assert len(files) > 6
    assert {len(contents) for contents in files.values()} == {1}


@pytest.mark.parametrize("unsteady", [0, 1, 3])
@pytest.mark.parametrize(("cut_off", "told_of_it"), [([0.0], False), (JobFailed("It died."), True)])
def test_planning_is_announced_before_it_is_waited_for(
    cut_off: list[float] | Exception, told_of_it: bool, unsteady: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers try units meanwhile. What cannot be known of values that integers cut off is said."""
    told: list[tuple[str, int | None]] = []
    planned_after = []

    def planned(units: Sequence[Unit], *_: Any, **__: Any) -> Any:
        planned_after.append([stage for stage, _ in told])
        return SimpleNamespace(units=units, states=("hybrid",), noisy=(0b1,))

    def listen(event: Event) -> None:
        if isinstance(event, StageStarted):
            told.append((event.stage, event.total))

    monkeypatch.setattr(problem_module, "Problem", planned)
    for name in ("neighbours_of", "forecaster"):
        monkeypatch.setattr(problem_module, name, lambda *_: None)
    layers = table(("a", "ADD", 0.3), ("b", "ADD", 0.3))
    files = CaseFiles(root=Path("case"))
    case: Any = SimpleNamespace(files=files, graph=None, layers=layers, counts={"calibration": 3})
    space = BoundSpace(dimensions=tuple(Toggle(name=name, nodes=frozenset({name})) for name in "ab"))
    # The first two stand for the blueprint and for what integers cut off.
    answers: list[Any] = [SimpleNamespace(unsteady=unsteady), cut_off, [0.1], [0.2], [0.3]]
    pool: Any = Probes(answers)
    yardstick: Any = SimpleNamespace(constraints=Constraints(), rule=NO_RULE)
    _, remarks = make_problem(case, space, settled(), yardstick, pool, listen)
    assert any("leave their calibrated ranges" in remark for remark in remarks) == told_of_it
    counted = {0: [], 1: ["takes 1 op in some models"], 3: ["takes 3 ops in some models"]}[unsteady]
    assert [words for remark in remarks for words in re.findall(r"takes \d+ ops? in some models", remark)] == counted
    assert planned_after[0] == ["plan"]
    assert told == [("plan", None), ("probes", 3)]


@pytest.mark.parametrize("net", [zoo.cnn, zoo.two_inputs, zoo.shared_weights])
def test_one_forecast_of_all_units_tells_what_one_of_each_alone_tells(net: Callable[[], zoo.Source]) -> None:
    prepared = net().prepared
    names = [node.name for node in prepared.nodes]
    layers: Any = SimpleNamespace(nodes=prepared.nodes)
    blueprint = prepared.builder.blueprint(Recipe(), int16=True)
    forecast = forecaster({(): blueprint}, layers, settled(fallback="search"), read_target())
    groups = [frozenset(names[:2]), *(frozenset({name}) for name in names[2:])]
    units = [Unit(nodes=nodes, op_type="ADD", position=i, sensitivity=0.1) for i, nodes in enumerate(groups)]
    states = states_of("search", int16=True)
    at_once, each = (
        Problem(units, [frozenset()] * len(units), forecast, states=states, order=order) for order in (names, ())
    )
    assert at_once.forms == each.forms
    for place, state in enumerate(states):
        alone = [Mask().put(1 << i, place) for i in range(len(units))]
        assert [at_once.put(Mask(), m.left_out, place) for m in alone] == [
            each.put(Mask(), m.left_out, place) for m in alone
        ]
        has = {i for i, mask in enumerate(alone) if state != EXACT and state in each.forecast(mask).kinds}
        assert set(bits(at_once.noisy[place])) == has & set(bits(each.forms[place]))
