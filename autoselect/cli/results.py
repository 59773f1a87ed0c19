"""What a command prints of its result: a table that fits 80 columns, words, or one JSON object."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from autoselect.cli.console import out, warn
from autoselect.domain.quantities import BY_COLUMN, DEFAULT_COSTS
from autoselect.domain.words import label
from autoselect.errors import EXIT_INTERRUPTED, EXIT_NOTHING_FEASIBLE
from autoselect.report.tables import frames as tables
from autoselect.report.tables.plain import plain

if TYPE_CHECKING:
    from rich.table import Table

    from autoselect.report.tables.frames import ModelRow
    from autoselect.runs.run import Run

_HEADING_WIDTH = 10
_MOST_WITH_INTERVAL = 2
"""With more objectives than the metric and so many, intervals find no room; front.csv has them."""
_LATENCY_NOTE = "* ms on this host, noisy: median of repetitions; quartiles are in front.csv"
_EXIT_CODES = {"complete": 0, "nothing_feasible": EXIT_NOTHING_FEASIBLE, "interrupted": EXIT_INTERRUPTED}


def finish(run: Run, *, as_json: bool, warned: Collection[str] = ()) -> None:
    """Print a run and leave with its exit code.

    Args:
        run: The run.
        as_json: Print one line of JSON, the last of those that told the events, instead of the table.
        warned: Warnings that the user has seen already.

    Raises:
        typer.Exit: With 0, 10 where nothing met the limits, or 130 where the search was interrupted.
    """
    for message in run.summary.get("warnings") or []:
        if message not in warned:
            warn(str(message))
    if as_json:
        print(json.dumps(plain({"event": "result", **run_as_json(run)}), allow_nan=False))
    else:
        _print_run(run)
    raise typer.Exit(_EXIT_CODES.get(run.status, 0))


def run_as_json(run: Run) -> dict[str, Any]:
    """The run as one object: its folder, status, summary and front."""
    front: list[dict[Any, Any]] = run.front.to_dict("records")
    return {
        "directory": str(run.directory),
        "status": run.status,
        "picks": run.picks,
        "summary": run.summary,
        "front": front,
    }


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout, with null for what is no number."""
    print(json.dumps(plain(value), indent=2, allow_nan=False))


def print_fields(fields: Mapping[str, str]) -> None:
    """Print names and values in two columns."""
    width = max(map(len, fields))
    for name, value in fields.items():
        out().print(f"{name:<{width}}  {value}", markup=False, soft_wrap=True)


def _print_run(run: Run) -> None:
    console = out()
    references, front = tables.reference_rows(run.summary), tables.front_rows(run.front, run.summary)
    shown = [row for row in front if row.picks]
    costs = tables.cost_columns(run.summary)
    console.print(front_table(shown, references, label(str(run.summary["metric"])), costs))
    if "latency_ms" in costs:
        console.print(_LATENCY_NOTE)
    if hidden := len(front) - len(shown):
        console.print(f"… and {hidden} more of the front in front.csv")
    for paragraph in (_note(run), str(run.summary.get("verdict") or ""), _counts(run.summary)):
        if paragraph:
            console.print()
            console.print(paragraph, markup=False)
    _print_files(run)


def front_table(
    front: Sequence[ModelRow], references: Sequence[ModelRow], metric: str, costs: Sequence[str] = DEFAULT_COSTS
) -> Table:
    """The references and the front, best score first, in at most 80 columns; picks stand for their ids.

    Args:
        front: The members.
        references: What they are compared with.
        metric: Heading of the scores.
        costs: Columns of the other objectives.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    with_interval = len(costs) <= _MOST_WITH_INTERVAL
    table.add_column("model", no_wrap=True)
    for heading in (_cut(metric), *(["95 %"] if with_interval else []), "drop", *map(_heading, costs)):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = (*references, *front)
    scale = tables.largest(row.score for row in rows)
    scales = {column: tables.largest(row.cost(column) for row in rows) for column in costs}
    for row in references:
        table.add_row(*_cells(row, scale, scales, with_interval=with_interval))
    table.add_section()
    for row in front:
        cells = _cells(row, scale, scales, with_interval=with_interval)
        table.add_row(*cells, style="bold" if "recommended" in row.picks else None)
    return table


def _heading(column: str) -> str:
    quantity = BY_COLUMN[column]
    return f"{quantity.short}*" if quantity.noisy else quantity.short


def _cells(
    row: ModelRow, scale: float | None, scales: Mapping[str, float | None], *, with_interval: bool
) -> tuple[str, ...]:
    return (
        ",\n".join(row.picks) or row.label,
        tables.format_score(row.score, scale=scale),
        *([_interval(row, scale)] if with_interval else []),
        tables.format_score(row.drop, scale=scale),
        *(tables.format_cost(column, row.cost(column), scale=largest) for column, largest in scales.items()),
    )


def _interval(row: ModelRow, scale: float | None) -> str:
    if row.heldout_low is None or row.heldout_high is None:
        return ""
    low, high = (tables.format_score(v, scale=scale) for v in (row.heldout_low, row.heldout_high))
    return f"{low}–{high}"


def _cut(text: str) -> str:
    return text if len(text) <= _HEADING_WIDTH else f"{text[: _HEADING_WIDTH - 1]}…"


def _note(run: Run) -> str:
    if run.status == "interrupted":
        return "The search was stopped early; resume it with the command below. Held-out scores come at its end."
    if run.status == "nothing_feasible":
        return "No model met all limits. The table shows those that come closest."
    return ""


def _counts(summary: Mapping[str, Any]) -> str:
    counts, evaluated = summary.get("counts") or {}, summary.get("evaluated") or {}
    trials = [f"{counts[name]} {name}" for name in ("trials", "scored", "reused", "failed") if name in counts]
    samples = [f"{evaluated[n]} {n}" for n in ("search", "heldout") if evaluated.get(n)]
    told = "; ".join(filter(None, (", ".join(trials), " and ".join(samples).replace("heldout", "held-out"))))
    return f"{told}{' samples' if samples else ''}." if told else ""


def _print_files(run: Run) -> None:
    from autoselect.runs.folder import RunFolder

    folder = RunFolder(run.directory)
    kinds = (
        (folder.report, "the run as one page, for a browser"),
        (folder.picture, "the front, drawn"),
        (folder.front_table, "the front"),
        (folder.trials, "all trials"),
        (folder.layer_statistics, "quantization error by layer"),
        (folder.summary, "the result for machines"),
        (folder.front, "models and recipes of the front"),
    )
    found = [(path, what) for path, what in kinds if path.exists()]
    console = out()
    console.print(f"\nFiles in {run.directory}:", markup=False, soft_wrap=True)
    for path, what in found:
        name = f"{path.name}/" if path.is_dir() else path.name
        console.print(f"  {name:<22}{what}", markup=False)
    hint = _next_step(run)
    if hint:
        console.print(f"\nNext: {hint}", markup=False, soft_wrap=True)


def _next_step(run: Run) -> str:
    import shlex

    directory = shlex.quote(str(run.directory))
    if run.status == "interrupted":
        return f"autoselect resume {directory}"
    if not run.picks:
        return ""
    name = tables.first_pick(run.picks)
    return f"autoselect pick {directory} --name {name} -o {name}.tflite"
