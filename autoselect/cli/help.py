"""Help in two lengths: what most people need, and everything."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from autoselect.cases.option import ADVANCED, OUTPUT
from autoselect.cli.parsing import Command

_SHORT, _ALL = "autoselect.short_help", "autoselect.all_help"


class ShortHelp(Command):
    """A command whose ``--help`` leaves the advanced options to ``--help-all``."""

    def get_help_option(self, ctx: Any) -> Any:
        """``--help``, in a panel that is there anyway."""
        found = super().get_help_option(ctx)
        if found is not None:
            found.rich_help_panel = OUTPUT
        return found

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters; while the short help is written, without the advanced ones."""
        found = super().get_params(ctx)
        return [p for p in found if getattr(p, "rich_help_panel", None) != ADVANCED] if _SHORT in ctx.meta else found

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
