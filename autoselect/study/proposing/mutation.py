"""How one proposal is made from another: moves on the graph, and crossing. Knows masks, no scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoselect.study.proposing.problem import Mask, Problem, bits


def child(parents: Sequence[Mask], problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Mask:
    """Make one proposal out of one or two of the parents.

    Args:
        parents: At least one mask.
        problem: Gives neighbours.
        terms: Estimated divergence of each atom in integers, shape (n_atoms,).
        rng: Source of chance.
    """
    parent = parents[int(rng.integers(len(parents)))]
    parents = [problem.left_out(mask) for mask in parents]
    mask, in_float = problem.left_out(parent), problem.in_float(parent)
    if len(parents) > 1 and rng.random() < 0.25:
        mask = _crossed(mask, parents[int(rng.integers(len(parents)))], problem, rng)
    moves = (_flip_by_rank, _grow, _shrink, _drop_island, _close_gap, _flip_any, _swap)
    for _ in range(1 + int(rng.geometric(0.6))):
        mask = moves[int(rng.integers(len(moves)))](mask, problem, terms, rng)
    if problem.mixed and rng.random() < 0.5:
        in_float ^= _island_or_atom(mask, problem, rng)
    return problem.with_float(mask, in_float)


def single_flips(mask: Mask, problem: Problem) -> list[Mask]:
    """All masks that differ in one atom."""
    found = [problem.canonical(mask ^ (1 << i)) for i in range(len(problem.atoms))]
    if problem.mixed:
        found += [problem.with_float(mask, problem.in_float(mask) ^ (1 << i)) for i in bits(problem.left_out(mask))]
    return found


def without_islands(mask: Mask, problem: Problem) -> list[Mask]:
    """The mask without each of its float islands in turn."""
    return [problem.canonical(mask & ~island) for island in problem.islands(mask)]


def _crossed(first: Mask, second: Mask, problem: Problem, rng: np.random.Generator) -> Mask:
    """The first up to some place of the graph, then the second."""
    low = (1 << int(rng.integers(1, len(problem.atoms) + 1))) - 1
    return (first & low) | (second & ~low)


def _flip_by_rank(mask: Mask, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Mask:
    """Leave out an atom that harms, or take back one that does not."""
    outside = rng.random() < 0.5
    chosen = bits(problem.everything & ~mask if outside else mask)
    if not chosen:
        return mask
    harm = terms[chosen]
    weights = harm if outside else 1.0 / np.maximum(harm, 1e-12)
    weights = np.sqrt(np.maximum(weights, 1e-12))
    return mask ^ (1 << chosen[int(rng.choice(len(chosen), p=weights / weights.sum()))])


def _grow(mask: Mask, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Mask:
    """Leave out an atom at an island's edge."""
    return mask | _one_of(_edge_outside(mask, problem), rng)


def _shrink(mask: Mask, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Mask:
    """Take back an atom at an island's edge."""
    edge = sum(1 << i for i in bits(mask) if any(not mask >> j & 1 for j in problem.neighbours[i]))
    return mask & ~_one_of(edge, rng)


def _drop_island(mask: Mask, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Mask:
    islands = problem.islands(mask)
    return mask & ~islands[int(rng.integers(len(islands)))] if islands else mask


def _close_gap(mask: Mask, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Mask:
    """Leave out an integer atom between two that are left out."""
    gaps = [i for i in bits(_edge_outside(mask, problem)) if sum(mask >> j & 1 for j in problem.neighbours[i]) > 1]
    return mask | (1 << gaps[int(rng.integers(len(gaps)))]) if gaps else mask


def _flip_any(mask: Mask, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Mask:
    return mask ^ (1 << int(rng.integers(len(problem.atoms))))


def _swap(mask: Mask, problem: Problem, terms: np.ndarray, rng: np.random.Generator) -> Mask:
    """Leave out one atom instead of another."""
    return mask & ~_one_of(mask, rng) | _one_of(problem.everything & ~mask, rng)


def _island_or_atom(mask: Mask, problem: Problem, rng: np.random.Generator) -> Mask:
    """What changes between float and hybrid together."""
    islands = problem.islands(mask)
    return islands[int(rng.integers(len(islands)))] if islands and rng.random() < 0.5 else _one_of(mask, rng)


def _edge_outside(mask: Mask, problem: Problem) -> Mask:
    reached = 0
    for i in bits(mask):
        for j in problem.neighbours[i]:
            reached |= 1 << j
    return reached & ~mask


def _one_of(mask: Mask, rng: np.random.Generator) -> Mask:
    chosen = bits(mask)
    return 1 << chosen[int(rng.integers(len(chosen)))] if chosen else 0
