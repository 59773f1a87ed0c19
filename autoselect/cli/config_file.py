"""A TOML file in place of options, and ``autoselect init``, which writes one.

Its keys are the options' names, so there is nothing that it does not take.
The command line wins over the file, and the file over the defaults. What the keys are and what their values must look
like is read off the command's own signature.
"""

from __future__ import annotations

import inspect
import json
import shlex
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from pydantic import ConfigDict, Field, ValidationError, create_model

from autoselect.cases.declared import declared, told_of
from autoselect.cases.settings import SearchSettings
from autoselect.cli.command import with_debug, with_settings
from autoselect.cli.console import results_only_on_stdout
from autoselect.cli.options import in_python, some_parameters
from autoselect.cli.parsing import renamed
from autoselect.data.texts import first_wrong, toml_of
from autoselect.domain.words import clean, did_you_mean
from autoselect.errors import UsageError

_NO_KEYS = ("config", "help-all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a file.

    Attributes:
        name: The command's parameter.
        kind: Type of its values, for pydantic; sizes may be numbers or texts.
        parser: What reads it from a text; None where the value is taken as it is.
        default: Of the command.
        help: One line.
        panel: Under which heading the command's help has it; empty for the first.
    """

    name: str
    kind: Any
    parser: Callable[[str], object] | None
    default: Any
    help: str
    panel: str


def keys_of(command: Callable[..., object]) -> dict[str, Key]:
    """What a file may set, in the command's order: the long options without their dashes, and the arguments."""
    keys = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind, info = get_args(parameter.annotation)[:2]
        # In an annotation, typer keeps the first option where the default would be.
        written = [text for text in (info.default, *(info.param_decls or ())) if isinstance(text, str)]
        options = [part for text in written for part in text.split("/") if part.startswith("--")]
        key = options[0].removeprefix("--") if options else name.replace("_", "-")
        if key not in _NO_KEYS:
            keys[key] = Key(
                name=name,
                kind=int | float | str if info.parser else Annotated[kind, Field(ge=info.min, le=info.max)],
                parser=info.parser,
                default=None if parameter.default is inspect.Parameter.empty else parameter.default,
                help=info.help or "",
                panel=info.rich_help_panel if isinstance(info.rich_help_panel, str) else "",
            )
    return keys


def read_config(context: typer.Context, path: str | None, command: Callable[..., object]) -> str | None:
    """Make the values of a file the defaults of a command that is about to run.

    Raises:
        typer.BadParameter: If the file cannot be read, or a key or value is wrong; with the key.
    """
    if path is not None and not context.resilient_parsing:
        keys = keys_of(command)
        values = _validated(_read(path), keys, path)
        context.default_map = {keys[key].name: value for key, value in values.items()}
    return path


def _read(path: str) -> dict[str, Any]:
    try:
        values = toml_of(Path(path), called=path)
    except UsageError as exc:
        raise typer.BadParameter(str(exc)) from exc
    chosen: dict[str, Any] = {}
    for key, value in _flat(values).items():
        name = renamed(f"--{key.replace('_', '-')}").removeprefix("--")
        if name in chosen:
            raise typer.BadParameter(f"{path}: {name} is there twice, once as {key}. Leave one out.")
        chosen[name] = value
    return chosen


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Every value under its path; there are no tables, so a path of several parts is unknown later on."""
    values_by_path: dict[str, Any] = {}
    for key, value in values.items():
        inner = _flat(value) if isinstance(value, Mapping) else {}
        values_by_path |= {f"{key}.{name}": item for name, item in inner.items()} if inner else {key: value}
    return values_by_path


def _validated(values: Mapping[str, Any], keys: Mapping[str, Key], path: str) -> dict[str, Any]:
    for key in values:
        if key not in keys:
            hint = did_you_mean(key.rsplit(".", 1)[-1], keys, most=1, cutoff=0.5)
            hint = hint or f" Known keys: {', '.join(keys)}."
            raise typer.BadParameter(f"{path}: there is no key {key!r}.{hint}")
    fields: dict[str, Any] = {k.name: (k.kind, Field(default=None, alias=key)) for key, k in keys.items()}
    model = create_model("Config", __config__=ConfigDict(strict=True), **fields)
    try:
        model.model_validate(values)
    except ValidationError as exc:
        raise typer.BadParameter(f"{path}: {first_wrong(exc)}") from exc
    return {key: _parsed(keys[key], value, f"{path}: {key}") for key, value in values.items()}


def _parsed(key: Key, value: Any, where: str) -> Any:
    """The value as a text where the command reads it from one."""
    if key.parser is None:
        return value
    try:
        key.parser(str(value))
    except typer.BadParameter as exc:
        raise typer.BadParameter(f"{where}: {exc.message}.") from exc
    return str(value)


_ALWAYS = ("model", "calibration", "evaluation", "metric", "trials")
"""Keys that are set; all others are there as comments, with their defaults."""
_LEFT_OUT = ("json", "debug")


@with_settings(some_parameters("signature", "shapes", "converter_python"))
@with_debug
def init(
    *,
    model: Annotated[str, typer.Argument(help=told_of("model"))],
    output: Annotated[str, typer.Option("--output", "-o", help="File to write.")] = "run.toml",
    settings: Mapping[str, Any],
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
) -> None:
    """Look at a model and write a commented file for autoselect search --config."""
    from autoselect.api.source import look
    from autoselect.cli.search import search
    from autoselect.runs.files import refuse_existing, write_text

    if not force:
        refuse_existing(Path(output))
    with results_only_on_stdout():
        seen = {**look(model, **in_python(SearchSettings, settings)), "model": model}
    seen |= {"signature": settings["signature"], "shape": settings["shapes"]}
    seen |= {"converter-python": settings["converter_python"]}
    write_text(Path(output), config_text(seen, keys_of(search), output))
    print(f"{output} is written. Set calibration and evaluation in it, then: {_command(output)}")


def _command(path: str) -> str:
    return shlex.join(["autoselect", "search", "--config", path])


def config_text(seen: Mapping[str, Any], keys: Mapping[str, Key], path: str) -> str:
    """The file: what was seen, then every key with its help and its default, by the panels of the help."""
    lines = [f"# {_command(path)}", "# The command line wins over this file.", "#"]
    lines += [f"# {line}" for line in _seen(seen)]
    panels: dict[str, list[str]] = {}
    for name, key in keys.items():
        if name not in _LEFT_OUT:
            panels.setdefault(key.panel or "Search", []).extend(_entry(name, key, seen))
    for panel, entries in panels.items():
        lines += ["", f"# {panel}", *entries]
    return "\n".join(lines) + "\n"


def _seen(seen: Mapping[str, Any]) -> list[str]:
    def listed(specs: list[dict[str, Any]]) -> str:
        return ", ".join(f"{clean(s['name'])} {s['dtype']} {s['shape']}" for s in specs)

    ops = ", ".join(f"{count} {clean(op)}" for op, count in seen["ops"].items())
    words = [
        f"{clean(str(seen['model']))}: {seen['size_bytes']} bytes as float .tflite",
        f"inputs: {listed(seen['inputs'])}",
        f"outputs: {listed(seen['outputs'])}",
        *textwrap.wrap(f"ops: {ops}", 110),
    ]
    if seen["recurrent"]:
        words.append("It keeps a state, which is reset before each sample; to stream through it, use evaluator.")
    return words


def _entry(name: str, key: Key, seen: Mapping[str, Any]) -> list[str]:
    examples = {
        "model": seen["model"],
        "calibration": "calibration.npz",
        "evaluation": "labelled.npz",
        "metric": seen["metric"],
        "output-name": seen["outputs"][0]["name"],
        **{name: seen[name] for name in ("signature", "shape", "converter-python") if seen.get(name)},
    }
    lines = textwrap.wrap(f"# {name}: {key.help}", 110, subsequent_indent="#   ")
    if name == "metric":
        lines.append(f"#   {seen['metric']}: {seen['why']}.")
    if name in _ALWAYS or seen.get(name):
        return [*lines, f"{name} = {_toml(examples.get(name, key.default))}"]
    if key.default is None:
        example = examples.get(name, declared()[key.name].example)
        return [*lines, f"# {name} = {_toml('' if example is None else example)}  # not set by default"]
    return [*lines, f"# {name} = {_toml(key.default)}"]


def _toml(value: Any) -> str:
    """A value of TOML; JSON writes texts, numbers, lists and booleans alike."""
    return json.dumps(value, ensure_ascii=False)
