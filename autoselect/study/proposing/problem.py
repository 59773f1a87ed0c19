"""What is known of a search before anything is scored: atoms, neighbours, exact size and penalty of any proposal.

Knows nothing of accuracy but the priors that the layer statistics and a few probes give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from autoselect.domain.graph import Graph
from autoselect.domain.layers import LayerTable
from autoselect.domain.objectives import Constraints
from autoselect.domain.quantities import DEFAULT_COSTS
from autoselect.domain.search_space import BoundSpace, Toggle
from autoselect.study.proposing.mask import Atoms, Mask, bits

NO_LIMITS = Constraints()

FORECASTS_KEPT = 4096
"""More than a sampler looks at from one ask to the next: its pool, and all that it has seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Atom:
    """Nodes that the search moves together, the smallest step that it can take.

    Attributes:
        nodes: Names of its nodes.
        op_type: Of the node with the most multiply-accumulates.
        position: Index of its first op in the graph.
        sensitivity: Estimated error power over signal power of the model's outputs with only this atom in integers.
    """

    nodes: frozenset[str]
    op_type: str
    position: int
    sensitivity: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """Exact size and penalty of a candidate that need not be built; ``key`` is equal where the bytes must be.

    ``refusal`` says why the target does not take it; None where it does. ``figures`` are further costs that the graph
    gives, by column, as far as the run's objectives ask for them. ``kinds`` says what becomes of each node, in graph
    order; empty where that is not known.
    """

    size_bytes: int
    penalty: float
    key: object
    refusal: str | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()


class Problem:
    """One search as a sampler sees it.

    Attributes:
        atoms: In graph order.
        neighbours: For each atom the atoms that it reads from or writes to.
        pinned: Nodes that every candidate leaves out.
        heuristic: The guide's choice of nodes.
        ladders: Rankings of atoms.
        hybrid: Whether what is left out becomes hybrid.
        mixed: Whether each atom that is left out may be float instead.
        refinable: Whether biases of the front's members may be corrected further than those of other candidates.
        constraints: The user's limits.
        allowed_loss: What a recommended candidate may lose, in the metric's units.
        costs: Columns of the run's objectives but the metric.
        forecast_of: Exact size and penalty by the denylisted nodes and those of them that are float; not remembered.
    """

    def __init__(
        self,
        atoms: Sequence[Atom],
        neighbours: Sequence[frozenset[int]],
        forecast: Callable[[frozenset[str], frozenset[str]], Forecast],
        *,
        pinned: frozenset[str] = frozenset(),
        heuristic: frozenset[str] = frozenset(),
        ladders: Sequence[Sequence[int]] = (),
        hybrid: bool = True,
        mixed: bool = False,
        refinable: bool = False,
        constraints: Constraints = NO_LIMITS,
        allowed_loss: float = math.inf,
        costs: Sequence[str] = DEFAULT_COSTS,
    ) -> None:
        """Keep what is known.

        Args:
            atoms: In graph order.
            neighbours: For each atom the indices of the atoms next to it.
            forecast: Exact size and penalty by the denylisted nodes and those of them that are float.
            pinned: Nodes that every candidate leaves out.
            heuristic: The guide's choice, for the baseline of that name.
            ladders: Rankings of atoms whose prefixes are worth a thought.
            hybrid: Whether what is left out becomes hybrid, which is not without error.
            mixed: Whether each atom that is left out may be float instead.
            refinable: Whether biases of the front's members may be corrected further than those of other candidates.
            constraints: The user's limits.
            allowed_loss: What a recommended candidate may lose, in the metric's units; infinite where unknown.
            costs: Columns of the run's objectives but the metric.
        """
        self.atoms = tuple(atoms)
        self.neighbours = tuple(neighbours)
        self.pinned = pinned
        self.heuristic = heuristic
        self.ladders = tuple(tuple(ladder) for ladder in ladders)
        self.hybrid, self.mixed, self.refinable = hybrid, mixed, refinable
        self.constraints, self.allowed_loss = constraints, allowed_loss
        self.costs = tuple(costs)
        self.forecast_of = forecast
        self._remembered = lru_cache(maxsize=FORECASTS_KEPT)(self._worked_out)
        self._distrusted: set[Mask] = set()

    @cached_property
    def everything(self) -> Atoms:
        """All atoms."""
        return (1 << len(self.atoms)) - 1

    def nodes_of(self, mask: Mask) -> frozenset[str]:
        """The nodes that a mask leaves out, with the pinned ones."""
        return self.pinned | self._nodes(mask.left_out)

    def float_nodes_of(self, mask: Mask) -> frozenset[str]:
        """Of the nodes that a mask leaves out those that are float where others are hybrid."""
        return self._nodes(mask.in_float)

    def _nodes(self, atoms: Atoms) -> frozenset[str]:
        return frozenset().union(*(self.atoms[i].nodes for i in bits(atoms)))

    def mask_of(self, nodes: Iterable[str], float_nodes: Iterable[str] = (), *, refined: bool = False) -> Mask:
        """The atoms of which more than half is left out; exact for what the atoms can express."""
        return Mask(self._atoms(nodes), self._atoms(float_nodes), refined)

    def _atoms(self, nodes: Iterable[str]) -> Atoms:
        chosen = frozenset(nodes)
        return sum(1 << i for i, atom in enumerate(self.atoms) if 2 * len(atom.nodes & chosen) > len(atom.nodes))

    def forecast(self, mask: Mask) -> Forecast:
        """Exact size and penalty; those asked for last are remembered."""
        found = self._remembered(mask)
        return replace(found, key=("built otherwise", mask)) if mask in self._distrusted else found

    def _worked_out(self, mask: Mask) -> Forecast:
        found = self.forecast_of(self.nodes_of(mask), self.float_nodes_of(mask))
        return replace(found, key=(found.key, "refined")) if mask.refined else found

    def distrust(self, mask: Mask) -> None:
        """Take a candidate for unlike any other from now on: it was built otherwise than forecast."""
        self._distrusted.add(mask)

    def accepts(self, mask: Mask) -> bool:
        """Whether the target takes it."""
        return self.forecast(mask).refusal is None

    def within_limits(self, mask: Mask) -> bool:
        """Whether size and penalty keep the user's limits."""
        found = self.forecast(mask)
        violations = self.constraints.violations(drop=0.0, size_bytes=found.size_bytes, penalty=found.penalty)
        return max(violations["max_size"], violations["max_penalty"]) <= 0.0

    @cached_property
    def sensitivities(self) -> np.ndarray:
        """Of the atoms, shape (n_atoms,)."""
        return np.array([atom.sensitivity for atom in self.atoms])

    def islands(self, atoms: Atoms) -> list[Atoms]:
        """The connected groups of these atoms, in graph order."""
        found = []
        while atoms:
            island = frontier = atoms & -atoms
            while frontier:
                reached = 0
                for i in bits(frontier):
                    for j in self.neighbours[i]:
                        reached |= 1 << j
                frontier = reached & atoms & ~island
                island |= frontier
            found.append(island)
            atoms &= ~island
        return found


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
    atom_at = {node.index: owner.get(node.name) for node in layers.nodes}
    producers = graph.producers()
    reached: list[frozenset[int]] = []
    found: list[set[int]] = [set() for _ in atoms]
    for index, op in enumerate(graph.ops):
        before: set[int] = set()
        for tensor in op.inputs:
            if tensor in producers:
                before |= reached[producers[tensor]]
        here = atom_at.get(index)
        if here is None:
            reached.append(frozenset(before))
            continue
        for other in before - {here}:
            found[here].add(other)
            found[other].add(here)
        reached.append(frozenset({here}))
    return tuple(frozenset(s) for s in found)
