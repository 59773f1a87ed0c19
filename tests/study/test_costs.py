"""Costs of candidates in the objectives of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from autoselect.domain.objectives import Constraints
from autoselect.domain.pareto import non_dominated
from autoselect.domain.quantities import stored_bytes
from autoselect.domain.repair_sets import Repairs
from autoselect.domain.states import STATES
from autoselect.study.proposing.costs import CostModel
from autoselect.study.proposing.mask import Mask, Units
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Forecast, Problem, Unit
from autoselect.study.proposing.surrogate_proposer import SurrogateProposer

NODES = 8


def problem_of(costs: tuple[str, ...]) -> Problem:
    """Units in a row; each left out adds 10 bytes to 100, a point of penalty and, of every second, a segment."""

    def forecast(nodes: frozenset[str], further: Mapping[str, frozenset[str]], _repairs: Repairs) -> Forecast:
        out = sorted(int(name[1:]) for name in nodes)
        figures = {"segments": float(sum(i % 2 for i in out))} if "segments" in costs else {}
        return Forecast(100 + 10 * len(out), float(len(out)), tuple(out), None, figures)

    return Problem(
        [Unit(nodes=frozenset({f"n{i}"}), op_type="ADD", position=i, sensitivity=0.1 * (i + 1)) for i in range(NODES)],
        [frozenset(j for j in (i - 1, i + 1) if 0 <= j < NODES) for i in range(NODES)],
        forecast,
        states=STATES["float"],
        constraints=Constraints(),
        costs=costs,
    )


def seen(problem: Problem, left_out: Units, **quantities: float) -> Seen:
    mask = Mask(left_out)
    found = problem.forecast(mask)
    share = 1.0 - left_out.bit_count() / NODES
    return Seen(
        mask=mask,
        loss=share,
        log_divergence=math.log(share + 0.01),
        share=1.0,
        size_bytes=found.size_bytes,
        penalty=found.penalty,
        quantities=quantities,
    )


def test_what_the_graph_tells_is_exact() -> None:
    problem = problem_of(("size_bytes", "segments"))
    model = CostModel(problem, [])
    assert [column.tolist() for column in model.expected([Mask(), Mask(0b1110)])] == [[100.0, 130.0], [0.0, 2.0]]
    assert model.points([seen(problem, 0b1110)]).tolist() == [[1 - 3 / 8, 130.0, 2.0]]


def test_before_anything_is_measured_all_candidates_are_alike() -> None:
    (found,) = CostModel(problem_of(("latency_ms",)), []).expected([Mask(), Mask(1), Mask(255)])
    assert found.tolist() == [0.0, 0.0, 0.0]


def test_one_measurement_stands_for_all() -> None:
    problem = problem_of(("npu_cycles",))
    (found,) = CostModel(problem, [seen(problem, 3, npu_cycles=500.0)]).expected([Mask(), Mask(3), Mask(255)])
    assert found.tolist() == [500.0, 500.0, 500.0]


def test_sums_over_units_are_learned() -> None:
    """Each unit that is left out takes its number in milliseconds more; 40 of 256 candidates are measured."""
    problem = problem_of(("latency_ms",))

    def latency(left_out: Units) -> float:
        return 20.0 + sum(i + 1 for i in range(NODES) if left_out >> i & 1)

    rng = np.random.default_rng(0)
    known = [int(mask) for mask in rng.choice(256, 40, replace=False)]
    model = CostModel(problem, [seen(problem, mask, latency_ms=latency(mask)) for mask in known])
    (found,) = model.expected(list(map(Mask, range(256))))
    truth = np.array([latency(mask) for mask in range(256)])
    assert np.corrcoef(found, truth)[0, 1] > 0.99
    assert np.abs(found - truth).mean() < 1.5


def test_measured_values_are_taken_as_they_are_and_none_falls_below_half_of_the_least() -> None:
    problem = problem_of(("latency_ms",))
    measured = [seen(problem, 0, latency_ms=10.0), seen(problem, 255, latency_ms=90.0), seen(problem, 15)]
    model = CostModel(problem, measured)
    points = model.points(measured)
    assert points[:2, 1].tolist() == [10.0, 90.0]
    assert 10.0 < points[2, 1] < 90.0
    assert model.expected(list(map(Mask, range(256))))[0].min() >= 5.0


def test_what_a_compiler_adds_to_the_forecast_is_learned() -> None:
    """A hundred for every candidate but those without the first unit."""
    problem = problem_of(("penalty",))

    def compiled(left_out: Units) -> Seen:
        plain, added = seen(problem, left_out), 100.0 * (left_out & 1)
        return replace(plain, penalty=plain.penalty + added, unforeseen=added)

    rng = np.random.default_rng(0)
    told = [compiled(int(mask)) for mask in rng.choice(256, 60, replace=False)]
    model = CostModel(problem, told)
    assert model.points(told)[:, 1].tolist() == [s.penalty for s in told]
    masks = list(map(Mask, range(256)))
    truth = np.array([compiled(mask.left_out).penalty for mask in masks])
    assert np.abs(model.penalties(masks) - truth).mean() < 10.0
    assert (model.penalties(masks) >= CostModel(problem, []).penalties(masks)).all()


OBJECTIVES = [("segments",), ("size_bytes", "segments"), ("size_bytes", "penalty", "latency_ms")]


@pytest.mark.parametrize("costs", OBJECTIVES, ids=["one", "two", "three, one of them measured"])
def test_the_surrogate_finds_the_front_of_any_objectives(costs: tuple[str, ...]) -> None:
    """Leaving out units of even number costs no segment, so a search by segments leaves out all of them."""
    problem = problem_of(costs)
    proposer, told = SurrogateProposer(problem, seed=0), []
    for _ in range(30):
        mask = proposer.propose(told, [])
        assert mask is not None
        left_out = mask.left_out
        told.append(seen(problem, left_out, **({"latency_ms": 1.0 + left_out % 5} if "latency_ms" in costs else {})))
    points = CostModel(problem, told).points(told)
    front = [s.mask for s, kept in zip(told, non_dominated(points), strict=True) if kept]
    assert len({s.mask for s in told}) == 30
    assert Mask(0b01010101) in front if costs == ("segments",) else len(front) > 3


def packed_problem() -> Problem:
    """The same as of no objective of the graph; the entropy of constants tells 100 bytes and 10 for each left out."""

    def forecast(nodes: frozenset[str], further: Mapping[str, frozenset[str]], _repairs: Repairs) -> Forecast:
        size = 100 + 10 * len(nodes)
        return Forecast(4 * size, float(len(nodes)), tuple(sorted(nodes)), None, {"flash_bytes": float(size)})

    plain = problem_of(("flash_bytes", "penalty"))
    return Problem(plain.units, plain.neighbours, forecast, states=plain.states, costs=("flash_bytes", "penalty"))


def test_a_packed_size_is_its_forecast_and_what_was_learned_beyond_it() -> None:
    problem, masks = packed_problem(), list(map(Mask, range(256)))
    (before, _) = CostModel(problem, []).expected(masks)
    assert before.tolist() == [problem.forecast(mask).figures["flash_bytes"] for mask in masks]

    def measured(left_out: Units) -> float:
        """What is left to the host is not packed: each that is left out takes 5 bytes more, the first 50."""
        out = left_out.bit_count()
        return 150.0 + 15.0 * out + 45.0 * (left_out & 1)

    rng = np.random.default_rng(0)
    known = [int(mask) for mask in rng.choice(256, 40, replace=False)]
    model = CostModel(problem, [seen(problem, mask, flash_bytes=measured(mask)) for mask in known])
    (after, _) = model.expected(masks)
    truth = np.array([measured(mask.left_out) for mask in masks])
    assert np.abs(after - truth).mean() < 0.1 * np.abs(before - truth).mean()
    assert model.stored(masks) == after.tolist()


def test_what_is_stored_is_the_packed_size_that_a_run_asks_for() -> None:
    assert stored_bytes(400, {}) == 400.0
    assert stored_bytes(400, {"arena_bytes": 7.0}) == 400.0
    assert stored_bytes(400, {"download_bytes": 90.0}) == 90.0
    assert stored_bytes(400, {"download_bytes": 90.0, "flash_bytes": 120.0}) == 120.0
    assert CostModel(problem_of(("size_bytes",)), []).stored([Mask(), Mask(3)]) == [100.0, 120.0]
