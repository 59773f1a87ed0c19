"""Columns of the progress bars: how far a stage is where it counts, and how long it takes in any case."""

from __future__ import annotations

from rich.progress import ProgressColumn, Task
from rich.text import Text

from autoselect.cli.progress import clock


class Count(ProgressColumn):
    """``4/10``, also of a stage that ended there; empty where nothing is counted."""

    def render(self, task: Task) -> Text:
        """Write the cell."""
        of = task.fields["of"]
        return Text("" if of is None else f"{int(task.completed)}/{of}", style="progress.download", no_wrap=True)


class Time(ProgressColumn):
    """Time spent, which moves while nothing else does, and ``<`` the time left where that can be told."""

    def render(self, task: Task) -> Text:
        """Write the cell."""
        left = None if task.finished or task.fields["of"] is None else task.time_remaining
        text = clock(task.elapsed or 0.0) + ("" if left is None else f"<{clock(left)}")
        return Text(text, style="progress.elapsed", no_wrap=True)
