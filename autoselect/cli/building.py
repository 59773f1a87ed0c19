"""``autoselect build`` and ``autoselect compile``: they write one model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from autoselect.cases.settings import SearchSettings
from autoselect.cli.command import with_debug, with_settings
from autoselect.cli.console import print_lines, results_only_on_stdout, warn
from autoselect.cli.options import AsJson, in_python, some_parameters
from autoselect.errors import PreparationError


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
    fields = {
        "written": str(built["path"]),
        "size": format_size(built["size_bytes"]),
        "sha256": str(built["sha256"]),
        "nodes": ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())),
    }
    if reasons:
        fields["fell back"] = "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common())
        fields[""] = "--json names the nodes"
    return fields


@with_debug
def compile_model(
    *,
    model: Annotated[str, typer.Argument(help="A .tflite file: float, int8 or mixed.")],
    target: Annotated[
        str, typer.Option(metavar="NAME[,NAME]", help="Chips to compile for, such as qualcomm-sm8750,qualcomm-sm8550.")
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write, for several chips a folder; by default beside the model, as NAME.CHIP.tflite.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compile a model file for chips with their vendors' compilers; tell what each takes and what is left to the CPU.

    The exit code is 9 if there is a chip without a file.
    """
    from autoselect import compile_model as run_compile
    from autoselect.cli.results import print_json

    with results_only_on_stdout():
        compilation = run_compile(model, target=target, output=output, force=force)
    if as_json:
        print_json(compilation)
    else:
        for number, made in enumerate(compilation["models"]):
            if number:
                print_lines([""])
            _print(made)
    for made in compilation["models"]:
        for message in made["warnings"]:
            warn(message)
    for chip, reason in compilation["failed"].items():
        warn(f"There is no file for {chip}. {reason}")
    if compilation["failed"]:
        raise typer.Exit(PreparationError.exit_code)


def _print(made: Mapping[str, Any]) -> None:
    from autoselect.report.tables import target_tables as tables
    from autoselect.report.tables.model_tables import aligned

    print_lines(aligned([("for", str(made["target"])), *tables.compiled_rows(made)]))
    print_lines(aligned(tables.piece_rows(made), right=(0, 1, 3, 4, 5)), title=f"Pieces that {made['target']} runs")
    print_lines(aligned(tables.left_rows(made), right=(0,)), title="Ops left on the CPU, by reason")
    if made["licence"]:
        print_lines(["", str(made["licence"])])
