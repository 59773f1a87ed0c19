"""What a public function returns: a frozen dataclass that also reads like a mapping, and shows itself in short."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any


class Result(Mapping[str, Any]):
    """Base of such dataclasses: ``result.size_bytes`` is ``result["size_bytes"]``.

    They are declared with ``repr=False``: they show themselves in one or two lines, and in notebooks as a table.
    """

    __slots__ = ()

    def _items(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Any:
        return self._items()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items())

    def __len__(self) -> int:
        return len(self._items())

    def as_dict(self) -> dict[str, Any]:
        """The result as plain dictionaries, for ``json.dumps``."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={brief(value)}" for name, value in self._items().items())
        return f"{type(self).__name__}({shown})"

    def _repr_html_(self) -> str:
        """A table of names and values, for notebooks; whatever comes from a model is escaped."""
        return html_table((), [(name, brief(value)) for name, value in self._items().items()])


def brief(value: object) -> str:
    """A value in a few characters: of a collection only how much it holds."""
    longest = 24
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return f"<{len(value)}>" if value else "<none>"
    text = f"{value:.4g}" if isinstance(value, float) else repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= longest else f"{text[: longest // 2]}…{text[-longest // 2 + 1 :]}"


def html_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for notebooks, every cell escaped."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in heading)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"
