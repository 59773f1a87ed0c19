"""A search space bound to one model: dimensions that an optimizer sets, and the node sets that they mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from autoselect.domain.states import SIXTEEN
from autoselect.errors import UsageError

Value = bool | int | str

ALTERNATIVE = "alternative"
"""Name of the parameter that says which alternative a setting uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toggle:
    """A yes-or-no choice: leave these nodes out of full-integer quantization."""

    name: str
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A count: leave the first so many nodes of a ranking out, from 0 to ``at_most``."""

    name: str
    ranking: tuple[str, ...]
    at_most: int


Dimension = Toggle | Cut

_Pin = Callable[[Iterable[str]], frozenset[str]]
"""Which of some nodes are left out, after pins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSpace:
    """Dimensions of one search, with the nodes whose states user or target have restricted.

    A candidate leaves a node out if it does not have it in integers of 8 bits; the node may be in 16 bits.

    Attributes:
        dimensions: In the order in which they are asked.
        alternatives: Names of dimensions by the name of the alternative that they belong to; a setting then uses one
            alternative only. Empty where a setting combines all dimensions.
        keep_float: Nodes that are in integers of no width in every candidate.
        keep_int: Nodes that are in integers of 8 bits in every candidate.
        further: States that what is left out may have instead of the first. Each toggle has one more for each, of the
            state's name and its own: ``float:NAME``. If there are counts alone, one says it of all: ``float:counts``.
        not_int8: Nodes that no candidate has in integers of 8 bits.
        not_int16: Nodes that no candidate has in 16 bits.
        not_outside: Nodes that are in integers of 8 or 16 bits in every candidate.
    """

    dimensions: tuple[Dimension, ...]
    alternatives: tuple[tuple[str, tuple[str, ...]], ...] = ()
    keep_float: frozenset[str] = frozenset()
    keep_int: frozenset[str] = frozenset()
    further: tuple[str, ...] = ()
    not_int8: frozenset[str] = frozenset()
    not_int16: frozenset[str] = frozenset()
    not_outside: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse dimensions of equal name and nodes pinned both ways."""
        names = [d.name for d in self.dimensions]
        if len(set(names)) != len(names):
            raise ValueError("dimensions of equal name")
        if both := sorted(self.keep_float & self.keep_int):
            raise UsageError(f"{both[0]!r} is pinned both ways: it is covered by --keep-float and by --keep-int.")

    @property
    def size(self) -> int:
        """How many settings there are; some may mean the same nodes."""
        choices = {d.name: d.at_most + 1 if isinstance(d, Cut) else 2 + len(self.further) for d in self.dimensions}
        groups = [names for _, names in self.alternatives] or [tuple(choices)]
        states = 1 + len(self.further) if self._counts_alone else 1  # Of all that counts leave out.
        return states * sum(math.prod(choices[name] for name in names) for names in groups)

    def decode(self, values: Mapping[str, Value]) -> frozenset[str]:
        """Nodes to denylist for one setting of the dimensions; dimensions that are not set are off."""
        return self.pin(self._chosen(values), self._in_16_bits(values))

    def _chosen(self, values: Mapping[str, Value]) -> set[str]:
        chosen: set[str] = set()
        for dimension in self.dimensions:
            value = values.get(dimension.name, 0)
            if isinstance(dimension, Toggle):
                chosen |= dimension.nodes if value else frozenset()
            else:
                chosen.update(dimension.ranking[: int(value)])
        return chosen

    def _in_16_bits(self, values: Mapping[str, Value]) -> frozenset[str]:
        toggles = self.further_toggles.get(SIXTEEN, ())
        return frozenset().union(*(toggle.nodes for toggle in toggles if values.get(toggle.name)))

    @property
    def _counts_alone(self) -> frozenset[str]:
        """The nodes that counts reach, if there is no toggle; else none."""
        if any(isinstance(d, Toggle) for d in self.dimensions):
            return frozenset()
        return frozenset(name for d in self.dimensions if isinstance(d, Cut) for name in d.ranking)

    @property
    def further_toggles(self) -> dict[str, tuple[Toggle, ...]]:
        """Choices of each further state: over the nodes of each toggle; if there are counts alone, one over all."""
        toggles = [d for d in self.dimensions if isinstance(d, Toggle)]
        if self._counts_alone:
            toggles = [Toggle(name="counts", nodes=self._counts_alone)]
        return {
            state: tuple(Toggle(name=f"{state}:{d.name}", nodes=d.nodes - self.barred(state)) for d in toggles)
            for state in self.further
        }

    def barred(self, state: str) -> frozenset[str]:
        """Nodes that ``not_int16`` and ``keep_float`` keep out of 16 bits; none of any other state."""
        return self.not_int16 | self.keep_float if state == SIXTEEN else frozenset()

    def decode_further(self, values: Mapping[str, Value]) -> dict[str, frozenset[str]]:
        """The left-out nodes of a setting that are in each further state; if a node has several, the first counts."""
        free, by_state = self.decode(values), {}
        for state, toggles in self.further_toggles.items():
            chosen = [toggle.nodes for toggle in toggles if values.get(toggle.name)]
            by_state[state] = frozenset().union(*chosen) & free
            free -= by_state[state]
        return by_state

    def encode_further(self, nodes: Iterable[str], further: Mapping[str, Iterable[str]]) -> dict[str, Value]:
        """The setting of the further toggles that means that these of the nodes left out are in these states."""
        left_out, setting = self.pin(nodes, further.get(SIXTEEN, ())), dict[str, Value]()
        for state, toggles in self.further_toggles.items():
            wanted = frozenset(further.get(state, ()))
            is_wide = state == SIXTEEN and not self._counts_alone
            reached = left_out | self.not_outside if is_wide else left_out
            touched = {toggle.name: toggle.nodes & reached for toggle in toggles}
            setting |= {name: bool(inside) and inside <= wanted for name, inside in touched.items()}
        return setting

    def pin(self, nodes: Iterable[str], in_int16: Iterable[str] = ()) -> frozenset[str]:
        """The nodes that a candidate leaves out once all pins hold, if it would leave out ``nodes``.

        A node of ``not_outside`` is left out only if ``in_int16`` has it.
        """
        left_out = frozenset(nodes) | self.left_out_of_all
        return left_out - self.keep_int - self.not_outside.difference(in_int16)

    @property
    def left_out_of_all(self) -> frozenset[str]:
        """Nodes that every candidate leaves out: those of ``keep_float`` and those of ``not_int8``."""
        return self.keep_float | self.not_int8

    def held(
        self, nodes: frozenset[str], further: Mapping[str, frozenset[str]]
    ) -> tuple[frozenset[str], dict[str, frozenset[str]]]:
        """The nodes that a candidate leaves out, and those in each further state, once all pins hold.

        A node in a state that it may not have goes to 8 bits; if it may not be there either, to the first state.

        Args:
            nodes: What the candidate would leave out.
            further: Which of these it would have in each further state.
        """
        states = {state: names - self.barred(state) for state, names in further.items()}
        barred = frozenset[str]().union(*(names - states[state] for state, names in further.items()))
        left_out = self.pin(nodes - barred, states.get(SIXTEEN, ()))
        return left_out, {state: names & left_out for state, names in states.items()}

    def of_alternative(self, name: str) -> tuple[Dimension, ...]:
        """The dimensions of one alternative, in order."""
        members = dict(self.alternatives)[name]
        return tuple(d for d in self.dimensions if d.name in members)

    def encode(self, nodes: Iterable[str], in_int16: frozenset[str] = frozenset()) -> dict[str, Value] | None:
        """A setting that means exactly these nodes (after pins), of which some are in 16 bits; None if there is none.

        Of several alternatives the one that needs the fewest dimensions is taken, so that a prefix is told as such;
        within one a single cut is preferred, then the fewest toggles that a greedy choice finds, larger ones first.
        """
        pin = partial(self.pin, in_int16=in_int16)
        wanted = pin(nodes)
        if not self.alternatives:
            return self._encode_with(self.dimensions, wanted, pin)
        values = []
        for name, _ in self.alternatives:
            setting = self._encode_with(self.of_alternative(name), wanted, pin)
            if setting is not None:
                values.append({ALTERNATIVE: name, **setting})
        return min(values, key=lambda setting: sum(bool(v) for v in setting.values()), default=None)

    def _encode_with(
        self, dimensions: Sequence[Dimension], wanted: frozenset[str], pin: _Pin
    ) -> dict[str, Value] | None:
        setting: dict[str, Value] = {d.name: False if isinstance(d, Toggle) else 0 for d in dimensions}
        if pin(self._chosen(setting)) == wanted:
            return setting
        for dimension in dimensions:
            if isinstance(dimension, Cut) and (count := self._exact_cut(dimension, wanted, pin)):
                return setting | {dimension.name: count}
        chosen = dict.fromkeys(self._toggles_within(dimensions, wanted, pin), True)
        return setting | chosen if pin(self._chosen(chosen)) == wanted else None

    def _exact_cut(self, cut: Cut, wanted: frozenset[str], pin: _Pin) -> int:
        for count in range(1, cut.at_most + 1):
            if pin(cut.ranking[:count]) == wanted:
                return count
        return 0

    def _toggles_within(self, dimensions: Sequence[Dimension], wanted: frozenset[str], pin: _Pin) -> list[str]:
        missing = set(wanted - self.left_out_of_all)
        chosen = []
        inside = [d for d in dimensions if isinstance(d, Toggle) and pin(d.nodes) <= wanted]
        for toggle in sorted(inside, key=lambda d: -len(d.nodes)):
            if toggle.nodes & missing:
                chosen.append(toggle.name)
                missing -= toggle.nodes
        return chosen


FREE = BoundSpace(dimensions=())
"""A space that holds no node in any state."""


def ranked_cut(name: str, ranking: Sequence[str], at_most: int) -> Cut:
    """A cut that never asks for more nodes than the ranking has."""
    return Cut(name=name, ranking=tuple(ranking), at_most=min(at_most, len(ranking)))
