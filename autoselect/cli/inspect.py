"""``autoselect inspect``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from autoselect.cases.declared import declared, told_of
from autoselect.cases.settings import SearchSettings
from autoselect.cli.command import with_debug, with_settings
from autoselect.cli.console import out, print_lines, results_only_on_stdout, warn
from autoselect.cli.options import AsJson, in_python, option_of, some_parameters
from autoselect.domain.looks import LOOKS
from autoselect.domain.objectives import Direction
from autoselect.domain.words import clean

_SCORING = "Scoring, with --compare"


@with_debug
@with_settings(some_parameters("signature", "shapes", "converter_python"))
def inspect(
    *,
    settings: Mapping[str, Any],
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL", help="A .tflite, .keras, .h5, .onnx or .pt2 file or SavedModel; several with --compare."
        ),
    ],
    compare: Annotated[bool, typer.Option("--compare", help="Print the models side by side.")] = False,
    ops: Annotated[bool, typer.Option("--ops", help="Also list the ops with their tensors.")] = False,
    tensors: Annotated[bool, typer.Option("--tensors", help="Also list the tensors.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for inspect.json and the ops in colours, islands.png and .svg."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Also show where each op runs on this target and why, and what islands cost. If the target has "
            "a compiler, it is asked.",
        ),
    ] = None,
    evaluation: Annotated[
        str | None,
        option_of("evaluation", rich_help_panel=_SCORING, help="Samples to score on, as for autoselect evaluate."),
    ] = None,
    metric: Annotated[
        str | None,
        option_of("metric", rich_help_panel=_SCORING, help=f"{told_of('metric')} Accuracy if left out."),
    ] = None,
    direction: Annotated[
        Direction | None, option_of("direction", rich_help_panel=_SCORING, help="For a metric of your own.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(rich_help_panel=_SCORING, help="The float model, for metrics that compare with it."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a model file holds: ops, tensors, sizes, and where it computes in float."""
    if len(models) > 1 and not compare:
        raise typer.BadParameter("several models are shown with --compare only", param_hint="MODEL")
    if compare and (ops or tensors):
        raise typer.BadParameter("--ops and --tensors list one model; leave out --compare", param_hint="--compare")
    if evaluation is not None and not compare:
        raise typer.BadParameter(
            "is for --compare; autoselect evaluate scores one model", param_hint=declared()["evaluation"].names
        )
    from autoselect import inspect as run_inspect
    from autoselect.cli.results import print_json

    with results_only_on_stdout():
        inspection = run_inspect(
            models[0],
            compare=tuple(models[1:]),
            evaluation=evaluation,
            metric=metric,
            direction=direction,
            reference=reference,
            output=output,
            target="integer-only" if target is None else target,
            **in_python(SearchSettings, settings),
        )
    if as_json:
        print_json(inspection)
    elif compare:
        _print_comparison([inspection, *inspection["compare"]])
    else:
        _print_model(inspection, ops=ops, tensors=tensors)
        if target is not None:
            _print_target(inspection)
    notes = [note for model in (inspection, *inspection["compare"]) for note in model["target"]["notes"]]
    for message in (*notes, *(inspection["score"] or {}).get("warnings", ())):
        warn(message)
    if output is not None and not as_json:
        print_lines(("", f"Written to {output}: inspect.json, islands.png, islands.svg"))


def _print_comparison(models: Sequence[Mapping[str, Any]]) -> None:
    from autoselect.report.tables.model_tables import comparison_rows, side_by_side

    for number, block in enumerate(side_by_side(comparison_rows(models), out().width)):
        print_lines(block if number == 0 else ("", *block))


def _print_model(inspection: Mapping[str, Any], *, ops: bool, tensors: bool) -> None:
    from autoselect.report.tables import model_tables as tables

    print_lines((clean(str(inspection["path"])),))
    print_lines(tables.aligned(tables.size_rows(inspection), right=(1, 2)), title="Bytes")
    print_lines(tables.aligned(tables.fact_rows(inspection)), title="Counts")
    print_lines(tables.aligned(tables.dtype_rows(inspection), right=(1,)), title="Tensors by dtype")
    print_lines(tables.aligned(tables.op_type_rows(inspection), right=(1,)), title="Ops by type")
    print_lines(tables.signature_lines(inspection) or ("none",), title="Signatures")
    print_lines(tables.aligned(tables.fragmentation_rows(inspection)), title="Fragmentation of the main subgraph")
    for graph in inspection["subgraphs"]:
        _print_strip(graph)
    for graph in inspection["subgraphs"]:
        name = _heading(graph)
        if ops:
            print_lines(tables.aligned(tables.op_rows(graph), right=(0, 3)), title=f"Ops of {name} (* a constant)")
        if tensors:
            print_lines(tables.aligned(tables.tensor_rows(graph), right=(3,)), title=f"Tensors of {name}")


def _print_target(inspection: Mapping[str, Any]) -> None:
    from autoselect.report.tables import target_tables as tables
    from autoselect.report.tables.model_tables import aligned

    name, chips = inspection["target"]["name"], inspection["target"]["chips"]
    for chip in chips:
        _print_chip(chip, inspection["target"]["refusal"])
    if chips:
        if costs := tables.each_cost(inspection["target"]):
            print_lines(aligned(costs), title="Cost on each chip")
        if any(chip["pieces"] for chip in chips):
            print_lines(aligned(tables.island_rows(inspection), right=(0, 3)), title=f"Islands on {name}")
            print_lines(tables.advice_lines(inspection))
        return
    print_lines(aligned(tables.cost_rows(inspection)), title=f"On {name}")
    header, *ops = tables.placement_rows(inspection)
    right = [i for i, column in enumerate(header) if column in ("op", "cost")]
    print_lines(aligned([header, *ops], right=right), title=f"Ops on {name}")
    print_lines(aligned(tables.island_rows(inspection), right=(0, 3)), title=f"Islands on {name}")
    print_lines(tables.advice_lines(inspection))


def _print_chip(chip: Mapping[str, Any], refusal: str | None) -> None:
    """What a chip whose compiler decides takes of the model, piece by piece, and what it leaves."""
    from autoselect.report.tables import target_tables as tables
    from autoselect.report.tables.model_tables import aligned

    name = chip["name"]
    print_lines(aligned(tables.verdict_rows(chip, refusal)), title=f"On {name}")
    if refusal and not chip["pieces"]:
        return
    print_lines(aligned(tables.piece_rows(chip), right=(0, 1, 3, 4, 5)), title=f"Pieces that {name} runs")
    print_lines(tables.left_lines(chip), title="Ops left on the CPU")


def _heading(graph: Mapping[str, Any]) -> str:
    return f"subgraph {graph['index']} {clean(graph['name'])}".rstrip()


def _print_strip(graph: Mapping[str, Any]) -> None:
    from rich.text import Text

    from autoselect.report.tables.model_tables import strip_legend, strip_rows

    kinds, console = [op["kind"] for op in graph["ops"]], out()
    styles = {look.mark: look.style for look in LOOKS.values()}
    print_lines((), title=f"Ops of {_heading(graph)} in order")
    for row in strip_rows(kinds, console.width):
        number, space, marks = row.rpartition(" ")
        text = Text().append(number + space, style="dim")
        for mark in marks:
            text.append(mark, style=styles[mark])
        console.print(text, soft_wrap=True)
    print_lines([strip_legend(kinds)])
