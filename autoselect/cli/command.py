"""What makes a command of a function: declared settings, ``--debug``, and for a search its progress and its result."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autoselect.cli.console import reported, watching
from autoselect.cli.options import AsJsonLines, Debug, Quiet, Verbose, command_line
from autoselect.runs.run import Run
from autoselect.runs.typed_command import TYPED

_NONE: Mapping[str, Any] = {}


def with_settings(parameters: Sequence[inspect.Parameter]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of settings among its own; it gets their values together, as ``settings``."""

    def change(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(**given: Any) -> Any:
            return function(settings={parameter.name: given.pop(parameter.name) for parameter in parameters}, **given)

        return _signed(command, function, {"settings": parameters})

    return change


def with_debug(function: Callable[..., None]) -> Callable[..., None]:
    """A command with ``--debug``: what it raises becomes a message on stderr and an exit code."""

    @functools.wraps(function)
    def command(*, debug: bool, **given: Any) -> None:
        typed = TYPED.set(command_line())
        try:
            with reported(debug=debug):
                function(**given)
        finally:
            TYPED.reset(typed)

    return _signed(command, function, last={"debug": Debug})


def with_run(function: Callable[..., Run]) -> Callable[..., None]:
    """A command that ends in a run, which is printed; it gets a ``listener``, which shows the progress."""

    @functools.wraps(function)
    def command(*, quiet: bool, verbose: bool, as_json: bool, **given: Any) -> None:
        from autoselect.cli.results import finish

        with watching(quiet=quiet, verbose=verbose, as_json=as_json) as watcher:
            run = function(**given, listener=watcher)
        finish(run, as_json=as_json, warned=watcher.warned)

    shown = {"quiet": Quiet, "verbose": Verbose, "as_json": AsJsonLines}
    return with_debug(_signed(command, function, {"listener": ()}, last=shown))


def _signed(
    command: Callable[..., Any],
    function: Callable[..., Any],
    instead: Mapping[str, Sequence[inspect.Parameter]] = _NONE,
    *,
    last: Mapping[str, Any] = _NONE,
) -> Callable[..., Any]:
    """The command with a function's parameters, others in place of some, and switches before ``--help-all``."""
    own = inspect.signature(function, eval_str=True).parameters.values()
    kind = inspect.Parameter.KEYWORD_ONLY
    switches = [inspect.Parameter(name, kind, annotation=option, default=False) for name, option in last.items()]
    parameters = [parameter for mine in own for parameter in instead.get(mine.name, (mine,))] + switches
    command.__signature__ = inspect.Signature(sorted(parameters, key=lambda parameter: parameter.name == "help_all"))  # type: ignore[attr-defined]
    return command
