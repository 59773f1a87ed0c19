"""What a command prints of its result: five lines that decide, words, or one JSON object."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import typer

from autoselect.cli.console import out, print_lines, warn, write_to_nobody
from autoselect.cli.options import command_line
from autoselect.errors import EXIT_INTERRUPTED, EXIT_NOTHING_FEASIBLE
from autoselect.report.tables import chip_results, result_lines
from autoselect.report.tables import frames as tables
from autoselect.runs.files import plain
from autoselect.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

_LATENCY_NOTE = "* ms on this host, noisy: median of repetitions; quartiles are in front.csv"
_EXIT_CODES = {"complete": 0, "nothing_feasible": EXIT_NOTHING_FEASIBLE, "interrupted": EXIT_INTERRUPTED}


def finish(run: Run, *, as_json: bool, warned: Collection[str]) -> None:
    """Print a run and leave with its exit code.

    Args:
        run: The run.
        as_json: Print one line of JSON, the last of those that told the events, instead of the table.
        warned: Warnings that the user has seen already.

    Raises:
        typer.Exit: With 0, 10 where nothing met the limits, or 130 where the search was interrupted.
    """
    code = _EXIT_CODES.get(run.status, 0)
    try:
        for message in run.summary.get("warnings") or []:
            if message not in warned:
                warn(str(message))
        if as_json:
            print(json.dumps(plain({"event": "result", **run_as_json(run)}), allow_nan=False))
        else:
            print_run(run)
    except BrokenPipeError:
        if not code:
            raise
        write_to_nobody()
    raise typer.Exit(code)


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
    print_lines(f"{name:<{width}}  {value}" for name, value in fields.items())


def print_run(run: Run, *, whole: bool = False) -> None:
    """Print a run: what decides, in five lines, then why and how sure."""
    references, front = tables.reference_rows(run.summary), tables.front_rows(run.front, run.summary)
    if whole:
        rows = result_lines.all_rows(references, front)
    else:
        rows = result_lines.deciding_rows(references, front, run.summary)
    lines = [*result_lines.result_lines(rows, run.summary, out().width)] if rows else []
    if whole:
        lines += ["", *result_lines.pick_lines(front)]
    if "latency_ms" in tables.cost_columns(run.summary):
        lines.append(_LATENCY_NOTE)
    for line in lines:
        out().print(line, style="bold" if line.startswith("recommended") else None, markup=False, soft_wrap=True)
    if chip_lines := chip_results.chip_lines(rows, run.summary, chip_results.reference_ids(run.trials)):
        print_lines(["", *chip_lines, ""])
    if hint := _next_step(run):
        print_lines([f"Next: {hint}"])
    for paragraph in (_note(run), str(run.summary.get("verdict") or "")):
        if paragraph:
            out().print(f"\n{paragraph}", markup=False)
    workers = (run.manifest.get("settings") or {}).get("workers")
    print_lines(["", *result_lines.count_lines(run.summary, workers)])
    _print_files(run, 0 if whole else len(front))


def print_limits(table: pd.DataFrame, metric: str) -> None:
    """Print what would be recommended at each allowed drop, a line for each model and target."""
    from autoselect.report.tables.model_tables import aligned
    from autoselect.report.tables.what_if_rows import limit_rows

    heading, *rows = limit_rows(table, metric)
    first = heading.index("penalty")
    print_lines(aligned([heading, *rows], right=range(first, first + 3)))
    if any("(" in row[first] for row in rows):
        print_lines(["", "In brackets: nine in ten resamples of the search samples recommend a penalty between these."])
    if any("×" in row[first] for row in rows):
        ratio = "× the best: expected cost of one model for all targets, breaking the limit included, at the worst one."
        penalties = "Penalties: autoselect what-if RUN --from MODEL --target TARGET."
        print_lines(["", ratio, penalties])


def _note(run: Run) -> str:
    if run.status == "running":
        return "The search is at work; this is what it knows so far."
    if run.status == "interrupted":
        return "The search was stopped early; the command above goes on with it. Held-out scores come at its end."
    if run.status == "nothing_feasible":
        return "No model met all limits. These come closest."
    return ""


def _print_files(run: Run, members: int) -> None:
    """Where the rest is; ``members`` of the front are not shown yet."""
    from autoselect.runs.folder import RunFolder

    folder, lines = RunFolder(run.directory), []
    if members:
        lines.append(f"autoselect show {shlex.quote(str(run.directory))} --all  prints the whole front ({members})")
    if folder.report.exists() and run.status != "running":
        lines.append(f"{folder.report}  is the whole run as a page for a browser")
    if lines:
        print_lines(["", *lines])


def _next_step(run: Run) -> str:
    directory = shlex.quote(str(run.directory))
    if run.status == "running":
        return ""
    if run.status == "interrupted":
        # That of a resume may have pins or recipes, which no other command would keep.
        return command_line() if sys.argv[1:2] == ["resume"] else f"autoselect resume {directory}"
    if run.status == "nothing_feasible":
        trials = 2 * int((run.summary.get("counts") or {}).get("trials") or 0)
        return f"loosen the limits, or try more: autoselect resume {directory} --trials {trials}"
    if not run.picks:
        return ""
    name = tables.first_pick(run.picks)
    return f"autoselect pick {directory}{'' if name == 'recommended' else f' --name {name}'}"
