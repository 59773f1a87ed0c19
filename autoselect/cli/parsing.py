"""How arguments are read: options under old names are taken, and told of once; a wrong value is named as it came."""

from __future__ import annotations

import functools
from typing import Any

import typer
from pydantic import ValidationError
from typer.core import TyperCommand, TyperGroup

from autoselect.cases.declared import declared
from autoselect.cases.settings import SearchSettings
from autoselect.cli.console import warn
from autoselect.data.texts import wrong
from autoselect.diagnosis.settings import DiagnosisSettings


@functools.cache
def _new_names() -> dict[str, str]:
    """The names of today by those that were."""
    options = [one for kind in (SearchSettings, DiagnosisSettings) for one in declared(kind).values()]
    return {old: new for one in options for old, new in zip(one.old.split("/"), one.names.split("/"), strict=False)}


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
        try:
            return super().parse_args(ctx, [*map(renamed, args[:end]), *args[end:]])
        except typer.BadParameter as exc:
            first = exc.__cause__.errors()[0] if isinstance(exc.__cause__, ValidationError) else None
            if first is not None and first["msg"] == exc.message:
                exc.message = f"{wrong(first)}."
            raise
