"""Tries each unit alone before the first trial: what it does to the outputs of a model that is float otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import groupby

from autoselect.cases.divergence import divergence, error_shares, spread_rows
from autoselect.cases.events import Listener, StageStarted, StepFinished
from autoselect.cases.prepare import Case
from autoselect.cases.settings import SearchSettings
from autoselect.domain.states import alone_in
from autoselect.errors import ScoreError, TrialError
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.study.proposing.problem import Atom
from autoselect.study.setup.baselines import recipe_for

_SAMPLES = 8
_SHARE = 0.125
_LEAST_SAMPLES = 2
_MOST = 200
"""Most probes in each state. With more units neighbours are tried together, so that probes cost no more."""
_TOGETHER = (
    "The {} units of this model were not tried one by one, which is done for up to {}, but up to {} neighbours "
    "together. What such a group does is shared out among its units by the Quantization Debugger's statistics. If "
    "the recommended model costs too much, give the search more trials, or choose a search space with fewer units."
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
_NO_FIGURE = "the float outputs are all 0 on the calibration samples"


def probe_samples(search_samples: int) -> int:
    """The number of calibration samples on which each unit is tried alone.

    Where candidates are scored on few samples, each of them says much and costs much: a probe then takes an eighth of
    what a candidate takes.

    Args:
        search_samples: On which candidates are scored; 0 where that is not known.
    """
    if not search_samples:
        return _SAMPLES
    return max(_LEAST_SAMPLES, min(_SAMPLES, int(_SHARE * search_samples)))


def probe_count(units: int) -> int:
    """How many probes so many units take in each state."""
    return -(-units // _together(units))


def probed(
    atoms: Sequence[Atom],
    case: Case,
    settings: SearchSettings,
    pool: Workers,
    listener: Listener,
    noisy: Callable[[], Sequence[tuple[Atom, str]]] = tuple,
) -> tuple[tuple[Atom, ...], tuple[str, ...]]:
    """Try each atom alone in integers, and in each other state in which it makes an error; all others are in float.

    Of many atoms neighbours are tried together. Errors of atoms add up in power, so the error of a group is the sum of
    its atoms' own.

    Args:
        atoms: To be tried, in the order of the graph.
        case: With the samples.
        settings: Of the search.
        pool: Where they are tried.
        listener: Is told of each.
        noisy: Says the other states, state by state; asked when all is under way in integers.

    Returns:
        The atoms with what each did alone; where that failed, as they were. And what the user should know of that, in
        sentences.
    """
    everything = frozenset(node.name for node in case.layers.nodes)
    rows = spread_rows(case.counts["calibration"], probe_samples(case.counts.get("search", 0)))
    size = _together(len(atoms))

    def submitted(left_out: frozenset[str], further: Mapping[str, frozenset[str]]) -> Future[list[float]]:
        template = replace(settings.template, io_type="float32", fallback="drq" if further else "float")
        recipe = recipe_for(left_out, template, further=further).to_json()
        return pool.submit(
            error_shares, case.files.root, recipe, "calibration", rows, timeout_seconds=settings.trial_timeout
        )

    groups = [("", group) for group in _grouped(atoms, size)]
    running = [submitted(everything - _nodes(group), {}) for _, group in groups]
    for state, others in groupby(noisy(), key=lambda pair: pair[1]):
        for group in _grouped([atom for atom, _ in others], size):
            groups.append((state, group))
            running.append(submitted(everything, alone_in(state, _nodes(group), everything)))
    listener(StageStarted(stage="probes", total=len(running)))
    reasons: dict[str, list[str]] = {_RUINOUS: [], _FAILED: []}
    found: dict[frozenset[str], dict[str, float]] = {atom.nodes: {} for atom in atoms}
    for future, (state, group) in zip(running, groups, strict=True):
        try:
            alone = divergence(result_of(future))
            reasons[_FAILED] += [_NO_FIGURE] if math.isnan(alone) else []
        except ScoreError as exc:
            alone = _RUIN
            reasons[_RUINOUS].append(str(exc))
        except TrialError as exc:
            alone = math.nan
            reasons[_FAILED].append(str(exc))
        listener(StepFinished(stage="probes"))
        for atom, share in zip(group, _shares(group), strict=True):
            found[atom.nodes] |= {} if math.isnan(alone) else {state: alone * share}
    told = [text.format(len(why), len(running), why[0].rstrip(".")) for text, why in reasons.items() if why]
    return tuple(
        replace(atom, sensitivity=found[atom.nodes].pop("", atom.sensitivity), noise=found[atom.nodes])
        for atom in atoms
    ), (*([_TOGETHER.format(len(atoms), _MOST, size)] if size > 1 else []), *told)


def _together(units: int) -> int:
    """How many neighbours are tried at once."""
    return max(1, -(-units // _MOST))


def _grouped(atoms: Sequence[Atom], size: int) -> Iterator[Sequence[Atom]]:
    return (atoms[start : start + size] for start in range(0, len(atoms), size))


def _nodes(group: Sequence[Atom]) -> frozenset[str]:
    return frozenset[str]().union(*(atom.nodes for atom in group))


def _shares(group: Sequence[Atom]) -> list[float]:
    """The share of each atom in the group's error: half by the statistics, which may be wrong, half evenly."""
    total, even = sum(atom.sensitivity for atom in group), 1.0 / len(group)
    return [(atom.sensitivity / total + even) / 2.0 if total else even for atom in group]
