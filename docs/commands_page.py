"""Writes every command with its options into the page that asks for them, as the site is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import typer

from autoselect.cli.main import app

MARK = "<!-- every command -->"
REQUIRED = "Required: "
"""How the help begins of an option that a file may give, so that the command line does not insist on it."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for each page."""
    return markdown.replace(MARK, commands()) if MARK in markdown else markdown


def commands() -> str:
    """One section for each command, in the order of ``autoselect --help``."""
    group: Any = typer.main.get_command(app)
    return "\n\n".join("\n".join(_section(name, command)) for name, command in group.commands.items())


def _section(name: str, command: Any) -> Iterator[str]:
    arguments = [f"{p.name.upper()}..." if p.nargs < 0 else p.name.upper() for p in command.params if not _dashed(p)]
    yield f"## {name}\n\n{command.help}\n\n    autoselect {' '.join([name, *arguments])} [OPTIONS]\n"
    yield "| option | default | what it does |\n|---|---|---|"
    for parameter in sorted(command.params, key=lambda p: not _required(p)):
        told = _help(parameter).replace(REQUIRED, "").replace("|", "\\|")
        yield f"| {_spelt(parameter)} | {_default(parameter)} | {told} |"


def _help(parameter: Any) -> str:
    return getattr(parameter, "help", None) or ""


def _required(parameter: Any) -> bool:
    return parameter.required or _help(parameter).startswith(REQUIRED)


def _dashed(parameter: Any) -> bool:
    return str(parameter.opts[0]).startswith("-")


def _spelt(parameter: Any) -> str:
    if not _dashed(parameter):
        return f"`{parameter.name.upper()}`"
    spelt = [f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts)]
    return " ".join(spelt if parameter.is_flag else [*spelt, _value(parameter)])


def _value(parameter: Any) -> str:
    """What stands for the value: the choices, or a word for it."""
    kind = parameter.type_descriptor.annotation
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    return " \\| ".join(choices) or parameter.metavar or ("NUMBER" if kind in (int, float) else "TEXT")


def _default(parameter: Any) -> str:
    if _required(parameter):
        return "required"
    if parameter.default is True:
        return f"`{parameter.opts[0]}`"
    return "" if parameter.default in (None, "") or parameter.default is False else f"`{parameter.default}`"
