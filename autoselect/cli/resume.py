"""``autoselect resume``."""

from __future__ import annotations

from typing import Annotated

import typer

from autoselect.cli.console import reported, watching
from autoselect.cli.options import AsJsonLines, Debug, NoCache, Quiet

_LIVE = "What the run had as an object in Python, not as a path or name"
_AS_BEFORE = "As in autoselect search."


def resume(
    *,
    directory: Annotated[str, typer.Argument(help="Run folder.")],
    trials: Annotated[int | None, typer.Option(min=1, help="New total of candidates; as before by default.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that build and score; as before by default.")
    ] = None,
    no_cache: NoCache = False,
    model: Annotated[str | None, typer.Option(rich_help_panel=_LIVE, help=_AS_BEFORE)] = None,
    integer: Annotated[str | None, typer.Option(rich_help_panel=_LIVE, help=_AS_BEFORE)] = None,
    calibration: Annotated[str | None, typer.Option(rich_help_panel=_LIVE, help=_AS_BEFORE)] = None,
    evaluation: Annotated[str | None, typer.Option("--eval", rich_help_panel=_LIVE, help=_AS_BEFORE)] = None,
    heldout: Annotated[str | None, typer.Option(rich_help_panel=_LIVE, help=_AS_BEFORE)] = None,
    evaluator: Annotated[str | None, typer.Option(rich_help_panel=_LIVE, help=_AS_BEFORE)] = None,
    metric: Annotated[str | None, typer.Option(rich_help_panel=_LIVE, help=_AS_BEFORE)] = None,
    quiet: Quiet = False,
    as_json: AsJsonLines = False,
    debug: Debug = False,
) -> None:
    """Go on with a search that was stopped, or give a finished one more trials."""
    with reported(debug=debug):
        from autoselect import resume as run_resume
        from autoselect.cli.results import finish

        with watching(quiet=quiet, as_json=as_json) as watcher:
            run = run_resume(
                directory,
                trials=trials,
                model=model,
                integer=integer,
                calibration=calibration,
                evaluation=evaluation,
                heldout=heldout,
                evaluator=evaluator,
                metric=metric,
                workers=workers,
                cache=not no_cache,
                listener=watcher,
            )
        finish(run, as_json=as_json, warned=watcher.warned)
