"""The declared settings as options of commands, options of the command line's own, and how their values are read."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Mapping
from types import NoneType
from typing import Annotated, Any, get_args

import typer

from autoselect.cases.declared import declared, told_of
from autoselect.cases.option import ADVANCED, OUTPUT, PANELS, Bytes, Option
from autoselect.cases.settings import SearchSettings
from autoselect.cases.shared_settings import SharedSettings
from autoselect.domain.quantities import parse_size
from autoselect.errors import UsageError
from autoselect.sources.wishes import Feedback, Shapes, parse_feedback, parse_shapes

_AGAIN = "What the run had as an object in Python, or what is at another place now"
_METAVARS: Mapping[Any, str] = {str: "TEXT", int: "N", float: "X", bool: ""}


def read_size(text: str) -> float:
    """Read a size in bytes.

    Raises:
        typer.BadParameter: If it is no size.
    """
    try:
        return parse_size(text)
    except UsageError as exc:
        raise typer.BadParameter(f"{exc}, got {text!r}") from exc


def command_line() -> str:
    """The command as the user typed it, quoted for a shell."""
    return shlex.join(["autoselect", *sys.argv[1:]])


def option_of(name: str, kind: type[SharedSettings] = SearchSettings, **changes: Any) -> Any:
    """The option of a declared setting; ``changes`` are what this command has otherwise."""
    option = declared(kind)[name]
    keywords: dict[str, Any] = {
        "help": told_of(name, kind),
        "metavar": option.metavar or _metavar(option.kind),
        "min": option.low,
        "max": option.high,
    }
    if option.kind is Bytes:
        keywords |= {"parser": read_size, "metavar": "SIZE"}
    return typer.Option(*option.names.split(), **keywords | changes)


def _metavar(kind: Any) -> str | None:
    """What stands for a value: short for what has one type, the choices where there are some."""
    kinds = [member for member in get_args(kind) or (kind,) if member is not NoneType]
    return _METAVARS.get(kinds[0]) if len(kinds) == 1 else None


def said_again(option: Option) -> inspect.Parameter:
    """A setting of an earlier run as an option of ``resume`` or ``merge``; without it the run's own value holds."""
    help_text, panel = option.resume or "As in autoselect search.", _AGAIN if option.live else None
    return parameter_of(option, option_of(option.name, help=help_text, metavar=None, rich_help_panel=panel), None)


def parameter_of(option: Option, info: Any, default: Any) -> inspect.Parameter:
    """A setting as a parameter of a command; ``info`` is typer's option or argument."""
    value_kind: Any = {Bytes: float, Shapes: list[str], Feedback: list[str]}.get(option.kind, option.kind)
    kind: Any = Annotated[value_kind if default is not None else value_kind | None, info]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def some_parameters(
    *names: str, kind: type[SharedSettings] = SearchSettings, panel: str | None = None
) -> list[inspect.Parameter]:
    """Some settings as parameters of a command, in a panel of its help."""
    parameters = []
    for option in (declared(kind)[name] for name in names):
        default = ",".join(option.default) or None if isinstance(option.default, tuple) else option.default
        info = option_of(option.name, kind, rich_help_panel=panel)
        parameters.append(parameter_of(option, info, not default if option.turns_off else default))
    return parameters


def parameters_of(kind: type[SharedSettings]) -> list[inspect.Parameter]:
    """All settings of a kind as parameters of a command, by the panels of its help."""
    parameters = []
    places = {panel: place for place, panel in enumerate((*PANELS[:-1], "", ADVANCED))}
    for name, option in sorted(declared(kind).items(), key=lambda item: places.get(item[1].panel, places[""])):
        if option.argument:
            parameters.append(parameter_of(option, typer.Argument(help=told_of(name, kind)), inspect.Parameter.empty))
        elif option.only != "python":
            parameters += some_parameters(name, kind=kind, panel=option.panel)
    return parameters


def in_python(kind: type[SharedSettings], given: Mapping[str, Any]) -> dict[str, Any]:
    """What Python takes for what the command line read."""

    def value(option: Option, read: Any) -> Any:
        if option.kind is Shapes:
            return parse_shapes(read)
        if option.kind is Feedback:
            return parse_feedback(read)
        if option.kind == list[str]:
            return tuple(read or ()) if option.default == () else read or None
        return not read if option.turns_off else read

    return {name: value(declared(kind)[name], read) for name, read in given.items()}


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.", rich_help_panel=OUTPUT)]
AsJsonLines = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print lines of JSON: each event, then the result.",
        rich_help_panel=OUTPUT,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only warnings.", rich_help_panel=OUTPUT)]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Also tell each trial, as it ends.", rich_help_panel=OUTPUT),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=OUTPUT)]
