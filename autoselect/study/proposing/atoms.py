"""The atoms of a search, and which lie next to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autoselect.domain.graph import Graph
from autoselect.domain.layers import LayerTable
from autoselect.domain.search_space import BoundSpace, Toggle
from autoselect.study.proposing.problem import Atom


def atoms_of(space: BoundSpace, layers: LayerTable, sensitivities: Mapping[str, float]) -> tuple[Atom, ...]:
    """The smallest steps that a search space allows: its toggles without those that others make up.

    Args:
        space: Of several alternatives the one with the most toggles counts; counts (cuts) give no atoms.
        layers: For op types and positions.
        sensitivities: By node name; an atom has the largest of its nodes.
    """
    groups = _smallest_groups(space)
    places = {node.name: node for node in layers.nodes}
    atoms = []
    for group in groups:
        members = sorted((places[name] for name in group), key=lambda node: node.index)
        heaviest = max(members, key=lambda node: node.macs)
        known = [sensitivities[name] for name in group if name in sensitivities]
        atoms.append(
            Atom(
                nodes=group,
                op_type=heaviest.op_type,
                position=members[0].index,
                sensitivity=max([v for v in known if np.isfinite(v)], default=0.0),
            )
        )
    return tuple(sorted(atoms, key=lambda atom: (atom.position, sorted(atom.nodes))))


def _smallest_groups(space: BoundSpace) -> list[frozenset[str]]:
    choices = [space.of_alternative(name) for name, _ in space.alternatives] or [space.dimensions]
    toggles = max(([d for d in c if isinstance(d, Toggle)] for c in choices), key=len)
    found: list[frozenset[str]] = []
    taken: set[str] = set()
    for toggle in sorted(toggles, key=lambda t: (len(t.nodes), t.name)):
        if toggle.nodes and not toggle.nodes <= taken:
            found.append(toggle.nodes - taken)
            taken |= toggle.nodes
    return found


def neighbours_of(graph: Graph, layers: LayerTable, atoms: Sequence[Atom]) -> tuple[frozenset[int], ...]:
    """For each atom the atoms that it reads from or writes to, looking through ops that are no nodes."""
    owner = {name: i for i, atom in enumerate(atoms) for name in atom.nodes}
    atom_at = {node.index: owner[node.name] for node in layers.nodes if node.name in owner}
    found: list[set[int]] = [set() for _ in atoms]
    for index, before in enumerate(graph.nearest(atom_at)):
        for here, other in ((atom_at[index], atom_at[i]) for i in before if index in atom_at):
            if here != other:
                found[here].add(other)
                found[other].add(here)
    return tuple(frozenset(s) for s in found)
