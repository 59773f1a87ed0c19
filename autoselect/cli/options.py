"""Options that several commands share, and how their values are read; loads nothing heavy."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from enum import Enum
from typing import Annotated

import typer

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*")

METRIC_HELP = (
    "accuracy, top5_accuracy, balanced_accuracy, f1_macro, cohen_kappa, mean_iou, mse, mae, psnr, or, without "
    "labels, agreement, sqnr_db, kl_divergence; or 'package.module:function' called with (y_true, y_pred)."
)
CALIBRATION_HELP = "Representative samples: an .npz or .npy file, or 'package.module:function' that yields them."
EVALUATION_HELP = (
    "Samples to score on: an .npz file with the targets as y, or 'package.module:function' that yields "
    "(inputs, target)."
)


class Direction(str, Enum):
    """Which scores are better."""

    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


def parse_size(text: str) -> float:
    """Read a size in bytes: ``49320``, ``48kB`` (1000 bytes), ``1.5 MB``, ``64KiB`` (1024 bytes).

    Raises:
        typer.BadParameter: If it is no size.
    """
    found = _SIZE.fullmatch(text)
    factor = _UNITS.get(found.group(2).lower()) if found else None
    if found is None or factor is None:
        raise typer.BadParameter(f"expected bytes, or a size such as 48kB, 1.5MB or 64KiB, got {text!r}")
    return float(found.group(1)) * factor


def shapes_of(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]] | None:
    """Shapes by input from what ``--shape`` was given; None where it was not.

    Raises:
        UsageError: If a text is no shape.
    """
    from autoselect.sources.wishes import parse_shapes

    return parse_shapes(texts) if texts else None


def command_line() -> str:
    """The command as the user typed it, quoted for a shell."""
    return shlex.join(["autoselect", *sys.argv[1:]])


_OUTPUT = "Printing"

Signature = Annotated[
    str | None,
    typer.Option("--signature", metavar="KEY", help="Signature to take, of a .tflite or SavedModel with several."),
]
ShapeTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=1x16000",
        help="Sizes of an input that the model leaves free, the batch first; repeatable. Else the samples' own.",
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.", rich_help_panel=_OUTPUT)]
AsJsonLines = Annotated[
    bool,
    typer.Option(
        "--json", help="Print lines of JSON instead: each event, and at the end the result.", rich_help_panel=_OUTPUT
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only warnings.", rich_help_panel=_OUTPUT)]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=_OUTPUT)]
Workers = Annotated[int, typer.Option(min=1, help="Processes that build and score.")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Neither read nor keep calibration and float outputs.")]
