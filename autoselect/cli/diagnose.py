"""``autoselect diagnose``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoselect.cli.console import out, reported, warn, watching
from autoselect.cli.options import (
    AsJson,
    Calibration,
    Debug,
    Integer,
    Model,
    NoCache,
    ShapeTexts,
    Signature,
    Workers,
    command_line,
)
from autoselect.sources.wishes import parse_shapes

if TYPE_CHECKING:
    from autoselect.diagnosis.result import Diagnosis

_METRICS = "Metrics of your own: 'package.module:function', repeatable"
_SUSPECTS_SHOWN = 10
_NARROWEST = 60


def _metric(name: str, text: str) -> Any:
    return typer.Option(name, metavar="PKG.MOD:FN", rich_help_panel=_METRICS, help=text)


def diagnose(
    *,
    model: Model,
    calibration: Calibration = None,
    signature: Signature = None,
    shapes: ShapeTexts = None,
    integer: Integer = None,
    debug_data: Annotated[
        str | None, typer.Option(help="Samples to measure on, given like --calibration; that by default.")
    ] = None,
    debug_samples: Annotated[
        int | None, typer.Option(min=1, help="Samples to measure on at most; all by default.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Folder for tables and figures; none are kept without.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Diagnose the mixed model of this .recipe.json file, not the all-integer one.")
    ] = None,
    per_tensor: Annotated[
        bool, typer.Option("--per-tensor", help="One weight scale per tensor, not per channel.")
    ] = False,
    whole_model: Annotated[
        bool, typer.Option("--whole-model", help="Also follow the error from the input through the graph.")
    ] = False,
    ablate: Annotated[
        int, typer.Option(min=0, help="Also leave every node in and out alone, on so many samples; 0 does not.")
    ] = 0,
    node: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Also draw this node's weights by channel: its name, or a part or glob of it."
        ),
    ] = None,
    target: Annotated[str, typer.Option(metavar="NAME", help="Target that the advice is for.")] = "integer-only",
    layer_debug_metric: Annotated[
        list[str] | None, _metric("--layer-debug-metric", "Of a layer's error array; a column of the table.")
    ] = None,
    layer_direct_compare_metric: Annotated[
        list[str] | None,
        _metric(
            "--layer-direct-compare-metric",
            "Of a layer's float values, quantized values, scale and zero point; a column of the table.",
        ),
    ] = None,
    model_debug_metric: Annotated[
        list[str] | None, _metric("--model-debug-metric", "Of the float and the quantized model's outputs.")
    ] = None,
    workers: Workers = 2,
    no_figures: Annotated[bool, typer.Option("--no-figures", help="Draw nothing.")] = False,
    no_cache: NoCache = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show which layers full-integer quantization harms, why, and what to do about it."""
    with reported(debug=debug):
        from autoselect import diagnose as run_diagnose
        from autoselect.cli.results import print_json

        with watching() as watcher:
            found = run_diagnose(
                model,
                calibration=calibration,
                signature=signature,
                shapes=parse_shapes(shapes),
                integer=integer,
                debug_data=debug_data,
                output=output,
                recipe=recipe,
                per_channel=not per_tensor,
                layer_debug_metrics=layer_debug_metric or None,
                layer_direct_compare_metrics=layer_direct_compare_metric or None,
                model_debug_metrics=model_debug_metric or None,
                whole_model=whole_model,
                ablate=ablate,
                node=node,
                target=target,
                debug_samples=debug_samples,
                workers=workers,
                cache=not no_cache,
                figures=not no_figures,
                command=command_line(),
                listener=watcher,
            )
        for message in found.facts.get("warnings") or ():
            if message not in watcher.warned:
                warn(str(message))
        if as_json:
            print_json(_as_json(found))
        else:
            _print_diagnosis(found)


def _as_json(found: Diagnosis) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "facts": found.facts,
        "model_metrics": found.model_metrics,
        "advice": [asdict(item) for item in found.advice],
        "layer_statistics": found.layer_statistics.to_dict("records"),
        "node": found.node,
        "directory": None if found.directory is None else str(found.directory),
        "figures": [str(path) for path in found.figures],
    }


def _print_diagnosis(found: Diagnosis) -> None:
    from autoselect.report.tables import layer_tables as tables
    from autoselect.report.tables.model_tables import aligned

    width = max(out().width, _NARROWEST)
    rows = found.layer_statistics
    _print_lines((tables.facts_line(found.facts),))
    suspects = tables.suspect_lines(rows, count=_SUSPECTS_SHOWN, width=width)
    _print_lines(suspects or ("No node has a measured error.",), title="Largest errors")
    if ablation := tables.ablation_lines(rows, width=width):
        _print_lines(ablation, title="Ablation")
    if found.model_metrics:
        _print_lines(aligned(tables.metric_rows(found.model_metrics), right=(1,)), title="Whole model")
    advice = tables.advice_lines(found.advice, width=width)
    _print_lines(advice or ("Nothing stands out.",), title="Advice")
    _print_files(found)


def _print_files(found: Diagnosis) -> None:
    if found.directory is None:
        _print_lines(("", "No files were kept; --output keeps the tables and figures."))
        return
    names = sorted(path.name for path in found.directory.iterdir() if path.is_file())
    _print_lines([f"  {name}" for name in names], title=f"Files in {found.directory}:")


def _print_lines(lines: Iterable[str], title: str | None = None) -> None:
    console = out()
    if title is not None:
        console.print(f"\n{title}", style="bold", markup=False, soft_wrap=True)
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
