"""How one proposal is made from another: moves on the graph, and crossing. Knows masks, no scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoselect.study.proposing import constants
from autoselect.study.proposing.mask import Atoms, Mask, bits
from autoselect.study.proposing.problem import Problem


def child(parents: Sequence[Mask], problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Mask:
    """Make one proposal out of one or two of the parents.

    Args:
        parents: At least one mask.
        problem: Gives neighbours.
        terms: Estimated divergence of each atom in integers, shape (n_atoms,).
        rng: Source of chance.
    """
    parent = parents[int(rng.integers(len(parents)))]
    atoms, in_float = parent.left_out, parent.in_float
    if len(parents) > 1 and rng.random() < constants.CROSSED_SHARE:
        atoms = _crossed(atoms, parents[int(rng.integers(len(parents)))].left_out, problem, rng)
    moves = (_flip_by_rank, _grow, _shrink, _drop_island, _close_gap, _flip_any, _swap)
    for _ in range(1 + int(rng.geometric(constants.LAST_MOVE))):
        atoms = moves[int(rng.integers(len(moves)))](atoms, problem, terms, rng)
    if problem.mixed and rng.random() < constants.FLOAT_SHARE:
        in_float ^= _island_or_atom(atoms, problem, rng)
    return Mask(atoms, in_float)


def single_flips(mask: Mask, problem: Problem) -> list[Mask]:
    """All masks that differ in one atom."""
    found = [mask._replace(left_out=mask.left_out ^ 1 << i) for i in range(len(problem.atoms))]
    if problem.mixed:
        found += [mask._replace(in_float=mask.in_float ^ 1 << i) for i in bits(mask.left_out)]
    return found


def without_islands(mask: Mask, problem: Problem) -> list[Mask]:
    """The mask without each of its float islands in turn."""
    return [mask.without(island) for island in problem.islands(mask.left_out)]


def _crossed(first: Atoms, second: Atoms, problem: Problem, rng: np.random.Generator) -> Atoms:
    """The first up to some place of the graph, then the second."""
    low = (1 << int(rng.integers(1, len(problem.atoms) + 1))) - 1
    return (first & low) | (second & ~low)


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
    return atoms | _one_of(_edge_outside(atoms, problem), rng)


def _shrink(atoms: Atoms, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Atoms:
    """Take back an atom at an island's edge."""
    edge = sum(1 << i for i in bits(atoms) if any(not atoms >> j & 1 for j in problem.neighbours[i]))
    return atoms & ~_one_of(edge, rng)


def _drop_island(atoms: Atoms, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Atoms:
    islands = problem.islands(atoms)
    return atoms & ~islands[int(rng.integers(len(islands)))] if islands else atoms


def _close_gap(atoms: Atoms, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Atoms:
    """Leave out an integer atom between two that are left out."""
    gaps = [i for i in bits(_edge_outside(atoms, problem)) if sum(atoms >> j & 1 for j in problem.neighbours[i]) > 1]
    return atoms | (1 << gaps[int(rng.integers(len(gaps)))]) if gaps else atoms


def _flip_any(atoms: Atoms, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Atoms:
    return atoms ^ (1 << int(rng.integers(len(problem.atoms))))


def _swap(atoms: Atoms, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Atoms:
    """Leave out one atom instead of another."""
    return atoms & ~_one_of(atoms, rng) | _one_of(problem.everything & ~atoms, rng)


def _island_or_atom(atoms: Atoms, problem: Problem, rng: np.random.Generator) -> Atoms:
    """What changes between float and hybrid together."""
    islands = problem.islands(atoms)
    return (
        islands[int(rng.integers(len(islands)))]
        if islands and rng.random() < constants.ISLAND_SHARE
        else _one_of(atoms, rng)
    )


def _edge_outside(atoms: Atoms, problem: Problem) -> Atoms:
    reached = 0
    for i in bits(atoms):
        for j in problem.neighbours[i]:
            reached |= 1 << j
    return reached & ~atoms


def _one_of(atoms: Atoms, rng: np.random.Generator) -> Atoms:
    chosen = bits(atoms)
    return 1 << chosen[int(rng.integers(len(chosen)))] if chosen else 0
