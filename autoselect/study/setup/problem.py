"""Works out, before the first trial, what a sampler may know: units, exact forecasts, and what each unit does alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from autoselect.cases import prepare_jobs
from autoselect.cases.divergence import divergence, error_shares, spread_rows
from autoselect.cases.events import Listener, StageStarted, StepFinished
from autoselect.cases.prepare import Case
from autoselect.cases.settings import SearchSettings
from autoselect.domain.arena import peak_activation_bytes
from autoselect.domain.graph import Graph
from autoselect.domain.layers import LayerTable
from autoselect.domain.quantities import BY_COLUMN, DEFAULT_COSTS
from autoselect.domain.search_space import BoundSpace, Toggle
from autoselect.domain.targets import Target
from autoselect.domain.units import units
from autoselect.domain.verdicts import judge
from autoselect.errors import PreparationError, TrialError
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.quantize.building.blueprint import Blueprint
from autoselect.scoring.fragmentation import Fragmentation
from autoselect.scoring.target_file import read_target
from autoselect.scoring.target_penalty import on_target, refusal
from autoselect.study.proposing.problem import Atom, Forecast, Problem, atoms_of, neighbours_of
from autoselect.study.setup.baselines import heuristic_nodes

_PROBE_SAMPLES = 8
_PROBE_SHARE = 0.125
_LEAST_PROBE_SAMPLES = 2
_MOST_PROBES = 200
"""Models of more units go by the debugger's statistics: the probes would cost more than they tell."""
_TOO_MANY = (
    "The {} units of this model were not tried one by one, which is done for up to {}: the search starts from the "
    "Quantization Debugger's statistics of the nodes, which say less of what a unit does to the model's outputs. Give "
    "it more trials, or choose a search space of fewer units."
)
_FAILED = (
    "{} of {} units could not be tried alone; for them the search starts from the Quantization Debugger's statistics, "
    "which say less of what a unit does to the model's outputs. The first reason: {}."
)
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
        prepare_jobs.blueprint, root, settings.template.to_json(), timeout_seconds=settings.trial_timeout
    )
    atoms = atoms_of(space, layers, _statistical(layers))
    atoms, remarks = probed(atoms, case, settings, pool, listener)
    listener(StageStarted(stage="plan"))
    try:
        blueprint = result_of(planning)
    except TrialError as exc:
        raise PreparationError(f"Planning the candidates failed. {exc}") from exc
    problem = Problem(
        atoms,
        neighbours_of(case.graph, layers, atoms),
        forecaster(blueprint, layers, settings, read_target(settings.target)),
        pinned=space.keep_float,
        heuristic=heuristic_nodes(layers),
        ladders=_ladders(atoms, layers),
        hybrid=settings.template.fallback == "drq",
        mixed=settings.fallback == "search",
        refinable=settings.refining and len(case.graph.ops) <= _MOST_IN_SEQUENCE,
        constraints=settings.constraints,
        allowed_loss=allowed_loss,
        costs=settings.cost_columns,
    )
    return problem, remarks


def forecaster(
    blueprint: Blueprint, layers: LayerTable, settings: SearchSettings, target: Target
) -> Callable[[frozenset[str], frozenset[str]], Forecast]:
    """Exact size and penalty by the denylisted nodes, and whether the target takes it; nothing is compiled."""
    places = {node.name: place for place, node in enumerate(layers.nodes)}
    further = frozenset(settings.cost_columns) - {*DEFAULT_COSTS}

    def forecast(nodes: frozenset[str], float_nodes: frozenset[str]) -> Forecast:
        denied, in_float = (sorted(places[name] for name in chosen) for chosen in (nodes, float_nodes))
        found = blueprint.plan(denied, settings.template.fallback, in_float)
        # Where the penalty is one of shares and nothing is refused, where each op runs need not be known.
        verdict = None if target.takes_all and target.shares is not None else judge(found.graph, target)
        cut = on_target(found.graph, target, verdict)
        return Forecast(
            found.size_bytes,
            cut.penalty,
            (found.kinds, found.size_bytes),
            refusal(found.graph, target, verdict) if verdict is not None else None,
            {column: _figure(found.graph, cut, column) for column in further if BY_COLUMN[column].from_graph},
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
    atoms: Sequence[Atom], case: Case, settings: SearchSettings, pool: Workers, listener: Listener
) -> tuple[tuple[Atom, ...], tuple[str, ...]]:
    """Try each atom alone in integers.

    Returns:
        The atoms with what each did alone; where that failed, or would take too long, as they were. And what the user
        should know of that, in sentences.
    """
    if len(atoms) > _MOST_PROBES:
        return tuple(atoms), (_TOO_MANY.format(len(atoms), _MOST_PROBES),)
    listener(StageStarted(stage="probes", total=len(atoms)))
    everything = frozenset(node.name for node in case.layers.nodes)
    rows = spread_rows(case.counts["calibration"], probe_samples(case.counts.get("search", 0)))
    running: list[Future[list[float]]] = [
        pool.submit(
            error_shares,
            case.files.root,
            everything - atom.nodes,
            "calibration",
            rows,
            settings.per_channel,
            settings.template.repairs,
            timeout_seconds=settings.trial_timeout,
        )
        for atom in atoms
    ]
    found, reasons = [], []
    for atom, future in zip(atoms, running, strict=True):
        try:
            alone = divergence(result_of(future))
            reasons += [_NO_FIGURE] if math.isnan(alone) else []
        except TrialError as exc:
            alone = math.nan
            reasons.append(str(exc))
        sensitivity = atom.sensitivity if math.isnan(alone) else alone
        found.append(Atom(nodes=atom.nodes, op_type=atom.op_type, position=atom.position, sensitivity=sensitivity))
        listener(StepFinished(stage="probes"))
    return tuple(found), (_FAILED.format(len(reasons), len(atoms), reasons[0].rstrip(".")),) if reasons else ()


def _ladders(atoms: Sequence[Atom], layers: LayerTable) -> list[list[int]]:
    """Rankings by the debugger's statistics, and the graph from both ends."""
    owner = {name: i for i, atom in enumerate(atoms) for name in atom.nodes}
    found = []
    for statistic in _LADDERS:
        ranked = [owner[name] for name in layers.ranked_by(statistic) if name in owner]
        found.append(list(dict.fromkeys(ranked)))
    forward = list(range(len(atoms)))
    return [*found, forward, forward[::-1]]
