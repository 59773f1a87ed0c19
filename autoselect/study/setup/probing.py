"""Tries each unit alone before the first trial: what it does to the outputs of a model that is float otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from statistics import stdev

from autoselect.cases.divergence import divergence, error_shares, spread_rows
from autoselect.cases.events import Listener, Noted, StageStarted, StepFinished
from autoselect.cases.prepare import Case
from autoselect.cases.settled import Settled
from autoselect.domain.states import alone_in
from autoselect.errors import ScoreError, TrialError
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.study.proposing.problem import Unit
from autoselect.study.setup.baselines import recipe_for

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
_NOTHING_TOGETHER = (
    "{} units were tried in the state {} together and not one by one: their error is less than a hundredth of what all "
    "units make in integers."
)
_NO_FIGURE = "the float outputs are all 0 on the calibration samples"

_Group = Sequence[Unit]


def probe_samples(search_samples: int) -> int:
    """The number of calibration samples on which each unit is tried alone.

    If candidates are scored on few samples, each of them says much and costs much: a probe then takes an eighth of
    what a candidate takes.

    Args:
        search_samples: On which candidates are scored; 0 where that is not known.
    """
    samples = 8
    if not search_samples:
        return samples
    return max(2, min(samples, int(0.125 * search_samples)))


def probe_count(units: int) -> int:
    """How many probes so many units take in each state."""
    return -(-units // _together(units))


def probed(
    atoms: Sequence[Unit],
    case: Case,
    settings: Settled,
    pool: Workers,
    listener: Listener,
    noisy: Callable[[], Sequence[tuple[Unit, str]]] = tuple,
) -> tuple[tuple[Unit, ...], tuple[str, ...]]:
    """Try each atom alone in integers, and in each other state in which it makes an error; all others are in float.

    Of many atoms neighbours are tried together. Errors of atoms add up in power, so the error of a group is the sum of
    its atoms' own. In another state all atoms are tried together first, then those that err most in integers alone and
    the rest together, and so on, until the rest makes no error that counts.

    Args:
        atoms: To be tried, in the order of the graph.
        case: With the samples.
        settings: Of the search.
        pool: Where they are tried.
        listener: Is told of each, and of those that were tried together because they make no error that counts.
        noisy: Says the other states, state by state; asked when all is under way in integers.

    Returns:
        The atoms with what each did alone; where that failed, as they were. And what the user should know of that, in
        sentences.
    """
    size = _together(len(atoms))
    prober = Prober(case=case, settings=settings, pool=pool, listener=listener, found={a.nodes: {} for a in atoms})
    in_integers = _grouped(atoms, size)
    running = [prober.submitted("", group) for group in in_integers]
    further = {
        state: _grouped([atom for atom, _ in others], size)
        for state, others in groupby(noisy(), key=lambda pair: pair[1])
    }
    count = sum(map(len, (in_integers, *further.values())))
    listener(StageStarted(stage="probes", total=count))
    prober.take("", in_integers, running)
    own = (alone.get("", 0.0) for alone in prober.found.values())
    # Largest error of a group in another state that is not looked into, as a share of the sum of what units err alone
    # in integers. Below it no choice of units depends on which unit of the group makes the error.
    least = 0.01 * sum(error for error in own if error < 1.0)  # What ruins the outputs alone is no scale.
    for state, groups in further.items():
        prober.try_further(state, groups, least)
    sentences = [text.format(len(why), count, why[0].rstrip(".")) for text, why in prober.reasons.items() if why]
    errors = prober.found
    return tuple(
        replace(atom, sensitivity=errors[atom.nodes].pop("", atom.sensitivity), noise=errors[atom.nodes])
        for atom in atoms
    ), (*([_TOGETHER.format(len(atoms), _MOST, size)] if size > 1 else []), *sentences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prober:
    """Tries groups of atoms.

    Attributes:
        found: By the nodes of an atom: its own error in each state, that in integers under an empty name.
        reasons: Why probes failed, by what is said of them.
    """

    case: Case
    settings: Settled
    pool: Workers
    listener: Listener
    found: dict[frozenset[str], dict[str, float]]
    reasons: Mapping[str, list[str]] = field(default_factory=lambda: {_RUINOUS: [], _FAILED: []})

    def submitted(self, state: str, group: _Group) -> Future[list[float]]:
        """The shares of error of a model with a group in a state."""
        everything = frozenset(node.name for node in self.case.layers.nodes)
        rows = spread_rows(self.case.counts["calibration"], probe_samples(self.case.counts.get("search", 0)))
        nodes = frozenset[str]().union(*(atom.nodes for atom in group))
        template = replace(self.settings.template, io_type="float32", fallback="drq" if state else "float")
        left_out, further = (everything, alone_in(state, nodes, everything)) if state else (everything - nodes, {})
        recipe = recipe_for(left_out, template, further=further).to_json()
        # A probe ends once twice the standard error of its mean error is below this share of that mean. Units are
        # only ranked by their errors, which need not be closer than that.
        arguments = (self.case.files.root, recipe, "calibration", [*rows[::2], *rows[1::2]], 0.5)
        return self.pool.submit(error_shares, *arguments, timeout_seconds=self.settings.trial_timeout)

    def take(self, state: str, groups: Sequence[_Group], running: Sequence[Future[list[float]]]) -> None:
        """Wait for probes and note what each group does."""
        for future, group in zip(running, groups, strict=True):
            try:
                alone = divergence(result_of(future))
                self.reasons[_FAILED] += [_NO_FIGURE] if math.isnan(alone) else []
            except ScoreError as exc:
                # Error power over signal power of outputs that are not there: more than any that are.
                alone = 1e3
                self.reasons[_RUINOUS].append(str(exc))
            except TrialError as exc:
                alone = math.nan
                self.reasons[_FAILED].append(str(exc))
            self.listener(StepFinished(stage="probes"))
            self._note(state, group, alone)

    def try_further(self, state: str, groups: Sequence[_Group], least: float) -> None:
        """Probe groups in another state, those that err most in integers first, until the rest errs too little.

        Each round probes the worse half of the groups; fewer than four are probed one by one.

        Args:
            state: The other state.
            groups: Of atoms that are probed together.
            least: The rest is not probed further once its error is at most this, beyond doubt.
        """
        # Fewer units are tried alone at once.
        worth_a_group = 4
        groups = sorted(groups, key=lambda group: -sum(map(self._known, group)))
        while groups:
            rest = list(chain.from_iterable(groups))
            if len(groups) >= worth_a_group and (alone := _most(self.submitted(state, rest))) <= least:
                self._note(state, rest, alone)
                self.listener(Noted(message=_NOTHING_TOGETHER.format(len(rest), state)))
                for _ in groups:
                    self.listener(StepFinished(stage="probes"))
                return
            few = groups[: -(-len(groups) // 2)] if len(groups) >= worth_a_group else groups
            self.take(state, few, [self.submitted(state, group) for group in few])
            groups = groups[len(few) :]

    def _known(self, atom: Unit) -> float:
        return self.found[atom.nodes].get("", atom.sensitivity)

    def _note(self, state: str, group: _Group, alone: float) -> None:
        for atom, share in zip(group, _shares([self._known(atom) for atom in group]), strict=True):
            self.found[atom.nodes] |= {} if math.isnan(alone) else {state: alone * share}


def _most(future: Future[list[float]]) -> float:
    """What a group's error is at most, beyond doubt; infinite where that is not known."""
    try:
        shares = result_of(future)
    except TrialError:
        return math.inf
    # Standard errors over samples that are added to a group's mean error before it is compared with that limit.
    return divergence(shares) + 2.0 * stdev(shares) / math.sqrt(len(shares)) if len(shares) > 1 else math.inf


def _together(units: int) -> int:
    """How many neighbours are tried at once."""
    return max(1, -(-units // _MOST))


def _grouped(atoms: Sequence[Unit], size: int) -> list[_Group]:
    return [atoms[start : start + size] for start in range(0, len(atoms), size)]


def _shares(errors: Sequence[float]) -> list[float]:
    """The share of each atom in a group's error: half by what is known of them, which may be wrong, half evenly."""
    total, even = sum(errors), 1.0 / len(errors)
    return [(error / total + even) / 2.0 if total else even for error in errors]
