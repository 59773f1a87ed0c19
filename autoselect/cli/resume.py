"""``autoselect resume``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from autoselect.cases.declared import declared
from autoselect.cases.option import Option
from autoselect.cli.console import reported, watching
from autoselect.cli.options import AsJsonLines, Debug, NoCache, Quiet, Verbose, option_of, parameter_of, with_settings

_LIVE = "What the run had as an object in Python, not as a path or name"
_AS_BEFORE = "As in autoselect search."


def _parameter(option: Option) -> inspect.Parameter:
    told, panel = option.resume or _AS_BEFORE, _LIVE if option.live else None
    return parameter_of(option, option_of(option.name, help=told, metavar=None, rich_help_panel=panel), None)


@with_settings([_parameter(option) for option in declared().values() if option.live or option.resume])
def resume(
    *,
    directory: Annotated[str, typer.Argument(help="Run folder.")],
    settings: Mapping[str, Any],
    no_cache: NoCache = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJsonLines = False,
    debug: Debug = False,
) -> None:
    """Go on with a search that was stopped, or give a finished one more trials."""
    with reported(debug=debug):
        from autoselect import resume as run_resume
        from autoselect.cli.results import finish

        with watching(quiet=quiet, verbose=verbose, as_json=as_json) as watcher:
            run = run_resume(directory, **settings, cache=not no_cache, listener=watcher)
        finish(run, as_json=as_json, warned=watcher.warned)
