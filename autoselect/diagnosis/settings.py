"""Everything a diagnosis can be told beside what a search can be told too, declared once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from autoselect.cases.option import GOAL, HARDWARE, OUTPUT, SEARCH, Option
from autoselect.cases.shared_settings import Given, SharedSettings, data
from autoselect.domain.recipe import Recipe

Metrics = Mapping[str, str | Callable[..., float]] | Iterable[str]
"""Metrics by name, as functions or ``"package.module:function"``; or only the latter, named as their functions."""

_metric = partial(
    Option,
    panel="Metrics of your own: 'package.module:function', repeatable",
    metavar="PKG.MOD:FN",
    kind=list[str],
)


class DiagnosisSettings(SharedSettings):
    """One diagnosis, as :class:`~autoselect.cases.settings.SearchSettings` is one search."""

    debug_data: Annotated[
        Given[object], data("Samples to measure on, given like {calibration}; that by default.", kind=str)
    ] = None
    debug_samples: Annotated[
        Annotated[int, Field(ge=1)] | None, data("Samples to measure on at most; all by default.", low=1)
    ] = None
    output: Annotated[
        Given[str | Path | None],
        Option(
            "Folder for tables and figures; none are kept without.",
            "It must be new, empty or an older diagnosis.",
            names="--output -o",
            panel=OUTPUT,
            kind=str,
        ),
    ] = None
    recipe: Annotated[
        Given[str | Path | Recipe | None],
        Option(
            "Diagnose the mixed model of this .recipe.json file, not the all-integer one.",
            "Or of a :class:`Recipe`. Hybrid and float nodes are compared with the float model directly.",
            panel=GOAL,
            kind=str,
        ),
    ] = None
    per_channel: Annotated[
        bool,
        Option(
            "One weight scale per tensor, not per channel.",
            "A recipe's own counts.",
            names="--per-tensor",
            turns_off=True,
        ),
    ] = True
    whole_model: Annotated[bool, Option("Also follow the error from the input through the graph.", panel=SEARCH)] = (
        False
    )
    ablate: Annotated[
        int,
        Field(ge=0),
        Option("Also leave every node in and out alone, on so many samples; 0 does not.", panel=SEARCH),
    ] = 0
    node: Annotated[
        str | None,
        Option(
            "Also draw this node's weights by channel: its name, or a part or glob of it.", panel=OUTPUT, metavar="NAME"
        ),
    ] = None
    target: Annotated[
        str,
        Option(
            "Target that the advice is for.",
            "A bundled target profile, or the path of a ``.toml``.",
            panel=HARDWARE,
            metavar="NAME",
        ),
    ] = "integer-only"
    layer_debug_metrics: Annotated[
        Given[Metrics | None],
        _metric(
            "Of a layer's error array; a column of the table.",
            "By name, functions ``(diff)`` of one node's error on one sample, averaged over samples.",
            names="--layer-debug-metric",
        ),
    ] = None
    layer_direct_compare_metrics: Annotated[
        Given[Metrics | None],
        _metric(
            "Of a layer's float values, quantized values, scale and zero point; a column of the table.",
            "By name, functions ``(float, quantized, scale, zero_point)``.",
            names="--layer-direct-compare-metric",
        ),
    ] = None
    model_debug_metrics: Annotated[
        Given[Metrics | None],
        _metric(
            "Of the float and the quantized model's outputs.",
            "By name, functions ``(float_outputs, quantized_outputs)`` of lists of arrays.",
            names="--model-debug-metric",
        ),
    ] = None
    figures: Annotated[
        bool, Option("Draw nothing.", "Figures need {output}.", panel=OUTPUT, names="--no-figures", turns_off=True)
    ] = True
