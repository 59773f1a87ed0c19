"""A run as users hold it: its tables and figures, and questions about candidates that nobody tried."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from autoselect.domain.recipe import Recipe
from autoselect.domain.result import html_table
from autoselect.domain.words import counted
from autoselect.report.tables import frames
from autoselect.report.tables.result_lines import cells, deciding_rows
from autoselect.runs import run as tables
from autoselect.runs.folder import RunFolder
from autoselect.tflite.analysis import analyse
from autoselect.tflite.tflite_file import TfliteFile

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from autoselect.explore.serving import Page
    from autoselect.study.what_if.answer import WhatIf
    from autoselect.study.what_if.questions import Questions

Texts = str | Iterable[str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Run(tables.Run):
    """One finished or interrupted run: tables as data frames, figures of them, and :meth:`what_if`.

    The figures are Matplotlib's. In a notebook, ``%matplotlib inline`` shows them.
    """

    _questions: list[Questions] = field(default_factory=list)

    @overload
    def what_if(
        self,
        recipe: str | int | Recipe | WhatIf = "recommended",
        *,
        deny: Texts = (),
        in_float: Texts = (),
        int16: Texts = (),
        int8: Texts = (),
        repairs: Texts | None = None,
        target: str | Path | None = None,
    ) -> WhatIf: ...

    @overload
    def what_if(
        self,
        recipe: list[Any] | tuple[Any, ...] | dict[str, Any],
        *,
        deny: Texts = (),
        in_float: Texts = (),
        int16: Texts = (),
        int8: Texts = (),
        repairs: Texts | None = None,
        target: str | Path | None = None,
    ) -> pd.DataFrame: ...

    def what_if(
        self,
        recipe: Any = "recommended",
        *,
        deny: Texts = (),
        in_float: Texts = (),
        int16: Texts = (),
        int8: Texts = (),
        repairs: Texts | None = None,
        target: str | Path | None = None,
    ) -> Any:
        """Ask what a candidate that nobody tried would cost, and what it would probably lose.

        Nothing is built: size, penalty, segments and kinds are forecast, exactly where no compiler decides; the drop is
        what the trials of the run let expect. The first question reads the models that the run keeps, which takes some
        seconds; an answer then takes milliseconds.

        Args:
            recipe: A recipe, or a name: a pick, ``int8``, ``int16``, ``hybrid`` or ``float`` for a whole model without
                repairs, an id of ``trials.csv``, the number of a trial; or an earlier answer. Several of them, also by
                names of your own, give a table.
            deny: Nodes, globs or op types that leave integers; they become hybrid or float, as the recipe says.
            in_float: The same, and they become float.
            int16: The same that get 16-bit activations.
            int8: The same that become 8-bit integers again.
            repairs: Names of repairs instead of the recipe's; an empty list takes none.
            target: What the penalty is of; that of the run by default.

        Returns:
            The answer, which can also build and score the candidate; of several recipes a table with a row for each.

        Raises:
            UsageError: If a name is not known, a node has no form in the state that is asked for, or the run keeps no
                calibrated model or was made by another version.

        Examples:
            Of the run of :func:`autoselect.search`:

            >>> import autoselect
            >>> run = autoselect.load_run("pump-run")
            >>> found = run.what_if("int8", deny=["SOFTMAX"])
            >>> found.kinds["integer"] < run.what_if("int8").kinds["integer"]
            True
            >>> len(found.build()) == found.size_bytes
            True
        """
        from autoselect.study.what_if.changes import Changes

        changes = Changes.of(deny=deny, in_float=in_float, int16=int16, int8=int8, repairs=repairs)
        questions = self._asked()
        if not isinstance(recipe, (list, tuple, dict)):
            return questions.ask(recipe, changes, target)
        import pandas as pd

        named = recipe.items() if isinstance(recipe, dict) else ((None, candidate) for candidate in recipe)
        rows = []
        for name, candidate in named:
            row = questions.ask(candidate, changes, target).row()
            rows.append(row if name is None else {**row, "name": name})
        return pd.DataFrame(rows)

    def limits(
        self, targets: str | Path | Iterable[str] | None = None, *, allowed: float | Iterable[float] | None = None
    ) -> pd.DataFrame:
        """Tell what would be recommended at each allowed drop, by the members and the rule of the run.

        Args:
            targets: Targets, also others than that of the run, which is the default. Of several targets there are
                further rows, of one member for all of them: the one whose worst ratio to the least expected cost on
                each target is least.
            allowed: One or several allowed drops in the metric's units; by default from 0 to 5 points, of ``sqnr_db``
                and ``kl_divergence`` to the drop that a search allows by default, and of other metrics to 5 % of the
                float model's score. None is above the ``max_drop`` of the run.

        Returns:
            A row for each allowed drop with the columns of ``limits.csv``. With targets or drops of your own the rows
            also have ``target`` and ``worst_ratio``: the expected cost of that one member over the best member's,
            on the target where it fares worst. The price of breaking the limit is part of these costs.

        Raises:
            UsageError: As :meth:`what_if`.

        Examples:
            >>> import autoselect
            >>> curve = autoselect.load_run("pump-run").limits()
            >>> curve["penalty"].iloc[0] >= curve["penalty"].iloc[-1]
            True
        """
        import pandas as pd

        if targets is None and allowed is None and RunFolder(self.directory).limits.exists():
            return tables.read_limits(self.directory)
        names = [str(targets)] if isinstance(targets, str | Path) else None if targets is None else list(targets)
        drops = None if allowed is None else [*allowed] if isinstance(allowed, Iterable) else [allowed]
        return pd.DataFrame(self._asked().limits(names, drops))

    def explore(self, *, port: int | None = None, browser: bool = True) -> Page:
        """Serve a page on which models are tried by hand: what each costs and probably loses, built and scored.

        Args:
            port: Where it listens, on this machine alone; by default at a free port.
            browser: Whether to open it in one.

        Returns:
            The page, with its address as ``url``; it is served until ``close()``, or until this process ends.

        Raises:
            UsageError: If the extra ``explore`` is not installed, the port is taken, or as :meth:`what_if`.
        """
        import webbrowser

        from autoselect.explore.serving import serve

        page = serve(self.directory, port=port)
        if browser:
            webbrowser.open(page.url)
        return page

    def plot_pareto(self) -> Figure:
        """Draw the score against each other objective: all trials, the front, the picks and the references."""
        from autoselect.report.figures.run_figures import pareto_figure

        return pareto_figure(self.trials, self.front, self.summary)

    def plot_layers(self) -> Figure:
        """Draw range and error of every node, in graph order."""
        from autoselect.report.figures.layer_figures import layers_figure

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
        from autoselect.report.figures.run_figures import history_figure

        return history_figure(self.trials, self.summary)

    def plot_limits(self, table: pd.DataFrame | None = None) -> Figure:
        """Draw the penalty that would be recommended at each allowed drop, and what resamples recommend.

        Args:
            table: What ``limits`` gave, with a panel for each target; by default what the run wrote.

        Raises:
            RunFolderError: If the run wrote none, as an earlier version.
        """
        from autoselect.report.figures.run_figures import limits_figure

        curve = tables.read_limits(self.directory) if table is None else table
        return limits_figure(curve, str(self.summary["metric"]), float(self.summary["allowed_drop"]))

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
        rows = deciding_rows(
            frames.reference_rows(self.summary), frames.front_rows(self.front, self.summary), self.summary
        )
        heading, *lines = cells(rows, self.summary, with_interval=True)
        words = html.escape(str(self.summary.get("verdict") or ""))
        return f"<p><b>{html.escape(repr(self))}</b></p>{html_table(heading, lines)}<p>{words}</p>"

    def _asked(self) -> Questions:
        from autoselect.study.what_if.questions import Questions

        if not self._questions:
            self._questions.append(Questions(RunFolder(self.directory)))
        return self._questions[0]


def load_run(directory: str | Path) -> Run:
    """Read a run folder.

    Raises:
        RunFolderError: If the folder holds no run, or one that was stopped before it wrote its tables.

    Examples:
        The run of :func:`autoselect.search`:

        >>> import autoselect
        >>> run = autoselect.load_run("pump-run")
        >>> smallest = run.front.sort_values("size_bytes").iloc[0]
    """
    run = tables.load_run(directory)
    return Run(**{field.name: getattr(run, field.name) for field in fields(tables.Run)})
