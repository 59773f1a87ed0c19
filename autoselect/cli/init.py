"""``autoselect init``."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from autoselect.cases.declared import declared, told_of
from autoselect.cases.settings import SearchSettings
from autoselect.cli.command import with_debug, with_settings
from autoselect.cli.config_file import Key, keys_of
from autoselect.cli.console import results_only_on_stdout
from autoselect.cli.options import in_python, some_parameters
from autoselect.cli.search import search
from autoselect.report.tables.model_tables import clean

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
    from autoselect.api.looking import look
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
    found = {
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
        return [*lines, f"{name} = {_toml(found.get(name, key.default))}"]
    if key.default is None:
        example = found.get(name, declared()[key.name].example)
        return [*lines, f"# {name} = {_toml('' if example is None else example)}  # not set by default"]
    return [*lines, f"# {name} = {_toml(key.default)}"]


def _toml(value: Any) -> str:
    """A value of TOML; JSON writes texts, numbers, lists and booleans alike."""
    return json.dumps(value, ensure_ascii=False)
