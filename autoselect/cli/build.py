"""``autoselect build``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from autoselect.cases.settings import SearchSettings
from autoselect.cli.command import with_debug, with_settings
from autoselect.cli.console import results_only_on_stdout, warn
from autoselect.cli.options import AsJson, in_python, some_parameters


@with_settings(
    some_parameters(
        "calibration", "signature", "shapes", "feedback", "integer", "quantizer", "target", "exact_rewrites", "cache"
    )
)
@with_debug
def build(
    *,
    recipe: Annotated[str, typer.Argument(help="A .recipe.json file.")],
    model: Annotated[str, typer.Option(help="The float model that the recipe is for.")],
    output: Annotated[str, typer.Option("--output", "-o", help="File to write.")],
    settings: Mapping[str, Any],
    as_json: AsJson = False,
) -> None:
    """Build one model from a recipe."""
    from autoselect import build as run_build
    from autoselect.cli.results import print_fields, print_json

    with results_only_on_stdout():
        built = run_build(recipe, model=model, output=output, **in_python(SearchSettings, settings))
    for message in built["warnings"]:
        warn(message)
    if as_json:
        print_json(built)
    else:
        print_fields(_fields(built))


def _fields(built: Mapping[str, Any]) -> dict[str, str]:
    from autoselect.report.tables.frames import format_size

    kinds, reasons = Counter(built["kinds"].values()), Counter(built["fallbacks"].values())
    told = {
        "written": str(built["path"]),
        "size": format_size(built["size_bytes"]),
        "sha256": str(built["sha256"]),
        "nodes": ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())),
    }
    if reasons:
        told["fell back"] = "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common())
        told[""] = "--json names the nodes"
    return told
