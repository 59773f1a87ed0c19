"""Many yes-or-no choices as few parameters of the study; knows names, no nodes.

Optuna writes, keeps and reads each parameter of each trial by itself: of a thousand choices a trial has 250 kB, and
to read it takes longer than to score many a model.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from autoselect.domain.search_space import BoundSpace, Toggle, Value

MOST_PARAMETERS = 256
"""Up to so many choices are a parameter each, which tools for Optuna studies understand."""

_EACH = 48
"""Choices in one parameter: Optuna keeps numbers as floats, which are exact that far."""


class Packing:
    """How the choices of a space are parameters: each by its name, or many as bits of numbers."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        """Pack these choices, and let all others be parameters of their own."""
        self.names = frozenset(names)
        self._groups = {f"choices:{i}": tuple(names[i : i + _EACH]) for i in range(0, len(names), _EACH)}

    @classmethod
    def of(cls, space: BoundSpace) -> Packing:
        """Pack all choices of a space that has many."""
        toggles = [dimension for dimension in space.dimensions if isinstance(dimension, Toggle)]
        names = [toggle.name for toggle in itertools.chain(toggles, *space.further_toggles.values())]
        return cls(names if len(names) > MOST_PARAMETERS and not space.alternatives else ())

    @property
    def bounds(self) -> dict[str, int]:
        """The largest value of each number."""
        return {number: (1 << len(names)) - 1 for number, names in self._groups.items()}

    def pack(self, setting: Mapping[str, Value]) -> dict[str, Value]:
        """The setting as parameters; choices that it does not name are off."""
        numbers = {
            number: sum(1 << place for place, name in enumerate(names) if setting.get(name))
            for number, names in self._groups.items()
        }
        return {name: value for name, value in setting.items() if name not in self.names} | numbers

    def unpack(self, parameters: Mapping[str, Value]) -> dict[str, Value]:
        """The setting that parameters mean, in this form or in the other."""
        setting = dict(parameters)
        for number, names in self._groups.items():
            if number in setting:
                bits = int(setting.pop(number))
                setting |= {name: bool(bits >> place & 1) for place, name in enumerate(names)}
        return setting
