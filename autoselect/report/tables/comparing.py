"""Two runs side by side, as rows and as lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoselect.domain.recipe import Recipe
from autoselect.domain.result import Result, html_table
from autoselect.domain.words import counted
from autoselect.report.tables.frames import ModelRow, front_rows, reference_rows
from autoselect.report.tables.result_lines import cells, result_lines
from autoselect.runs.run import Run


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Result):
    """What two runs found.

    Attributes:
        summary: Of the first run, whose metric and objectives both have.
        rows: What to call each model, and its figures: float, then the picks of the first run, then of the second.
        alike: Whether both recommend the same bytes.
        nodes: That the recommended models treat otherwise: what each is in the first and in the second.
    """

    summary: Mapping[str, Any]
    rows: tuple[tuple[str, ModelRow], ...]
    alike: bool
    nodes: Mapping[str, tuple[str, str]]

    def lines(self, width: int = 80) -> tuple[str, ...]:
        """A table, and below it the nodes that differ."""
        nodes_shown = 12
        table = result_lines(self.rows, self.summary, width)
        if self.alike:
            return *table, "", "Both recommend the same model."
        if not self.nodes:
            return *table, "", "No two recommended models whose nodes differ."
        rows = [f"  {first:>7}  {second:>7}  {node}" for node, (first, second) in self.nodes.items()]
        told = [row if len(row) <= width else f"{row[: width - 3]}..." for row in rows[:nodes_shown]]
        more = [f"  and {len(rows) - nodes_shown} more"] if len(rows) > nodes_shown else []
        return *table, "", f"{len(rows)} nodes differ in the recommended models, in run 1 and run 2:", *told, *more

    def __repr__(self) -> str:
        models, nodes = counted(len(self.rows), "model"), counted(len(self.nodes), "node")
        return f"Comparison({models}, {'alike' if self.alike else f'{nodes} of the recommended ones differ'})"

    def _repr_html_(self) -> str:
        """The table, for notebooks."""
        heading, *rows = cells(self.rows, self.summary, with_interval=True)
        return html_table(heading, rows)


def compared(first: Run, second: Run, before: Recipe | None, after: Recipe | None) -> Comparison:
    """Compare two runs, with the recipes of what they recommend."""
    floats = [("float", row) for row in reference_rows(first.summary) if row.reference == "float"]
    picks = [
        (f"{number} {row.picks[0]}", row)
        for number, run in enumerate((first, second), start=1)
        for row in front_rows(run.front, run.summary)
        if row.picks
    ]
    nodes = sorted(before.nodes_unlike(after)) if before is not None and after is not None else []
    return Comparison(
        summary=first.summary,
        rows=(*floats, *picks),
        alike=first.picks.get("recommended") == second.picks.get("recommended") is not None,
        nodes={n: (before.kind_of(n).value, after.kind_of(n).value) for n in nodes if before and after},
    )
