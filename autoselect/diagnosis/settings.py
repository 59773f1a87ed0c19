"""Everything a diagnosis can be told beside what a search can be told too, declared once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from autoselect.cases.option import GOAL, HARDWARE, OUTPUT, SEARCH, Option
from autoselect.cases.shared_settings import Given, SharedSettings, checked_as, data, text_of_path
from autoselect.data.kinds import Samples
from autoselect.domain.recipe import Recipe
from autoselect.isolation.machine import default_workers

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
        Given[Samples | None],
        data("Samples to measure on, in the form of {calibration}; by default the calibration samples.", kind=str),
    ] = None
    debug_samples: Annotated[
        Annotated[int, Field(ge=1)] | None, data("Most samples to measure on; all by default.", low=1)
    ] = None
    output: Annotated[
        Given[str | Path | None],
        Option(
            "Folder for tables and figures; without it none are kept.",
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
            "A :class:`Recipe` works, too. Hybrid and float nodes are compared with the float model directly.",
            panel=GOAL,
            kind=str,
        ),
    ] = None
    per_channel: Annotated[
        bool,
        Option(
            "One weight scale per tensor, not per channel.",
            "A recipe decides for itself.",
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
        Option("Also leave each node in alone and out alone, on this many samples; 0 skips it.", panel=SEARCH),
    ] = 0
    node: Annotated[
        str | None,
        Option(
            "Also draw the weights of this node by channel: its name, or a part or glob of it.",
            panel=OUTPUT,
            metavar="NAME",
        ),
    ] = None
    target: Annotated[
        str | Path,
        checked_as(str, text_of_path, first=True),
        Option(
            "Target that the advice is for.",
            "A bundled target profile, or the path of a ``.toml``.",
            panel=HARDWARE,
            kind=str,
            metavar="NAME",
        ),
    ] = "integer-only"
    layer_debug_metrics: Annotated[
        Given[Metrics | None],
        _metric(
            "Metric of a layer's error array; adds a column to the table.",
            "By name, functions ``(diff)`` of one node's error on one sample, averaged over samples.",
            names="--layer-debug-metric",
        ),
    ] = None
    layer_direct_compare_metrics: Annotated[
        Given[Metrics | None],
        _metric(
            "Metric of a layer's float values, quantized values, scale and zero point; adds a column to the table.",
            "By name, functions ``(float, quantized, scale, zero_point)``.",
            names="--layer-direct-compare-metric",
        ),
    ] = None
    model_debug_metrics: Annotated[
        Given[Metrics | None],
        _metric(
            "Metric of the outputs of the float and the quantized model.",
            "By name, functions ``(float_outputs, quantized_outputs)`` of lists of arrays.",
            names="--model-debug-metric",
        ),
    ] = None
    figures: Annotated[
        bool, Option("Draw nothing.", "Figures need {output}.", panel=OUTPUT, names="--no-figures", turns_off=True)
    ] = True

    @property
    def processes(self) -> int:
        """Workers that were asked for, or as many as the machine has room for."""
        return default_workers() if self.workers is None else self.workers
