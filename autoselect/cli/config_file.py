"""A TOML file in place of options: its keys are the options' names, so there is nothing that it does not take.

The command line wins over the file, and the file over the defaults. What the keys may be and what their values must look
like is asked of the command itself.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NOT_IN_FILES = ("config", "help")


def read_config(context: typer.Context, path: str | None) -> str | None:
    """Make the values of a file the defaults of the command: a callback of ``--config``.

    Raises:
        typer.BadParameter: If the file cannot be read, or a key or value is wrong; with the key.
    """
    if path is not None and not context.resilient_parsing:
        parameters = config_parameters(context.command)
        given = _flat(_read(path))
        context.default_map = {
            parameters[key].name: _checked(context, parameters[key], f"{path}: {key}", value)
            for key, value in _known(given, parameters, path).items()
        }
    return path


def config_parameters(command: Any) -> dict[str, Any]:
    """What a file may set: the command's parameters by key, the long option without its dashes."""
    found = {}
    for parameter in command.params:
        key = max(parameter.opts, key=len).lstrip("-")
        if key not in _NOT_IN_FILES:
            found[key] = parameter
    return found


def _read(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        raise typer.BadParameter(f"{path} cannot be read: {exc}.") from exc
    except tomllib.TOMLDecodeError as exc:
        raise typer.BadParameter(f"{path} is not TOML: {exc}.") from exc


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Keys with dashes; a table stays under its path, which is then unknown."""
    found = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= {f"{key}.{inner}": item for inner, item in _flat(value).items()}
        else:
            found[key.replace("_", "-")] = value
    return found


def _known(given: Mapping[str, Any], parameters: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    for key in given:
        if key not in parameters:
            close = difflib.get_close_matches(key.rsplit(".", 1)[-1], parameters, n=1, cutoff=0.5)
            hint = f" Did you mean {close[0]!r}?" if close else f" Known keys: {', '.join(parameters)}."
            raise typer.BadParameter(f"{path}: there is no key {key!r}.{hint}")
    return given


def _checked(context: typer.Context, parameter: Any, where: str, value: Any) -> Any:
    """The value as the command line would have it, in the type that TOML has for it."""
    if parameter.multiple:
        if not isinstance(value, list):
            raise typer.BadParameter(f"{where}: expected a list, got {value!r}.")
        return [_one(context, parameter, f"{where}.{place}", item) for place, item in enumerate(value)]
    return _one(context, parameter, where, value)


def _one(context: typer.Context, parameter: Any, where: str, value: Any) -> Any:
    word, accepted = _expected(parameter)
    if not isinstance(value, accepted) or (isinstance(value, bool) and accepted is not bool):
        raise typer.BadParameter(f"{where}: expected {word}, got {value!r}.")
    value = value if accepted is bool or isinstance(value, str) else str(value)
    try:
        parameter.type.convert(value, parameter, context)
    except typer.BadParameter as exc:
        raise typer.BadParameter(f"{where}: {exc.message}") from exc
    return value


def _expected(parameter: Any) -> tuple[str, Any]:
    """Of a parameter's values the name and the Python types that TOML gives."""
    if getattr(parameter, "is_flag", False):
        return "true or false", bool
    kind = str(parameter.type.name)
    if kind.startswith("integer"):
        return "a whole number", int
    if kind.startswith("float"):
        return "a number", (int, float)
    if kind in ("text", "choice"):
        return "a text", str
    return "a text or a number", (str, int, float)
