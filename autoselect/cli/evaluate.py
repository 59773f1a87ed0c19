"""``autoselect evaluate``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from autoselect.cases.declared import declared
from autoselect.cli.command import with_debug, with_settings
from autoselect.cli.console import out, print_lines, warn, watching
from autoselect.cli.options import AsJson, option_of, some_parameters
from autoselect.domain.objectives import Direction
from autoselect.errors import EXIT_NOTHING_FEASIBLE, PreparationError

_REPORT = "Report on classifiers"
_LIMITS = "Limits: the exit code is 10 where one is missed"
_LIMIT_NAMES = ("max_drop", "min_score", "max_size")


@with_settings([*some_parameters("signature"), *some_parameters(*_LIMIT_NAMES, panel=_LIMITS)])
@with_debug
def evaluate(
    *,
    settings: Mapping[str, Any],
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="A .tflite file, quantized or not, or a Keras one; several with --full."),
    ],
    evaluation: Annotated[str, option_of("evaluation")],
    metric: Annotated[str, option_of("metric")] = "accuracy",
    direction: Annotated[Direction | None, option_of("direction", help="For a metric of your own.")] = None,
    output_name: Annotated[str | None, option_of("output_name")] = None,
    ignore_label: Annotated[int | None, option_of("ignore_label")] = None,
    reference: Annotated[
        str | None, typer.Option(help="The float model, for metrics that compare with it, and for --full.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Also show what the model is on this target: penalty, partitions, left ops. If the target has a "
            "compiler, the model is compiled.",
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            rich_help_panel=_REPORT,
            help="Accuracy, precision, recall, F1, balanced accuracy and Cohen's kappa, each class, the confusion "
            "matrix and, with --reference, where the models leave the float model.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", rich_help_panel=_REPORT, help="Folder for the whole tables and the figures."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score one model file: metric with its interval, size and fragmentation; --full reports on classifiers."""
    limits, signature = {name: settings[name] for name in _LIMIT_NAMES}, settings["signature"]
    if full:
        own = metric != "accuracy" or direction is not None or ignore_label is not None
        refused = {
            "no limits; leave it out": any(limit is not None for limit in limits.values()),
            "figures of its own; leave out --metric": own,
            "no target; leave out --target": target is not None,
        }
        for why in (why for why, is_given in refused.items() if is_given):
            raise typer.BadParameter(f"--full has {why}", param_hint="--full")
        _report(models, evaluation, output, as_json, reference=reference, output_name=output_name, signature=signature)
        return
    if len(models) > 1 or output is not None:
        raise typer.BadParameter("several models, and --output, need --full", param_hint="MODEL")
    if limits["max_drop"] is not None and reference is None:
        raise typer.BadParameter(
            "the drop is against the float model; pass --reference", param_hint=declared()["max_drop"].names
        )
    from autoselect import evaluate as run_evaluate
    from autoselect.cli.results import print_json

    with watching():
        score = run_evaluate(
            models[0],
            evaluation=evaluation,
            metric=metric,
            direction=direction,
            output_name=output_name,
            ignore_label=ignore_label,
            reference=reference,
            signature=signature,
            target=target,
        )
    if as_json:
        print_json(score)
    else:
        _print_score(score)
    for message in (*score["warnings"], *(score["target"] or {}).get("notes", ())):
        warn(message)
    if any(limit is not None for limit in limits.values()) and (missed := score.unmet(**limits)):
        for sentence in missed:
            warn(sentence)
        raise typer.Exit(EXIT_NOTHING_FEASIBLE)


def _fields(score: Mapping[str, Any]) -> dict[str, str]:
    from autoselect.report.tables.frames import format_penalty, format_score, format_size

    low, high = (format_score(score.get(end), scale=score["score"]) for end in ("low", "high"))
    lost = score.get("drop")
    drop = {} if lost is None else {"drop against float": format_score(lost, scale=score["score"])}
    fields = {
        str(score["metric"]): f"{format_score(score['score'])} (95 % interval {low} to {high})",
        **drop,
        "samples": str(score["samples"]),
        "size": format_size(score["size_bytes"]),
    }
    if score["target"] is not None:
        return fields
    return {
        **fields,
        "penalty": format_penalty(score["penalty"]),
        "integer segments": str(score["segments"]),
        "float ops": str(score["float_ops"]),
        "bytes between integer and float": str(score["crossing_bytes"]),
    }


def _print_score(score: Mapping[str, Any]) -> None:
    """The score, and the verdict of the target as ``autoselect inspect`` has it."""
    from autoselect.cli.results import print_fields
    from autoselect.report.tables.model_tables import aligned
    from autoselect.report.tables.target_tables import cost_rows, each_cost, verdict_rows

    print_fields(_fields(score))
    target = score["target"]
    if target is None:
        return
    for chip in target["chips"]:
        print_lines(aligned(verdict_rows(chip, target["refusal"])), title=f"On {chip['name']}")
    if not target["chips"]:
        print_lines(aligned(cost_rows(score)), title=f"On {target['name']}")
    elif costs := each_cost(target):
        print_lines(aligned(costs), title="Cost on each chip")


def _report(models: list[str], evaluation: str, output: Path | None, as_json: bool, **which: str | None) -> None:
    """Print a report, then leave with the exit code of a model that could not be run, if there is one."""
    from autoselect import classification_report
    from autoselect.cli.results import print_json

    with watching():
        report = classification_report(models, evaluation=evaluation, output=output, **which)
    if as_json:
        print_json(report)
    else:
        _print_report(report, output)
    for message in report["warnings"]:
        warn(message)
    failed = [model for model in report["models"] if model["error"] is not None]
    for model in failed:
        warn(f"{model['path']} could not be run and is left out. {model['error']}")
    if failed:
        raise typer.Exit(PreparationError.exit_code)


def _print_report(report: Mapping[str, Any], output: Path | None) -> None:
    from autoselect.report.tables.class_tables import class_sections

    for section in class_sections(report, out().width):
        out().print(section.title, style="bold", markup=False, soft_wrap=True)
        print_lines((*section.lines, ""))
    if output is None:
        print_lines(["--output DIR writes the whole tables as CSV files, and the figures."])
        return
    names = sorted(path.name for path in output.iterdir() if path.is_file())
    print_lines([f"Files in {output}:", *(f"  {name}" for name in names)])
