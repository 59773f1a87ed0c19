"""How one proposal is made from another: moves on the graph, and crossing. Knows masks, no scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoselect.study.proposing import constants
from autoselect.study.proposing.mask import Mask, Units, bits, indicator
from autoselect.study.proposing.problem import Problem


def child(parents: Sequence[Mask], problem: Problem, noise: np.ndarray, rng: np.random.Generator) -> Mask:
    """Make one proposal out of one or two of the parents.

    Args:
        parents: At least one mask.
        problem: Gives neighbours.
        noise: Estimated divergence of each unit in each state but integers, shape (n_states, n_units).
        rng: Source of chance.
    """
    parent = parents[int(rng.integers(len(parents)))]
    if len(parents) > 1 and rng.random() < constants.CROSSED_SHARE:
        parent = _crossed(parent, parents[int(rng.integers(len(parents)))], problem, rng)
    units = parent.left_out
    # A flip of one unit is more likely than each move of several.
    moves = (*[_flip_any] * 4, _drop_island, _close_gap, _swap)
    for _ in range(1 + int(rng.geometric(constants.LAST_MOVE))):
        units = moves[int(rng.integers(len(moves)))](units, problem, rng)
    mask = Mask(units, parent.further, problem.without_sequence.get(parent.repairs, parent.repairs))
    if len(problem.offered) > 1 and rng.random() < constants.REPAIRED_SHARE:
        mask = mask._replace(repairs=problem.offered[int(rng.integers(len(problem.offered)))])
    if len(problem.states) == 1:
        return mask
    mask = problem.put(mask, units & ~parent.left_out, int(rng.integers(len(problem.states))))
    return _restated(mask, problem, noise, rng) if rng.random() < constants.RESTATED_SHARE else mask


def single_flips(mask: Mask, problem: Problem) -> list[Mask]:
    """All masks that differ in one unit's state."""
    masks = []
    for unit in (1 << i for i in range(len(problem.units))):
        masks += [mask.without(unit)] if mask.left_out & unit else []
        masks += [mask.put(unit, p) for p, form in enumerate(problem.forms) if form & ~mask.within(p) & unit]
    return masks


def repaired(mask: Mask, problem: Problem) -> list[Mask]:
    """The mask with each other set of repairs that any candidate may have."""
    return [mask._replace(repairs=place) for place in problem.offered if place != mask.repairs]


def restated(mask: Mask, problem: Problem, noise: np.ndarray) -> list[Mask]:
    """All that the mask leaves out in each one state; then from it to the exact one by quarters, noisiest first."""
    *others, last = problem.by_cost
    masks = []
    for place in others:
        whole = problem.put(mask, mask.left_out, place)
        ranking = sorted(bits(whole.within(place) & problem.forms[last]), key=lambda i: (-noise[place, i], i))
        for share in (0.0, *constants.OPENING, 1.0):
            chosen = sum(1 << i for i in ranking[: round(share * len(ranking))])
            masks.append(problem.put(whole, chosen, last))
    return list(dict.fromkeys(masks))


def _crossed(first: Mask, second: Mask, problem: Problem, rng: np.random.Generator) -> Mask:
    """The first up to some place of the graph, then the second."""
    low = (1 << int(rng.integers(1, len(problem.units) + 1))) - 1
    mask = Mask((first.left_out & low) | (second.left_out & ~low), repairs=first.repairs)
    for place in range(1, len(problem.states)):
        mask = mask.put((first.within(place) & low) | (second.within(place) & ~low), place)
    return mask


def _drop_island(units: Units, problem: Problem, rng: np.random.Generator) -> Units:
    islands = problem.islands(units)
    return units & ~islands[int(rng.integers(len(islands)))] if islands else units


def _close_gap(units: Units, problem: Problem, rng: np.random.Generator) -> Units:
    """Leave out an integer unit between two that are left out."""
    gaps = [i for i in bits(problem.around(units) & ~units) if sum(units >> j & 1 for j in problem.neighbours[i]) > 1]
    return units | (1 << gaps[int(rng.integers(len(gaps)))]) if gaps else units


def _flip_any(units: Units, problem: Problem, rng: np.random.Generator) -> Units:
    return units ^ (1 << int(rng.integers(len(problem.units))))


def _swap(units: Units, problem: Problem, rng: np.random.Generator) -> Units:
    """Leave out one unit instead of another."""
    return units & ~_one_of(units, rng) | _one_of(problem.everything & ~units, rng)


def _restated(mask: Mask, problem: Problem, noise: np.ndarray, rng: np.random.Generator) -> Mask:
    """With an island or a unit that is left out in another state, or one that is noisy in a less noisy one."""
    place, units = int(rng.integers(len(problem.states))), _island_or_unit(mask.left_out, problem, rng)
    if rng.random() < 0.5:
        chosen = bits(mask.left_out & problem.forms[place] & ~mask.within(place))
        if not chosen:
            return mask
        own = sum(
            noise[p, chosen] * indicator([mask.within(p)], len(problem.units))[0, chosen] for p in range(len(noise))
        )
        gain = np.sqrt(np.maximum(own, 1e-12) / np.maximum(noise[place, chosen], 1e-12))
        units = 1 << chosen[int(rng.choice(len(chosen), p=gain / gain.sum()))]
    return problem.put(mask, units, place)


def _island_or_unit(units: Units, problem: Problem, rng: np.random.Generator) -> Units:
    """What changes together."""
    islands = problem.islands(units)
    return (
        islands[int(rng.integers(len(islands)))]
        if islands and rng.random() < constants.ISLAND_SHARE
        else _one_of(units, rng)
    )


def _one_of(units: Units, rng: np.random.Generator) -> Units:
    chosen = bits(units)
    return 1 << chosen[int(rng.integers(len(chosen)))] if chosen else 0
