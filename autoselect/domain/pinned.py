"""What a user decides of nodes for the candidates to come, whatever earlier ones had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from autoselect.errors import UsageError

_NONE = frozenset[str]()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """Nodes, by name once a model is at hand. A node moves with its unit, so a pin of one holds for the unit.

    Attributes:
        keep_float: Nodes that stay out of integers: hybrid or float.
        keep_int: Nodes that stay in integers of 8 bits.
        keep_int16: Nodes that keep 16-bit activations.
    """

    keep_float: frozenset[str] = _NONE
    keep_int: frozenset[str] = _NONE
    keep_int16: frozenset[str] = _NONE

    @classmethod
    def of(cls, pins: Mapping[str, str | Iterable[str]]) -> Pins:
        """What a user says by the names of the fields; one text is one of them.

        Raises:
            UsageError: If there is no such field.
        """
        names = [field.name for field in fields(cls)]
        if strange := sorted(set(pins) - {*names}):
            raise UsageError(f"pins: expected some of {', '.join(names)}; got {strange[0]!r}.")
        return cls(**{name: frozenset([texts] if isinstance(texts, str) else texts) for name, texts in pins.items()})

    def __bool__(self) -> bool:
        """Whether anything is pinned."""
        return any(self.named.values())

    @property
    def named(self) -> Mapping[str, frozenset[str]]:
        """The nodes by what is decided of them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


NO_PINS = Pins()
