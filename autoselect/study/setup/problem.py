"""Works out, before the first trial, what a sampler may know: units, exact forecasts, and what each unit does alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

import numpy as np

from autoselect.cases import clipping_jobs, prepare_jobs
from autoselect.cases.events import Listener, StageStarted
from autoselect.cases.open_case import target_as_seen
from autoselect.cases.prepare import Case
from autoselect.cases.settled import Settled
from autoselect.domain.graph import Graph, peak_activation_bytes
from autoselect.domain.layers import LayerTable
from autoselect.domain.quantities import BY_COLUMN, DEFAULT_COSTS
from autoselect.domain.recipe import IoType
from autoselect.domain.repair_sets import Repairs, acting, corrected_at_once
from autoselect.domain.runtimes import Runtime, why_refused
from autoselect.domain.search_space import FREE, BoundSpace, Cut, Toggle
from autoselect.domain.states import EXACT, FIELDS, SIXTEEN, fields_of
from autoselect.domain.targets import Target
from autoselect.domain.units import units as moving_together
from autoselect.domain.verdicts import judge
from autoselect.domain.words import counted, listed
from autoselect.errors import TrialError, preparing
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.quantize.building.blueprint import Blueprint
from autoselect.scoring.fragmentation import Fragmentation
from autoselect.scoring.target_file import read_target
from autoselect.scoring.target_penalty import on_target, refusal
from autoselect.study.proposing.mask import bits
from autoselect.study.proposing.problem import Forecast, Forecaster, Problem, Unit
from autoselect.study.setup.probing import probed
from autoselect.study.yardstick import Yardstick

_UNSUITED = (
    "The sampler {!r} needs a search space with choices of nodes, units, blocks or op types. This one has counts only, "
    "so tpe proposes the candidates instead."
)
_LADDERS = ("rmse_per_scale", "mean_squared_error")


_COUNTS_UNUSED = (
    "The sampler {!r} proposes by the finest of the choices of nodes, units, blocks and op types alone: nodes that a "
    "count reaches beyond these ({}) stay in integers. --sampler tpe proposes counts, too."
)


def units_of(case: Case) -> tuple[tuple[str, ...], ...]:
    """The nodes of a case that move together."""
    return moving_together(case.graph, case.layers.nodes)


def make_problem(
    case: Case,
    space: BoundSpace,
    settings: Settled,
    yardstick: Yardstick,
    pool: Workers,
    listener: Listener,
) -> tuple[Problem | None, tuple[str, ...]]:
    """Make the problem that the project's own samplers look at, and say what the user should know of it.

    Returns:
        The problem, None if the space has only counts, which cannot say what the samplers propose; and remarks.

    Raises:
        PreparationError: If the worker that plans candidates died.
    """
    if not any(isinstance(dimension, Toggle) for dimension in space.dimensions):
        return None, (_UNSUITED.format(settings.sampler),)
    root, layers = case.files.root, case.layers
    planning: dict[Repairs, Future[Blueprint]] = {
        repairs: pool.submit(
            prepare_jobs.blueprint,
            root,
            replace(settings.template, repairs=repairs).to_json(),
            SIXTEEN in settings.states,
            timeout_seconds=settings.trial_timeout,
        )
        for repairs in dict.fromkeys(map(corrected_at_once, settings.repairs.alternatives))
    }
    clipped, unknown = _clipped(pool.submit(clipping_jobs.clipped_nodes, root))
    plain = units_in(space, layers, _statistical(layers))
    units = [replace(unit, is_clipped=not clipped.isdisjoint(unit.nodes)) for unit in plain]

    target = target_as_seen(read_target(settings.target), case.files)

    def planned(units: Sequence[Unit]) -> Problem:
        with preparing("Planning the candidates failed."):
            blueprints = {repairs: result_of(future) for repairs, future in planning.items()}
        return Problem(
            units,
            neighbours_of(case.graph, layers, units),
            forecaster(blueprints, layers, settings, target, space),
            space=space,
            ladders=_ladders(units, layers),
            states=settings.states,
            repair_sets=settings.repairs.alternatives,
            added_noise=settings.repairs.noise_of_alternatives,
            constraints=yardstick.constraints,
            rule=yardstick.rule,
            costs=settings.cost_columns,
            order=[node.name for node in layers.nodes],
        )

    def noisy() -> list[tuple[Unit, str]]:
        listener(StageStarted(stage="plan"))
        problem = planned(units)
        places = zip(problem.states, problem.noisy, strict=True)
        return [(problem.units[i], state) for state, erring in places for i in bits(erring)]

    tried, remarks = probed(units, case, settings, pool, listener, noisy)
    return planned(tried), (
        *unknown,
        *_unused_counts(space, settings.sampler),
        *_unsteady(result_of(next(iter(planning.values()))), target),
        *remarks,
    )


def _unsteady(blueprint: Blueprint, target: Target) -> tuple[str, ...]:
    if not blueprint.unsteady:
        return ()
    return (
        f"The compiler of {target.name} takes {counted(blueprint.unsteady, 'op')} in some models and leaves the "
        "same in others. Forecasts count them as left; what becomes of the front's members is asked for each.",
    )


def _clipped(looking: Future[list[str]]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Nodes whose values integers cut off on search samples; and what to say if that cannot be known."""
    try:
        names = result_of(looking)
        return frozenset(names), ()
    except TrialError as exc:
        return frozenset(), (f"It is not known which nodes leave their calibrated ranges on search samples. {exc}",)


def makes_int16(case: Case, settings: Settled, pool: Workers) -> tuple[bool, tuple[str, ...]]:
    """Whether there can be 16-bit units, if any are asked for, and what the user should know of them."""
    if SIXTEEN not in settings.states:
        return True, ()
    limit = settings.trial_timeout
    try:
        proof = pool.call(prepare_jobs.int16_proof, case.files.root, settings.per_channel, timeout_seconds=limit)
    except TrialError as exc:
        return False, (f"No unit has 16-bit activations. {exc}",)
    return proof.is_possible, proof.remarks


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What is exactly known of a plan on a target.

    Attributes:
        fragmentation: Segments, crossings and penalty; nothing is compiled for it.
        refusal: Why target or runtime do not take it; None if they do.
    """

    fragmentation: Fragmentation
    refusal: str | None


def judged(graph: Graph, target: Target, runtime: Runtime | None) -> Judged:
    """What is known of the graph of a plan on a target, with the oldest runtime that must load it."""
    # Where the penalty is one of shares and nothing is refused, where each op runs need not be known.
    verdict = None if target.takes_all and target.shares is not None else judge(graph, target)
    refused = refusal(graph, target, verdict) if verdict is not None else None
    return Judged(fragmentation=on_target(graph, target, verdict), refusal=refused or why_refused(graph, runtime))


def repairs_that_act(repairs: Repairs, kinds: Sequence[str], layers: LayerTable, io_type: IoType) -> Repairs:
    """The repairs of a candidate that change its bytes; candidates that differ in other repairs are built alike."""
    if io_type != "float32":  # Inputs are rounded to 8 bits, by a range that repairs may choose.
        return repairs
    bare = {node.name for node, kind in zip(layers.nodes, kinds, strict=True) if kind in ("float", "folded")}
    return acting(repairs, kinds, bare)


def forecaster(
    blueprints: Mapping[Repairs, Blueprint],
    layers: LayerTable,
    settings: Settled,
    target: Target,
    space: BoundSpace = FREE,
) -> Forecaster:
    """Exact size and penalty by nodes and repairs, and whether target and runtime take it; nothing is compiled.

    Nodes that the space holds in other states have no such form.
    """
    places = {node.name: place for place, node in enumerate(layers.nodes)}

    def placed(names: Iterable[str]) -> list[int]:
        return sorted(places[name] for name in names)

    figures = frozenset(settings.cost_columns) - {*DEFAULT_COSTS}
    is_packed = any(BY_COLUMN[column].is_packed for column in figures)
    runtime = settings.runtime

    def forecast(nodes: frozenset[str], further: Mapping[str, frozenset[str]], repairs: Repairs) -> Forecast:
        chosen = fields_of(*space.held(nodes, further))
        wanted = ("denylisted_nodes", FIELDS[EXACT], FIELDS[SIXTEEN])
        denied, in_float, in_int16 = (placed(chosen.get(field, ())) for field in wanted)
        blueprint = blueprints[corrected_at_once(repairs)]
        plan = blueprint.plan(denied, settings.template.fallback, in_float, in_int16)
        packed = blueprint.packed_bytes(plan) if is_packed else 0.0
        verdict = judged(plan.graph, target, runtime)
        cut = verdict.fragmentation
        return Forecast(
            plan.size_bytes,
            cut.penalty,
            (plan.kinds, plan.size_bytes, repairs_that_act(repairs, plan.kinds, layers, settings.template.io_type)),
            verdict.refusal,
            {
                column: packed if BY_COLUMN[column].is_packed else _figure(plan.graph, cut, column)
                for column in figures
                if BY_COLUMN[column].is_packed or BY_COLUMN[column].from_graph
            },
            plan.kinds,
        )

    return forecast


def _figure(graph: Graph, cut: Fragmentation, column: str) -> float:
    return float(peak_activation_bytes(graph) if column == "arena_bytes" else getattr(cut, column))


def plain_units(graph: Graph, layers: LayerTable) -> tuple[Unit, ...]:
    """The nodes that move together as units, with the debugger's statistics alone: as before anything is tried."""
    toggles = (Toggle(name=str(i), nodes=frozenset(n)) for i, n in enumerate(moving_together(graph, layers.nodes)))
    return units_in(BoundSpace(dimensions=tuple(toggles)), layers, _statistical(layers))


def _statistical(layers: LayerTable) -> dict[str, float]:
    """Error power over signal power of each node by itself, from the debugger's statistics."""
    noise = {}
    for node, figures in zip(layers.nodes, layers.statistics, strict=True):
        if figures is not None and not math.isnan(figures.sqnr_db):
            noise[node.name] = 10.0 ** (-max(figures.sqnr_db, -30.0) / 10.0)
    return noise


def _ladders(units: Sequence[Unit], layers: LayerTable) -> list[list[int]]:
    """Rankings by the debugger's statistics, and the graph from both ends."""
    owner = {name: i for i, unit in enumerate(units) for name in unit.nodes}
    ladders = []
    for statistic in _LADDERS:
        ranked = [owner[name] for name in layers.ranked_by(statistic) if name in owner]
        ladders.append(list(dict.fromkeys(ranked)))
    forward = list(range(len(units)))
    return [*ladders, forward, forward[::-1]]


def units_in(space: BoundSpace, layers: LayerTable, sensitivities: Mapping[str, float]) -> tuple[Unit, ...]:
    """The smallest steps that a search space allows: its toggles without those that others make up.

    Args:
        space: Of several alternatives the one with the most toggles counts; counts (cuts) give no units.
        layers: For op types and positions.
        sensitivities: By node name; a unit has the largest of its nodes.
    """
    groups = _smallest_groups(space)
    places = {node.name: node for node in layers.nodes}
    units = []
    for group in groups:
        members = sorted((places[name] for name in group), key=lambda node: node.index)
        heaviest = max(members, key=lambda node: node.macs)
        measured = [sensitivities[name] for name in group if name in sensitivities]
        units.append(
            Unit(
                nodes=group,
                op_type=heaviest.op_type,
                position=members[0].index,
                sensitivity=max([v for v in measured if np.isfinite(v)], default=0.0),
            )
        )
    return tuple(sorted(units, key=lambda unit: (unit.position, sorted(unit.nodes))))


def _unused_counts(space: BoundSpace, sampler: str) -> tuple[str, ...]:
    """A remark for the user if a count of the search space leaves out nodes that belong to no unit; else none."""
    reached = space.left_out_of_all.union(*_smallest_groups(space))
    counts = [d for d in space.dimensions if isinstance(d, Cut) and not reached.issuperset(d.ranking[: d.at_most])]
    return (_COUNTS_UNUSED.format(sampler, listed([count.name for count in counts])),) if counts else ()


def _smallest_groups(space: BoundSpace) -> list[frozenset[str]]:
    choices = [space.of_alternative(name) for name, _ in space.alternatives] or [space.dimensions]
    toggles = max(([d for d in c if isinstance(d, Toggle)] for c in choices), key=len)
    groups: list[frozenset[str]] = []
    taken: set[str] = set()
    for toggle in sorted(toggles, key=lambda t: (len(t.nodes), t.name)):
        if toggle.nodes and not toggle.nodes <= taken:
            groups.append(toggle.nodes - taken)
            taken |= toggle.nodes
    return groups


def neighbours_of(graph: Graph, layers: LayerTable, units: Sequence[Unit]) -> tuple[frozenset[int], ...]:
    """For each unit the units that it reads from or writes to, looking through ops that are no nodes."""
    owner = {name: i for i, unit in enumerate(units) for name in unit.nodes}
    unit_at = {node.index: owner[node.name] for node in layers.nodes if node.name in owner}
    neighbours: list[set[int]] = [set() for _ in units]
    for index, before in enumerate(graph.nearest(unit_at)):
        for here, other in ((unit_at[index], unit_at[i]) for i in before if index in unit_at):
            if here != other:
                neighbours[here].add(other)
                neighbours[other].add(here)
    return tuple(frozenset(s) for s in neighbours)
