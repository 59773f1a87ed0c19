"""The declared settings as other rooms read them: one option each, with its words filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache as computed_once
from typing import Any, get_type_hints

from pydantic.fields import FieldInfo

from autoselect.cases.option import Option
from autoselect.cases.settings import SearchSettings
from autoselect.cases.shared_settings import SharedSettings
from autoselect.sources.wishes import Shapes


@computed_once
def declared(kind: type[SharedSettings] = SearchSettings) -> Mapping[str, Option]:
    """The settings that users may set, by name, in the order of their declaration; how to work comes last."""
    types = get_type_hints(kind)
    options = [
        _filled_in(option, name, types[name], field)
        for name, field in kind.model_fields.items()
        for option in field.metadata
        if isinstance(option, Option)
    ]
    return {option.name: option for option in sorted(options, key=lambda option: option.last)}


def _filled_in(option: Option, name: str, kind: Any, field: FieldInfo) -> Option:
    """What an option says by default is what its field says."""
    low, high = (next((getattr(i, w) for i in field.metadata if hasattr(i, w)), None) for w in ("ge", "le"))
    word = name.replace("_", "-")
    return replace(
        option,
        names=option.names or (f"--{word}/--no-{word}" if field.default is True else f"--{word}"),
        kind=option.kind or (str if option.live else kind),
        low=low if option.low is None else option.low,
        high=high if option.high is None else option.high,
        name=name,
        type=kind,
        default=field.default,
        kept=not field.exclude,
    )


def told_of(name: str, kind: type[SharedSettings] = SearchSettings, *, in_python: bool = False) -> str:
    """What users read of a setting: the short help of the command line, or Python's documentation."""
    options = declared(kind)
    option = options[name]
    if not in_python:
        repeatable = option.kind in (list[str], Shapes) and "repeatable" not in option.panel
        spelt = {other: re.split("[ /]", other_option.names)[0] for other, other_option in options.items()}
        return option.help.format_map(spelt) + (" Repeatable." if repeatable else "")
    text = f"{option.help} {option.more}".rstrip().format_map({other: f"``{other}``" for other in options})
    return f"If False: {text[0].lower()}{text[1:]}" if option.turns_off else text
