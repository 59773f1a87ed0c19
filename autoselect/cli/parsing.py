"""How arguments are read: options under old names are taken, and told of once; a wrong value is named as it came."""

from __future__ import annotations

import functools
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperCommand, TyperGroup

from autoselect.cases.declared import declared
from autoselect.cases.option import ADVANCED, OUTPUT
from autoselect.cases.settings import SearchSettings
from autoselect.cli.console import warn
from autoselect.data.texts import wrong
from autoselect.diagnosis.settings import DiagnosisSettings

_SHORT, _ALL = "autoselect.short_help", "autoselect.all_help"


def _print_all(context: typer.Context, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        context.meta[_ALL] = True
        print(context.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all",
        is_eager=True,
        callback=_print_all,
        help="Show the advanced options too, and exit.",
        rich_help_panel=OUTPUT,
    ),
]
"""For commands of this class."""


@functools.cache
def _new_names() -> dict[str, str]:
    """The names of today by those that were."""
    options = [option for kind in (SearchSettings, DiagnosisSettings) for option in declared(kind).values()]
    return {
        old: new for option in options for old, new in zip(option.old.split("/"), option.names.split("/"), strict=False)
    }


@functools.cache
def _told(old: str, new: str) -> None:
    warn(f"{old} is called {new} now. The old name still works.")


def renamed(argument: str) -> str:
    """An argument of the command line with the option's name of today: ``--eval=x`` is ``--evaluation=x``."""
    name, equals, value = argument.partition("=")
    new = _new_names().get(name) if name.startswith("--") else None
    if new is None:
        return argument
    _told(name, new)
    return f"{new}{equals}{value}"


def _refuse_doubles(arguments: list[str], parameters: list[Any]) -> None:
    """Refuse two values of an option that takes one: the parser would take the last, without a word."""
    takers = {name: option for option in parameters if not getattr(option, "is_flag", True) for name in option.opts}
    given: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        option = takers.get(name)
        if option is None or (not equals and (value := next(rest, "")) == ""):
            continue
        if not option.multiple and given.setdefault(option.name, value) != value:
            raise typer.BadParameter(
                f"It is given twice, as {given[option.name]!r} and {value!r}, and takes one value. Give it once, "
                "with commas between names if it takes several.",
                param=option,
                param_hint=f"'{name}'",
            )


def plain(parameters: list[Any]) -> list[Any]:
    """Parameters whose help names no type of a switch, which takes no value, and an argument in capitals."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        elif parameter.param_type_name == "argument" and parameter.metavar is None:
            parameter.metavar = parameter.name.upper()
    return parameters


class Group(TyperGroup):
    """All commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options."""
        return plain(super().get_params(ctx))


class Command(TyperCommand):
    """A command that takes old names of options too, and says what came where a value is wrong."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options and arguments."""
        return plain(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; what follows a lone ``--`` is no option."""
        end = args.index("--") if "--" in args else len(args)
        own = [renamed(argument) for argument in args[:end]]
        if not ctx.resilient_parsing:  # A shell that completes a line wants no refusal of it.
            _refuse_doubles(own, self.get_params(ctx))
        try:
            return super().parse_args(ctx, [*own, *args[end:]])
        except typer.BadParameter as exc:
            first = exc.__cause__.errors()[0] if isinstance(exc.__cause__, ValidationError) else None
            if first is not None and first["msg"] == exc.message:
                exc.message = f"{wrong(first)}."
            raise


class ShortHelp(Command):
    """A command whose ``--help`` leaves the advanced options to ``--help-all``."""

    def get_help_option(self, ctx: Any) -> Any:
        """``--help``, in a panel that is there anyway."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.rich_help_panel = OUTPUT
        return option

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters; while the short help is written, without the advanced ones."""
        params = super().get_params(ctx)
        return [p for p in params if getattr(p, "rich_help_panel", None) != ADVANCED] if _SHORT in ctx.meta else params

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the short help, unless all of it was asked for."""
        if ctx.meta.pop(_ALL, False):
            super().format_help(ctx, formatter)
            return
        ctx.meta[_SHORT] = True
        try:
            super().format_help(ctx, formatter)
        finally:
            del ctx.meta[_SHORT]
