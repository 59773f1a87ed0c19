"""``autoselect evaluate``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from autoselect.cli.console import reported, watching
from autoselect.cli.options import EVALUATION_HELP, METRIC_HELP, AsJson, Debug, Direction


def evaluate(
    *,
    model: Annotated[str, typer.Argument(help="A .tflite file, quantized or not.")],
    evaluation: Annotated[str, typer.Option("--eval", help=EVALUATION_HELP)],
    metric: Annotated[str, typer.Option(help=METRIC_HELP)] = "accuracy",
    direction: Annotated[Direction | None, typer.Option(help="For a metric of your own.")] = None,
    output_name: Annotated[str | None, typer.Option(help="Output to score; the first by default.")] = None,
    reference: Annotated[str | None, typer.Option(help="The float model, for metrics that compare with it.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Score one model file: metric with its interval, size and fragmentation."""
    with reported(debug=debug):
        from autoselect.api import evaluate as run_evaluate
        from autoselect.cli.results import print_fields, print_json

        with watching():
            found = run_evaluate(
                model,
                evaluation=evaluation,
                metric=metric,
                direction=direction.value if direction else None,
                output_name=output_name,
                reference=reference,
            )
        if as_json:
            print_json(found)
        else:
            print_fields(_fields(found))


def _fields(found: Mapping[str, Any]) -> dict[str, str]:
    from autoselect.report.tables import format_score, format_size

    low, high = (format_score(found.get(end), scale=found["score"]) for end in ("low", "high"))
    return {
        str(found["metric"]): f"{format_score(found['score'])} (95 % interval {low} to {high})",
        "samples": str(found["samples"]),
        "size": format_size(found["size_bytes"]),
        "penalty": format_score(found["penalty"]),
        "integer segments": str(found["segments"]),
        "float ops": str(found["float_ops"]),
        "bytes between integer and float": str(found["crossing_bytes"]),
    }
