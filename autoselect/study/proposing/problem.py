"""What is known of a search before anything is scored: units, neighbours, exact size and penalty of any proposal.

Knows nothing of accuracy but the priors that the layer statistics and a few probes give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from autoselect.domain.objectives import Constraints
from autoselect.domain.quantities import DEFAULT_COSTS
from autoselect.domain.repair_sets import Repairs, corrected_in_sequence
from autoselect.domain.rule import Rule
from autoselect.domain.search_space import FREE, BoundSpace
from autoselect.domain.states import APART, EXACT, STATES
from autoselect.study.proposing import constants
from autoselect.study.proposing.mask import Mask, Units, bits, indicator

NO_LIMITS = Constraints()
NO_RULE = Rule(allowed_drop=math.inf, float_penalty=1.0, float_size_bytes=1.0)
NOTHING_FURTHER: Mapping[str, frozenset[str]] = {}

FORECASTS_KEPT = 4096
"""Forecasts that are remembered: more than a sampler has in its pool and among its trials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Nodes that the search moves together, the smallest step that it can take.

    Attributes:
        nodes: Names of its nodes.
        op_type: Of the node with the most multiply-accumulates.
        position: Index of its first op in the graph.
        sensitivity: Estimated error power over signal power of the model's outputs with only this unit in integers.
        noise: The same with only this unit in another state and all others in float, where it is known.
        is_clipped: Whether integers of any width cut off values of a node of it on some samples.
    """

    nodes: frozenset[str]
    op_type: str
    position: int
    sensitivity: float
    noise: Mapping[str, float] = field(default_factory=dict)
    is_clipped: bool = False


@dataclass(frozen=True, slots=True)
class Forecast:
    """Exact size and penalty of a candidate that need not be built; ``key`` is equal where the bytes must be.

    ``refusal`` says why the target does not take it; None if it does. ``figures`` are further costs that the graph
    gives, by column, as far as the run's objectives ask for them; a size after packing is about right. ``kinds`` says
    what becomes of each node, in graph order; empty if that is not known.
    """

    size_bytes: int
    penalty: float
    key: object
    refusal: str | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()


Forecaster = Callable[[frozenset[str], Mapping[str, frozenset[str]], Repairs], Forecast]
"""A forecast by the nodes left out, by those of them in each further state, and by the candidate's repairs."""


Hold = Callable[[Mask], Mask]
"""Makes of any candidate the nearest one that keeps what a user pinned."""


def as_it_is(mask: Mask) -> Mask:
    """Nothing is pinned."""
    return mask


class Problem:
    """One search as a sampler sees it.

    Attributes:
        units: In graph order.
        neighbours: For each unit the units that it reads from or writes to.
        space: The search space, which says what states a node may not have.
        pinned: Nodes that every candidate leaves out, by ``keep_float`` and ``not_int8`` of the space.
        not_int8: Units that no candidate has in integers of 8 bits.
        not_outside: Units that are in integers of 8 or 16 bits in each candidate.
        ladders: Rankings of units.
        clipped: Those of the units that are.
        states: What a unit that is left out may be; the first where a mask says no more. See ``domain.states``.
        repair_sets: What a candidate may have; the first where a mask says no more.
        added_noise: What the levels of weights of each set add to error power over signal power of the outputs.
        in_sequence: Places of the sets that correct biases in sequence, by the place of the same without that: they
            take time, so they are for members of the front.
        constraints: The user's limits.
        rule: By which a candidate is recommended; without one nobody knows what it may lose.
        costs: Columns of the run's objectives but the metric.
        forecast_of: Exact size and penalty by the nodes left out, those of them in each further state, and repairs;
            not remembered.
        order: The nodes in the order in which forecasts say what becomes of them; empty if they do not.
        hold: Every proposal is as this makes it; what is known already need not be.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        neighbours: Sequence[frozenset[int]],
        forecast: Forecaster,
        *,
        space: BoundSpace = FREE,
        ladders: Sequence[Sequence[int]] = (),
        states: Sequence[str] = STATES["drq"],
        repair_sets: Sequence[Repairs] = ((),),
        added_noise: Sequence[float] = (),
        constraints: Constraints = NO_LIMITS,
        rule: Rule = NO_RULE,
        costs: Sequence[str] = DEFAULT_COSTS,
        order: Sequence[str] = (),
    ) -> None:
        """Keep what is known; a ``forecast`` is what :attr:`forecast_of` becomes.

        A unit is in ``not_int8`` or ``not_outside`` if all its nodes are in the set of that name of the ``space``.
        """
        self.units = tuple(units)
        self.neighbours = tuple(neighbours)
        self.space, self.pinned = space, space.left_out_of_all
        self.not_int8, self.not_outside = (
            sum(1 << i for i, unit in enumerate(self.units) if unit.nodes <= nodes)
            for nodes in (space.not_int8, space.not_outside)
        )
        # Nodes whose state is settled do not tell in which state the unit is, as long as it has others.
        held = space.not_int8 | space.not_outside
        self._telling = tuple(unit.nodes - held or unit.nodes for unit in self.units)
        self.ladders = tuple(tuple(ladder) for ladder in ladders)
        self.clipped: Units = sum(1 << i for i, unit in enumerate(self.units) if unit.is_clipped)
        self.states, self.repair_sets = tuple(states), tuple(repair_sets)
        self.added_noise = tuple(added_noise) or (0.0,) * len(self.repair_sets)
        self.in_sequence = {
            place: self.repair_sets.index(other)
            for place, repairs in enumerate(self.repair_sets)
            if (other := corrected_in_sequence(repairs)) != repairs and other in self.repair_sets
        }
        self.constraints, self.rule = constraints, rule
        self.costs = tuple(costs)
        self.forecast_of, self.order = forecast, tuple(order)
        self.hold: Hold = self.in_forms if self.not_int8 or self.not_outside else as_it_is
        self._remembered = lru_cache(maxsize=FORECASTS_KEPT)(self._worked_out)
        self._distrusted: set[Mask] = set()
        self._keys: dict[Mask, object] = {}

    @cached_property
    def everything(self) -> Units:
        """All units."""
        return (1 << len(self.units)) - 1

    def nodes_of(self, mask: Mask) -> frozenset[str]:
        """The nodes that a mask leaves out, with the pinned ones."""
        return self.pinned | self._nodes(mask.left_out)

    def further_of(self, mask: Mask) -> dict[str, frozenset[str]]:
        """The nodes that a mask leaves out in each further state."""
        return {state: self._nodes(mask.within(place)) for place, state in enumerate(self.states) if place}

    def out_of_integers(self, mask: Mask) -> Units:
        """The units that are in integers of no width."""
        return mask.left_out & ~sum(mask.within(place) for place, state in enumerate(self.states) if state in APART)

    def sides(self, masks: Sequence[Mask]) -> np.ndarray:
        """How candidates differ, shape (n_masks, n_units * n_states).

        A column says for a unit whether it is in a state, which is 1, or not. Integers come first; the last state
        follows from the others.
        """
        count = len(self.units)
        others = [indicator([m.within(place) for m in masks], count) for place in range(len(self.states) - 1)]
        return np.hstack([1.0 - indicator([mask.left_out for mask in masks], count), *others])

    def _nodes(self, units: Units) -> frozenset[str]:
        return frozenset().union(*(self.units[i].nodes for i in bits(units)))

    def mask_of(
        self, nodes: Iterable[str], further: Mapping[str, Iterable[str]] = NOTHING_FURTHER, repairs: Repairs = ()
    ) -> Mask:
        """The mask of units that are more than half left out, or in a state; exact for what units can express.

        Repairs that are none of the problem's sets are taken for the first.
        """
        place = self.repair_sets.index(repairs) if repairs in self.repair_sets else 0
        mask = Mask(self._units(nodes), repairs=place)
        for place, state in enumerate(self.states[1:], start=1):
            mask = self.put(mask, self._units(further.get(state, ())) & mask.left_out, place)
        return mask

    def split_by(self, *sets: frozenset[str]) -> Units:
        """The units that any of these sets of nodes holds only a part of; no mask can express that."""
        return sum(
            1 << i for i, nodes in enumerate(self._telling) if any(0 < len(nodes & s) < len(nodes) for s in sets)
        )

    def units_of(self, nodes: Iterable[str]) -> tuple[int, ...]:
        """The places of the units that nodes belong to, in the order of the nodes, once each."""
        places = (i for name in nodes for i, unit in enumerate(self.units) if name in unit.nodes)
        return tuple(dict.fromkeys(places))

    def _units(self, nodes: Iterable[str]) -> Units:
        chosen = frozenset(nodes)
        return sum(1 << i for i, nodes in enumerate(self._telling) if 2 * len(nodes & chosen) > len(nodes))

    def forecast(self, mask: Mask) -> Forecast:
        """Exact size and penalty; those asked for last are remembered."""
        forecast = self._remembered(mask)
        return replace(forecast, key=self.key(mask)) if mask in self._distrusted else forecast

    def key(self, mask: Mask) -> object:
        """What a candidate has in common with all that are equal once built; every answer is remembered."""
        if mask in self._distrusted:
            return "built otherwise", mask
        if mask not in self._keys:
            self._keys[mask] = self._remembered(mask).key
        return self._keys[mask]

    def _worked_out(self, mask: Mask) -> Forecast:
        return self.forecast_of(self.nodes_of(mask), self.further_of(mask), self.repair_sets[mask.repairs])

    def distrust(self, mask: Mask) -> None:
        """Treat a candidate as unlike any other from now on, because it was built otherwise than forecast."""
        self._distrusted.add(mask)

    def accepts(self, mask: Mask) -> bool:
        """Whether the target takes it."""
        return self.forecast(mask).refusal is None

    def within_limits(self, mask: Mask) -> bool:
        """Whether size and penalty keep the user's limits."""
        forecast = self.forecast(mask)
        violations = self.constraints.violations(drop=0.0, size_bytes=forecast.size_bytes, penalty=forecast.penalty)
        return max(violations["max_size"], violations["max_penalty"]) <= 0.0

    @cached_property
    def forms(self) -> tuple[Units, ...]:
        """The units that have a form of their own in each state; in the first all have but those of ``not_outside``.

        An op without a hybrid kernel is float in both states, so that only the first counts.
        """
        return tuple(same[place] for place, same in enumerate(self._same))

    @cached_property
    def _same(self) -> tuple[tuple[Units, ...], ...]:
        """The units whose form is the same in two states, for each state and each up to it."""
        same_units = [[0] * (place + 1) for place in range(len(self.states))]
        for i in range(len(self.units)):
            integer, *keys = self._becomes(i)
            for place, key in enumerate(keys):
                first = keys.index(key)
                is_plain = first == 0 and not self.not_outside >> i & 1
                same_units[place][first] |= (is_plain or key != integer) << i
        return tuple(map(tuple, same_units))

    def _becomes(self, unit: int) -> list[object]:
        """What a unit becomes in integers and in each state; equal where its form is the same."""
        if self.order:
            return [kinds[unit] for kinds in self._kinds]
        if len(self.states) == 1:
            return [None, unit]
        alone = (Mask().put(1 << unit, place) for place in range(len(self.states)))
        return [self.forecast(mask).key for mask in (Mask(), *alone)]

    @cached_property
    def _kinds(self) -> tuple[tuple[tuple[str, ...], ...], ...]:
        """What becomes of each unit's nodes in integers, then in each state.

        It does not depend on other nodes, so one forecast with all units in a state tells of each.
        """
        places = {name: place for place, name in enumerate(self.order)}
        rows = [sorted(places[name] for name in unit.nodes) for unit in self.units]
        masks = (Mask(), *(Mask().put(self.everything, place) for place in range(len(self.states))))
        return tuple(
            tuple(tuple(kinds[place] for place in row) for row in rows)
            for kinds in (self.forecast(mask).kinds for mask in masks)
        )

    def put(self, mask: Mask, units: Units, place: int) -> Mask:
        """The candidate with these units in a state; units without a form of their own there stay in theirs.

        One that has none but integers there stays in them.
        """
        mask = mask.without(units & ~sum(self._same[place]))
        for first, form in enumerate(self._same[place]):
            mask = mask.put(units & form, first) if units & form else mask
        return mask

    @cached_property
    def noisy(self) -> tuple[Units, ...]:
        """The units that make an error in each state: those with a form of their own and an op of that state."""
        noisy_units = []
        for place, state in enumerate(self.states):
            exact = state == EXACT
            noisy_units.append(sum(1 << i for i in bits(self.forms[place]) if not exact and self._has(i, place)))
        return tuple(noisy_units)

    def _has(self, unit: int, place: int) -> bool:
        """Whether a unit has any op of a state where it is in it, as far as forecasts tell kinds."""
        if not self.order:
            return True
        before, after = self._kinds[0][unit], self._kinds[1 + place][unit]
        return after.count(self.states[place]) > before.count(self.states[place])

    @cached_property
    def noise(self) -> np.ndarray:
        """What each unit does alone in each state, shape (n_states, n_units); 0 if it makes no error."""
        noise = np.zeros((len(self.states), len(self.units)))
        for place, state in enumerate(self.states):
            for i in bits(self.noisy[place]):
                unit = self.units[i]
                noise[place, i] = unit.noise.get(state, constants.OTHER_SHARE * unit.sensitivity)
        return noise

    def in_state(self, units: Units, place: int) -> Mask:
        """The units left out, in one state."""
        return self.put(Mask(units), units, place)

    @cached_property
    def by_cost(self) -> tuple[int, ...]:
        """Places of the states: the least penalty of all units in it first; the exact one, where there is one, last."""

        def cost(place: int) -> tuple[bool, float, int]:
            forecast = self.forecast(self.in_state(self.everything, place))
            return self.states[place] == EXACT, forecast.penalty, forecast.size_bytes

        return tuple(sorted(range(len(self.states)), key=cost))

    def balanced(self, units: Units, noise: np.ndarray, integers: np.ndarray) -> Mask:
        """The units left out, each in the cheapest state that adds no more error than the integer units together.

        Args:
            units: What is left out.
            noise: Of each unit in each state, as :attr:`noise`.
            integers: Of each unit in integers, shape (n_units,).
        """
        *others, exact = self.by_cost
        mask, left = self.in_state(units, exact), float(integers[bits(self.everything & ~units)].sum())
        for place in others:
            mask = self.put(mask, units & self.not_outside & ~mask.left_out, place)
        for place in others:
            for i in sorted(bits(mask.within(exact) & self.forms[place]), key=lambda i: (noise[place, i], i)):
                if noise[place, i] > left:
                    break
                left -= float(noise[place, i])
                mask = mask.put(1 << i, place)
        return mask

    def in_forms(self, mask: Mask) -> Mask:
        """The candidate with units of ``not_outside`` in 8 bits instead of the first state, ``not_int8`` the other way.

        Units in a further state stay there: :meth:`put` puts no unit where it has no form.
        """
        mask = mask.without(self.not_outside & mask.within(0))
        return mask.put(self.not_int8 & ~mask.left_out, 0)

    def unclipped(self, mask: Mask) -> Mask:
        """The candidate with clipped units in no integers, in the cheapest such state; as it is if a target refuses."""
        if not self.clipped:  # Nothing need be forecast.
            return mask
        place = next(p for p in self.by_cost if self.states[p] not in APART)
        candidate = self.put(mask, self.clipped & ~self.not_outside & ~self.out_of_integers(mask), place)
        return candidate if self.accepts(candidate) else mask

    @property
    def count(self) -> int:
        """How many candidates there are, but for biases corrected in sequence."""
        return len(self.offered) * math.prod(
            1 + sum(form >> i & 1 for form in self.forms) for i in range(len(self.units))
        )

    @cached_property
    def offered(self) -> tuple[int, ...]:
        """Places of the repair sets that any candidate may have."""
        return tuple(place for place in range(len(self.repair_sets)) if place not in self.in_sequence.values())

    @cached_property
    def without_sequence(self) -> dict[int, int]:
        """Places of the sets that any candidate may have, by the place of the same with biases in sequence."""
        return {later: place for place, later in self.in_sequence.items()}

    @cached_property
    def sensitivities(self) -> np.ndarray:
        """What each unit does alone in integers, shape (n_units,)."""
        return np.array([unit.sensitivity for unit in self.units])

    def around(self, units: Units) -> Units:
        """All neighbours of these units."""
        reached = 0
        for i in bits(units):
            for j in self.neighbours[i]:
                reached |= 1 << j
        return reached

    def islands(self, units: Units) -> list[Units]:
        """The connected groups of these units, in graph order."""
        islands = []
        while units:
            island = frontier = units & -units
            while frontier:
                frontier = self.around(frontier) & units & ~island
                island |= frontier
            islands.append(island)
            units &= ~island
        return islands
