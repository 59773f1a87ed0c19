"""Small text files that a user brings: recipes and settings; knows their size and what is wrong, not what they say."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from autoselect.domain.words import did_you_mean
from autoselect.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST_BYTES = 16 << 20


_LONG_KEY = re.compile(r"""^[ \t]*\[*[ \t]*(?:(?:"[^"\n]*"|'[^'\n]*'|[\w-]+)[ \t]*\.[ \t]*){100}""", re.MULTILINE)
"""A key of over 100 parts: tomllib keeps each beginning of it, which takes 10 GB for 50,000 parts."""


def read_text(path: Path) -> str:
    """Read a whole text file; the mark that some editors put before UTF-8 is no part of it.

    Raises:
        UsageError: If it is larger than any recipe or settings file.
        OSError, UnicodeDecodeError: If it cannot be read.
    """
    if path.exists() and (size := path.stat().st_size) > MOST_BYTES:
        raise UsageError(
            f"{path} has {size} bytes, and files of this kind at most {MOST_BYTES}. Check that it is the right one."
        )
    return path.read_text(encoding="utf-8-sig")


def toml_of(path: Path, *, called: str) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        UsageError: If it cannot be read, or is no TOML; with what the file is called.
    """
    try:
        text = read_text(path)
    except (OSError, ValueError) as exc:  # The latter for bytes that are no text, and for no path.
        raise UsageError(f"{called} cannot be read: {getattr(exc, 'strerror', None) or exc}.") from exc
    if _LONG_KEY.search(text):
        raise UsageError(f"{called} is nested deeper than any file of this kind: a key has over 100 parts.")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as exc:  # Of TOML, or of a number with thousands of digits.
        raise UsageError(f"{called} is not TOML: {exc}.") from exc


def first_wrong(exc: ValidationError, keys: Collection[str] = ()) -> str:
    """The place of the first wrong value of a pydantic model, what was expected there, and what came.

    The alternatives of a union are no places. If the first of them is a word, the message names
    the second, too. If a required key is missing and an unknown key has a similar name, the unknown key is told.

    Args:
        exc: The error.
        keys: Keys of all tables of the file. The message for a key that is none of them names the most similar one.
    """
    errors = exc.errors()
    places = [
        [str(part) for part in error["loc"] if not str(part).startswith(("literal[", "list[", "function-", "[key]"))]
        for error in errors
    ]
    first, place = errors[0], places[0]
    if first["type"] == "literal_error":
        others = [pair for pair in zip(errors[1:], places[1:], strict=True) if pair[1][: len(place)] == place]
        if others and others[0][0]["type"] == "list_type":
            return f"{'.'.join(place)}: {first['msg']} or a list, got {_came(first)}."
        first, place = others[0] if others else (first, place)
    if first["type"] == "missing":
        unknown = [parts for error, parts in zip(errors, places, strict=True) if error["type"] == "extra_forbidden"]
        for own in unknown:
            if own[:-1] == place[:-1] and (hint := did_you_mean(own[-1].lower(), place[-1:])):
                return f"{'.'.join(own)}: there is no such key.{hint}"
    if first["type"] == "extra_forbidden" and place[-1] not in keys and (hint := did_you_mean(place[-1], keys, most=1)):
        return f"{'.'.join(place)}: there is no such key.{hint}"
    return f"{'.'.join(place)}: {wrong(first)}."


def wrong(error: Mapping[str, Any]) -> str:
    """One of pydantic's errors as what was expected, and what came."""
    context = error.get("ctx", {})
    names = {  # pydantic says what Python calls them
        "tuple_type": "Input should be a valid list",
        "dict_type": "Input should be a table",
        "model_type": "Input should be a table",
        "model_attributes_type": "Input should be a table",
        "union_tag_not_found": f"Input should have the key {context.get('discriminator')}",
        "union_tag_invalid": f"the key {context.get('discriminator')} should be one of {context.get('expected_tags')}",
        "extra_forbidden": "there is no such key",
        "missing": "it is required, and missing",
    }
    message = names.get(error["type"], error["msg"]).removeprefix("Value error, ").rstrip(".")
    came = _came(error)
    is_told = message.startswith(came) or (error["type"] == "value_error" and came in ("a table", *message.split()))
    return message if error["type"] == "missing" or is_told else f"{message}, got {came}"


def _came(error: Mapping[str, Any]) -> str:
    """What came, without what a whole table holds."""
    came = error.get("ctx", {}).get("tag", error.get("input"))
    if isinstance(came, list) and any(isinstance(each, Mapping) for each in came):
        return "a list of tables"
    return "a table" if isinstance(came, Mapping) else repr(came)
