"""A model that is being built, and what a pass over it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.tflite import flatbuffer as fb


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """What bias correction found at one op.

    Attributes:
        before: Largest shift of a channel's mean output, in steps of the op's output; NaN where that is float.
        after: What of it is left, because a bias is rounded too.
        reason: Why the op was left as it was; None where it was corrected.
    """

    before: float
    after: float
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The levels that the weights of one op may have, if these are fewer than 255.

    Attributes:
        top: A weight is one of the multiples -top..top of a step.
        step: Distance between neighbouring weights as int8 stores them, an integer of at least 1: shape (channels,) for
            one scale for each output channel, else (1,).
    """

    top: int
    step: np.ndarray


@dataclass(slots=True, kw_only=True)
class Built:
    """A whole build or a candidate, with what its passes found.

    Attributes:
        model: The editable model, that passes change in place.
        places: For each op of the float model, as far as it has a twin here, the place of that.
        repairs: Of the recipe.
        shifts: What bias correction found, by op of the float model.
        skipped: By name of a repair, why it left an op alone that it is there for.
        kept_float: For each op of the float model that cannot be hybrid why; of the hybrid build.
        grids: The levels of ops of the float model whose weights have fewer.
    """

    model: fb.Model
    places: Mapping[int, int]
    repairs: tuple[str, ...]
    shifts: Mapping[int, Shift] = field(default_factory=dict)
    skipped: dict[str, Mapping[int, str]] = field(default_factory=dict)
    kept_float: Mapping[int, str] = field(default_factory=dict)
    grids: dict[int, Grid] = field(default_factory=dict)


Pass = Callable[[Built, RepairKit], None]
"""Changes what is being built, in place; its docstring says what it needs of the passes before it, and what it gives.

The kit knows the calibrated model, its names, and what repairs need to have measured.
"""
