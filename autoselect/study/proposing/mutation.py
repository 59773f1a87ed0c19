"""How one proposal is made from another: moves on the graph, and crossing. Knows masks, no scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoselect.study.proposing import constants
from autoselect.study.proposing.mask import Atoms, Mask, bits, indicator
from autoselect.study.proposing.problem import Problem


def child(
    parents: Sequence[Mask], problem: Problem, terms: np.ndarray, noise: np.ndarray, rng: np.random.Generator
) -> Mask:
    """Make one proposal out of one or two of the parents.

    Args:
        parents: At least one mask.
        problem: Gives neighbours.
        terms: Estimated divergence of each atom in integers, shape (n_atoms,).
        noise: The same in each other state, shape (n_states, n_atoms).
        rng: Source of chance.
    """
    parent = parents[int(rng.integers(len(parents)))]
    if len(parents) > 1 and rng.random() < constants.CROSSED_SHARE:
        parent = _crossed(parent, parents[int(rng.integers(len(parents)))], problem, rng)
    atoms = parent.left_out
    moves = (_flip_by_rank, _grow, _shrink, _drop_island, _close_gap, _flip_any, _swap)
    for _ in range(1 + int(rng.geometric(constants.LAST_MOVE))):
        atoms = moves[int(rng.integers(len(moves)))](atoms, problem, terms, rng)
    mask = Mask(atoms, parent.further, problem.without_sequence.get(parent.repairs, parent.repairs))
    if len(problem.offered) > 1 and rng.random() < constants.REPAIRED_SHARE:
        mask = mask._replace(repairs=problem.offered[int(rng.integers(len(problem.offered)))])
    if len(problem.states) == 1:
        return mask
    mask = problem.put(mask, atoms & ~parent.left_out, int(rng.integers(len(problem.states))))
    return _restated(mask, problem, noise, rng) if rng.random() < constants.RESTATED_SHARE else mask


def single_flips(mask: Mask, problem: Problem) -> list[Mask]:
    """All masks that differ in one atom's state."""
    found = []
    for atom in (1 << i for i in range(len(problem.atoms))):
        found += [mask.without(atom)] if mask.left_out & atom else []
        found += [mask.put(atom, p) for p, form in enumerate(problem.forms) if form & ~mask.within(p) & atom]
    return found


def repaired(mask: Mask, problem: Problem) -> list[Mask]:
    """The mask with each other set of repairs that any candidate may have."""
    return [mask._replace(repairs=place) for place in problem.offered if place != mask.repairs]


def without_islands(mask: Mask, problem: Problem) -> list[Mask]:
    """The mask without each of its float islands in turn, and with each in each other state."""
    islands = problem.islands(mask.left_out)
    found = [mask.without(island) for island in islands]
    for place in range(len(problem.states)) if len(problem.states) > 1 else ():
        restated = (problem.put(mask, island, place) for island in islands)
        found += [other for other in restated if other != mask]
    return found


def restated(mask: Mask, problem: Problem, noise: np.ndarray) -> list[Mask]:
    """All that the mask leaves out in each one state; then from it to the exact one by quarters, noisiest first."""
    *others, last = problem.by_cost
    found = []
    for place in others:
        whole = problem.put(mask, mask.left_out, place)
        ranking = sorted(bits(whole.within(place) & problem.forms[last]), key=lambda i: (-noise[place, i], i))
        for share in (0.0, *constants.OPENING, 1.0):
            chosen = sum(1 << i for i in ranking[: round(share * len(ranking))])
            found.append(problem.put(whole, chosen, last))
    return list(dict.fromkeys(found))


def _crossed(first: Mask, second: Mask, problem: Problem, rng: np.random.Generator) -> Mask:
    """The first up to some place of the graph, then the second."""
    low = (1 << int(rng.integers(1, len(problem.atoms) + 1))) - 1
    mask = Mask((first.left_out & low) | (second.left_out & ~low), repairs=first.repairs)
    for place in range(1, len(problem.states)):
        mask = mask.put((first.within(place) & low) | (second.within(place) & ~low), place)
    return mask


def _flip_by_rank(atoms: Atoms, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Atoms:
    """Leave out an atom that harms, or take back one that does not."""
    outside = rng.random() < 0.5
    chosen = bits(problem.everything & ~atoms if outside else atoms)
    if not chosen:
        return atoms
    harm = terms[chosen]
    weights = harm if outside else 1.0 / np.maximum(harm, 1e-12)
    weights = np.sqrt(np.maximum(weights, 1e-12))
    return atoms ^ (1 << chosen[int(rng.choice(len(chosen), p=weights / weights.sum()))])


def _grow(atoms: Atoms, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Atoms:
    """Leave out an atom at an island's edge."""
    return atoms | _one_of(problem.around(atoms) & ~atoms, rng)


def _shrink(atoms: Atoms, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Atoms:
    """Take back an atom at an island's edge."""
    edge = sum(1 << i for i in bits(atoms) if any(not atoms >> j & 1 for j in problem.neighbours[i]))
    return atoms & ~_one_of(edge, rng)


def _drop_island(atoms: Atoms, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Atoms:
    islands = problem.islands(atoms)
    return atoms & ~islands[int(rng.integers(len(islands)))] if islands else atoms


def _close_gap(atoms: Atoms, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Atoms:
    """Leave out an integer atom between two that are left out."""
    gaps = [i for i in bits(problem.around(atoms) & ~atoms) if sum(atoms >> j & 1 for j in problem.neighbours[i]) > 1]
    return atoms | (1 << gaps[int(rng.integers(len(gaps)))]) if gaps else atoms


def _flip_any(atoms: Atoms, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Atoms:
    return atoms ^ (1 << int(rng.integers(len(problem.atoms))))


def _swap(atoms: Atoms, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Atoms:
    """Leave out one atom instead of another."""
    return atoms & ~_one_of(atoms, rng) | _one_of(problem.everything & ~atoms, rng)


def _restated(mask: Mask, problem: Problem, noise: np.ndarray, rng: np.random.Generator) -> Mask:
    """With an island or an atom that is left out in another state, or one that is noisy in a less noisy one."""
    place, atoms = int(rng.integers(len(problem.states))), _island_or_atom(mask.left_out, problem, rng)
    if rng.random() < 0.5:
        chosen = bits(mask.left_out & problem.forms[place] & ~mask.within(place))
        if not chosen:
            return mask
        own = sum(
            noise[p, chosen] * indicator([mask.within(p)], len(problem.atoms))[0, chosen] for p in range(len(noise))
        )
        gain = np.sqrt(np.maximum(own, 1e-12) / np.maximum(noise[place, chosen], 1e-12))
        atoms = 1 << chosen[int(rng.choice(len(chosen), p=gain / gain.sum()))]
    return problem.put(mask, atoms, place)


def _island_or_atom(atoms: Atoms, problem: Problem, rng: np.random.Generator) -> Atoms:
    """What changes together."""
    islands = problem.islands(atoms)
    return (
        islands[int(rng.integers(len(islands)))]
        if islands and rng.random() < constants.ISLAND_SHARE
        else _one_of(atoms, rng)
    )


def _one_of(atoms: Atoms, rng: np.random.Generator) -> Atoms:
    chosen = bits(atoms)
    return 1 << chosen[int(rng.integers(len(chosen)))] if chosen else 0
