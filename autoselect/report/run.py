"""A run as a notebook shows it: its tables, with figures and a view in HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoselect.domain.result import html_table
from autoselect.domain.words import counted
from autoselect.report.tables import frames
from autoselect.report.tables.result_lines import cells, deciding_rows
from autoselect.runs import run as tables
from autoselect.tflite.analysis import analyse
from autoselect.tflite.tflite_file import TfliteFile

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Run(tables.Run):
    """One finished or interrupted run: data frames, as :class:`autoselect.runs.run.Run` has them, and figures of them.

    The figures are Matplotlib's. In a notebook, ``%matplotlib inline`` shows them.
    """

    def plot_pareto(self) -> Figure:
        """Draw the score against each other objective: all trials, the front, the picks and the references."""
        from autoselect.report.figures.pareto import pareto_figure

        return pareto_figure(self.trials, self.front, self.summary)

    def plot_layers(self) -> Figure:
        """Draw range and error of every node, in graph order."""
        from autoselect.report.figures.layer_bars import layers_figure

        return layers_figure(self.layer_statistics)

    def plot_islands(self, members: Iterable[str] | None = None) -> Figure:
        """Draw the ops of models in graph order, coloured by how they compute.

        Args:
            members: Picks or ids; the distinct picks by default.

        Raises:
            RunFolderError: If the front has no such member.
        """
        from autoselect.report.figures.drawing import note, sheet
        from autoselect.report.figures.islands import islands_figure

        paths = list(dict.fromkeys(self.model_path(name) for name in (self.picks if members is None else members)))
        return islands_figure([self._described(path) for path in paths]) if paths else note(sheet(2.0), "No models.")

    def plot_history(self) -> Figure:
        """Draw how much of its last hypervolume the front had after each trial."""
        from autoselect.report.figures.pareto import history_figure

        return history_figure(self.trials, self.summary)

    def plot_limits(self, table: pd.DataFrame | None = None) -> Figure:
        """Draw the penalty that would be recommended at each allowed drop, and what resamples recommend.

        Args:
            table: What ``limits`` gave, with a panel for each target; by default what the run wrote.

        Raises:
            RunFolderError: If the run wrote none, as an earlier version.
        """
        from autoselect.report.figures.limits import limits_figure

        found = tables.read_limits(self.directory) if table is None else table
        return limits_figure(found, str(self.summary["metric"]), float(self.summary["allowed_drop"]))

    def _described(self, path: Path) -> dict[str, Any]:
        penalty = float(self.front.set_index("id").loc[path.stem, "penalty"])  # type: ignore[arg-type]
        return {
            "path": path.stem,
            **analyse(TfliteFile(path.read_bytes())),
            "fragmentation": {"penalty": penalty},
        }

    def __repr__(self) -> str:
        picks = ", ".join(self.picks) or "none"
        return (
            f"Run({str(self.directory)!r}, {self.status}, {counted(len(self.trials), 'trial')}, front of "
            f"{len(self.front)}, picks: {picks})"
        )

    def _repr_html_(self) -> str:
        """Float, all-integer and the picks that decide, for notebooks; whatever comes from a model is escaped."""
        rows = deciding_rows(frames.reference_rows(self.summary), frames.front_rows(self.front, self.summary))
        heading, *lines = cells(rows, self.summary, with_interval=True)
        words = html.escape(str(self.summary.get("verdict") or ""))
        return f"<p><b>{html.escape(repr(self))}</b></p>{html_table(heading, lines)}<p>{words}</p>"


def load_run(directory: str | Path) -> Run:
    """Read a run folder, as :func:`autoselect.load_run` does, without questions about candidates that nobody tried."""
    found = tables.load_run(directory)
    return Run(**{field.name: getattr(found, field.name) for field in fields(tables.Run)})
