"""``autoselect resume``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from autoselect.cases.declared import declared
from autoselect.cases.events import Listener
from autoselect.cases.option import Option
from autoselect.cli.command import with_run, with_settings
from autoselect.cli.options import option_of, parameter_of
from autoselect.runs.run import Run

_LIVE = "What the run had as an object in Python, not as a path or name"
_AS_BEFORE = "As in autoselect search."


def _parameter(option: Option) -> inspect.Parameter:
    told, panel = option.resume or _AS_BEFORE, _LIVE if option.live else None
    return parameter_of(option, option_of(option.name, help=told, metavar=None, rich_help_panel=panel), None)


@with_settings([_parameter(option) for option in declared().values() if option.live or option.resume])
@with_run
def resume(
    *,
    directory: Annotated[str, typer.Argument(help="Run folder.")],
    settings: Mapping[str, Any],
    no_cache: Annotated[bool, option_of("cache")] = False,
    listener: Listener,
) -> Run:
    """Go on with a search that was stopped, or give a finished one more trials."""
    from autoselect import resume as run_resume

    return run_resume(directory, **settings, cache=not no_cache, listener=listener)
