"""Works out, before the first trial, what a sampler may know: units, exact forecasts, and what each unit does alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

from autoselect.cases import prepare_jobs
from autoselect.cases.divergence import divergence, recipe_error_shares, spread_rows
from autoselect.cases.events import Listener, StageStarted, StepFinished
from autoselect.cases.prepare import Case
from autoselect.cases.settings import SearchSettings
from autoselect.domain.arena import peak_activation_bytes
from autoselect.domain.graph import Graph
from autoselect.domain.layers import LayerTable
from autoselect.domain.quantities import BY_COLUMN, DEFAULT_COSTS
from autoselect.domain.search_space import BoundSpace, Toggle
from autoselect.domain.states import EXACT, FIELDS, SIXTEEN, alone_in, fields_of
from autoselect.domain.targets import Target
from autoselect.domain.units import units
from autoselect.domain.verdicts import judge
from autoselect.errors import PreparationError, ScoreError, TrialError
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.quantize.building.blueprint import Blueprint
from autoselect.scoring.fragmentation import Fragmentation
from autoselect.scoring.target_file import read_target
from autoselect.scoring.target_penalty import on_target, refusal
from autoselect.study.proposing.atoms import atoms_of, neighbours_of
from autoselect.study.proposing.mask import bits
from autoselect.study.proposing.problem import Atom, Forecast, Forecaster, Problem
from autoselect.study.setup.baselines import heuristic_nodes, recipe_for

_PROBE_SAMPLES = 8
_PROBE_SHARE = 0.125
_LEAST_PROBE_SAMPLES = 2
_MOST_PROBES = 200
"""Models of more units go by the debugger's statistics: the probes would cost more than they tell."""
_TOO_MANY = (
    "The {} units of this model were not tried one by one, which is done for up to {}. The search starts from the "
    "Quantization Debugger's statistics of the nodes instead, which say less about the outputs of the model. Give it "
    "more trials, or choose a search space with fewer units."
)
_FAILED = (
    "{} of {} units could not be tried alone. For them the search starts from the Quantization Debugger's statistics, "
    "which say less about the outputs of the model. The first reason: {}."
)
_RUINOUS = (
    "{} of {} units make a model that cannot be run if they alone are in integers. The search leaves them out first. "
    "The first reason: {}."
)
_RUIN = 1e3
"""Error power over signal power of outputs that are not there: more than any that are."""
_UNSUITED = (
    "The sampler {!r} needs a search space with choices of nodes, units, blocks or op types. This one has counts only, "
    "so tpe proposes the candidates instead."
)
_NO_FIGURE = "the float outputs are all 0 on the calibration samples"
_MOST_IN_SEQUENCE = 100
"""Models of more nodes are not corrected in sequence, which takes a time that grows with the square of their number."""
_LADDERS = ("rmse_per_scale", "mean_squared_error")


def probe_samples(search_samples: int) -> int:
    """On how many calibration samples each unit is tried alone.

    Where candidates are scored on few samples, each of them says much and costs much: a probe then takes an eighth of
    what a candidate takes.

    Args:
        search_samples: On which candidates are scored; 0 where that is not known.
    """
    if not search_samples:
        return _PROBE_SAMPLES
    return max(_LEAST_PROBE_SAMPLES, min(_PROBE_SAMPLES, int(_PROBE_SHARE * search_samples)))


def units_of(case: Case) -> tuple[tuple[str, ...], ...]:
    """The nodes of a case that move together."""
    return units(case.graph, case.layers.nodes)


def make_problem(
    case: Case,
    space: BoundSpace,
    settings: SearchSettings,
    allowed_loss: float,
    pool: Workers,
    listener: Listener,
) -> tuple[Problem | None, tuple[str, ...]]:
    """Make the problem that the project's own samplers look at, and say what the user should know of it.

    Args:
        case: What is searched.
        space: Which choices there are.
        settings: How it is searched.
        allowed_loss: What a recommended candidate may lose, in the metric's units.
        pool: Where units are tried alone.
        listener: Is told of each.

    Returns:
        The problem, None where the space has only counts, which cannot say what the samplers propose; and remarks.

    Raises:
        PreparationError: If the worker that plans candidates died.
    """
    if not any(isinstance(dimension, Toggle) for dimension in space.dimensions):
        return None, (_UNSUITED.format(settings.sampler),)
    root, layers = case.files.root, case.layers
    planning: Future[Blueprint] = pool.submit(
        prepare_jobs.blueprint,
        root,
        settings.template.to_json(),
        SIXTEEN in settings.states,
        timeout_seconds=settings.trial_timeout,
    )
    atoms = atoms_of(space, layers, _statistical(layers))

    def planned(atoms: Sequence[Atom]) -> Problem:
        return _planned(atoms, case, space, settings, allowed_loss, planning)

    atoms, remarks = probed(atoms, case, settings, pool, listener, lambda: _noisy(planned(atoms)))
    listener(StageStarted(stage="plan"))
    return planned(atoms), remarks


def settled_int16(case: Case, settings: SearchSettings, pool: Workers) -> tuple[SearchSettings, tuple[str, ...]]:
    """Settings without 16-bit units where there can be none, and what the user should know of them."""
    if SIXTEEN not in settings.states:
        return settings, ()
    limit = settings.trial_timeout
    try:
        found = pool.call(prepare_jobs.int16_proof, case.files.root, settings.per_channel, timeout_seconds=limit)
    except TrialError as exc:
        return settings.model_copy(update={"int16": False}), (f"No unit has 16-bit activations. {exc}",)
    return settings.model_copy(update={"int16": found.is_possible}), found.remarks


def _planned(
    atoms: Sequence[Atom],
    case: Case,
    space: BoundSpace,
    settings: SearchSettings,
    allowed_loss: float,
    planning: Future[Blueprint],
) -> Problem:
    try:
        blueprint = result_of(planning)
    except TrialError as exc:
        raise PreparationError(f"Planning the candidates failed. {exc}") from exc
    layers = case.layers
    return Problem(
        atoms,
        neighbours_of(case.graph, layers, atoms),
        forecaster(blueprint, layers, settings, read_target(settings.target), space.not_int16),
        pinned=space.keep_float,
        heuristic=heuristic_nodes(layers),
        ladders=_ladders(atoms, layers),
        states=settings.states,
        refinable=settings.refining and len(case.graph.ops) <= _MOST_IN_SEQUENCE,
        constraints=settings.constraints,
        allowed_loss=allowed_loss,
        costs=settings.cost_columns,
    )


def _noisy(problem: Problem) -> list[tuple[Atom, str]]:
    """The atoms in each state, beside integers, in which they make an error."""
    places = zip(problem.states, problem.noisy, strict=True)
    return [(problem.atoms[i], state) for state, atoms in places for i in bits(atoms)]


def forecaster(
    blueprint: Blueprint,
    layers: LayerTable,
    settings: SearchSettings,
    target: Target,
    not_int16: frozenset[str] = frozenset(),
) -> Forecaster:
    """Exact size and penalty by the denylisted nodes, and whether the target takes it; nothing is compiled.

    Nodes that the target refuses with 16-bit activations have no such form.
    """
    places = {node.name: place for place, node in enumerate(layers.nodes)}

    def placed(names: Iterable[str]) -> list[int]:
        return sorted(places[name] for name in names)

    figures = frozenset(settings.cost_columns) - {*DEFAULT_COSTS}
    # Where the penalty is one of shares and nothing is refused, where each op runs need not be known.
    is_unjudged = target.takes_all and target.shares is not None

    def forecast(nodes: frozenset[str], further: Mapping[str, frozenset[str]]) -> Forecast:
        chosen = fields_of(nodes, further)
        in_int16 = chosen.get(FIELDS[SIXTEEN], frozenset()) - not_int16
        denied, in_float = (placed(chosen.get(field, ())) for field in ("denylisted_nodes", FIELDS[EXACT]))
        found = blueprint.plan(denied, settings.template.fallback, in_float, placed(in_int16))
        verdict = None if is_unjudged else judge(found.graph, target)
        cut = on_target(found.graph, target, verdict)
        return Forecast(
            found.size_bytes,
            cut.penalty,
            (found.kinds, found.size_bytes),
            refusal(found.graph, target, verdict) if verdict is not None else None,
            {column: _figure(found.graph, cut, column) for column in figures if BY_COLUMN[column].from_graph},
            found.kinds,
        )

    return forecast


def _figure(graph: Graph, cut: Fragmentation, column: str) -> float:
    return float(peak_activation_bytes(graph) if column == "arena_bytes" else getattr(cut, column))


def _statistical(layers: LayerTable) -> dict[str, float]:
    """Error power over signal power of each node by itself, from the debugger's statistics."""
    found = {}
    for node, figures in zip(layers.nodes, layers.statistics, strict=True):
        if figures is not None and not math.isnan(figures.sqnr_db):
            found[node.name] = 10.0 ** (-max(figures.sqnr_db, -30.0) / 10.0)
    return found


def probed(
    atoms: Sequence[Atom],
    case: Case,
    settings: SearchSettings,
    pool: Workers,
    listener: Listener,
    noisy: Callable[[], Sequence[tuple[Atom, str]]] = tuple,
) -> tuple[tuple[Atom, ...], tuple[str, ...]]:
    """Try each atom alone in integers, and in each other state in which it makes an error; all others are in float.

    Args:
        atoms: To be tried.
        case: With the samples.
        settings: Of the search.
        pool: Where they are tried.
        listener: Is told of each.
        noisy: Says the other states; asked when all is under way in integers.

    Returns:
        The atoms with what each did alone; where that failed, or would take too long, as they were. And what the user
        should know of that, in sentences.
    """
    if len(atoms) > _MOST_PROBES:
        return tuple(atoms), (_TOO_MANY.format(len(atoms), _MOST_PROBES),)
    everything = frozenset(node.name for node in case.layers.nodes)
    rows = spread_rows(case.counts["calibration"], probe_samples(case.counts.get("search", 0)))

    def submitted(left_out: frozenset[str], further: Mapping[str, frozenset[str]]) -> Future[list[float]]:
        template = replace(settings.template, io_type="float32", fallback="drq" if further else "float")
        recipe = recipe_for(left_out, template, further=further).to_json()
        return pool.submit(
            recipe_error_shares, case.files.root, recipe, "calibration", rows, timeout_seconds=settings.trial_timeout
        )

    running = [submitted(everything - atom.nodes, {}) for atom in atoms]
    others = noisy()
    running += [submitted(everything, alone_in(state, atom.nodes, everything)) for atom, state in others]
    listener(StageStarted(stage="probes", total=len(running)))
    alone: list[float] = []
    reasons: dict[str, list[str]] = {_RUINOUS: [], _FAILED: []}
    for future in running:
        try:
            alone.append(divergence(result_of(future)))
            reasons[_FAILED] += [_NO_FIGURE] if math.isnan(alone[-1]) else []
        except ScoreError as exc:
            alone.append(_RUIN)
            reasons[_RUINOUS].append(str(exc))
        except TrialError as exc:
            alone.append(math.nan)
            reasons[_FAILED].append(str(exc))
        listener(StepFinished(stage="probes"))
    noise: dict[frozenset[str], dict[str, float]] = {atom.nodes: {} for atom in atoms}
    for (atom, state), found in zip(others, alone[len(atoms) :], strict=True):
        noise[atom.nodes] |= {} if math.isnan(found) else {state: found}
    told = (text.format(len(why), len(running), why[0].rstrip(".")) for text, why in reasons.items() if why)
    return tuple(
        replace(atom, sensitivity=atom.sensitivity if math.isnan(found) else found, noise=noise[atom.nodes])
        for atom, found in zip(atoms, alone, strict=False)
    ), tuple(told)


def _ladders(atoms: Sequence[Atom], layers: LayerTable) -> list[list[int]]:
    """Rankings by the debugger's statistics, and the graph from both ends."""
    owner = {name: i for i, atom in enumerate(atoms) for name in atom.nodes}
    found = []
    for statistic in _LADDERS:
        ranked = [owner[name] for name in layers.ranked_by(statistic) if name in owner]
        found.append(list(dict.fromkeys(ranked)))
    forward = list(range(len(atoms)))
    return [*found, forward, forward[::-1]]
