"""Repairs of a recipe, put together: which calibrated model it starts from, and what is done to the built one.

No repair adds a float op. Knows what each needs to have measured, and measures it when it is first asked for.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice

import numpy as np

from autoselect.errors import BuildError
from autoselect.quantize import bias, equalize, ranges, rounding
from autoselect.quantize.bias import Shift
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.tflite import flatbuffer as fb

MEASURED_SAMPLES = 50
"""Means and histograms are of the first so many calibration samples."""

Samples = Callable[[], Iterable[Mapping[str, np.ndarray]]]
"""Gives the calibration samples, inputs by key, anew at each call."""

Keep = Callable[[str, Callable[[], bytes]], bytes]
"""Gives what is kept under a name; where nothing is, makes it and keeps it."""


def keep_nothing(_name: str, make: Callable[[], bytes]) -> bytes:
    """Make it anew."""
    return make()


def before_quantizing(repairs: Sequence[str]) -> tuple[str, ...]:
    """Those of a recipe's repairs that change the calibrated model; the others change what the quantizer made of it."""
    return tuple(name for name in repairs if name == "equalization" or name in ranges.METHODS)


class RepairKit:
    """What the repairs of one calibrated model need; without samples only a recipe without repairs can be built."""

    def __init__(self, calibrated: CalibratedModel, samples: Samples | None = None, keep: Keep = keep_nothing) -> None:
        """Keep the calibrated model, and where its samples are."""
        self._plain, self._all_samples, self._keep = calibrated, samples, keep
        self._models: dict[tuple[str, ...], tuple[CalibratedModel, fb.Model]] = {}
        self._means: dict[bool, bias.Means] = {}
        self._ranges: dict[bool, dict[str, dict[int, ranges.Range]]] = {}

    def samples(self) -> Iterable[Mapping[str, np.ndarray]]:
        """The samples that are measured on.

        Raises:
            BuildError: If there are none.
        """
        return islice(self._calibration(), MEASURED_SAMPLES)

    def _calibration(self) -> Iterable[Mapping[str, np.ndarray]]:
        if self._all_samples is None:
            raise BuildError("Repairs are measured on the calibration samples, and there are none here. Pass them.")
        return self._all_samples()

    def calibrated(self, repairs: Sequence[str]) -> tuple[CalibratedModel, fb.Model]:
        """The calibrated model that a recipe with these repairs starts from, and the same parsed."""
        key = before_quantizing(repairs)
        if key not in self._models:
            content = self._equalized if "equalization" in key else self._plain.content
            for name in key:
                if name in ranges.METHODS:
                    content = ranges.with_ranges(content, self._ranges_of("equalization" in key)[name])
            model = CalibratedModel(content=content, names=self._plain.names)
            self._models[key] = (model, fb.parse(content))
        return self._models[key]

    def means(self, repairs: Sequence[str]) -> bias.Means:
        """Taps of each weighted op's input, see :func:`autoselect.quantize.bias.measure_means`."""
        equalized = "equalization" in repairs
        if equalized not in self._means:
            content = self._equalized if equalized else self._plain.content
            name = f"{'equalized_' if equalized else ''}means.npz"
            raw = self._keep(name, lambda: _packed(bias.measure_means(content, self.samples())))
            with np.load(io.BytesIO(raw)) as arrays:
                self._means[equalized] = {int(index): arrays[index] for index in arrays.files}
        return self._means[equalized]

    def _ranges_of(self, equalized: bool) -> dict[str, dict[int, ranges.Range]]:
        if equalized not in self._ranges:
            content = self._equalized if equalized else self._plain.content
            name = f"{'equalized_' if equalized else ''}ranges.json"
            raw = self._keep(name, lambda: json.dumps(ranges.measure(content, self.samples())).encode())
            self._ranges[equalized] = {
                method: {int(index): (low, high) for index, (low, high) in found.items()}
                for method, found in json.loads(raw).items()
            }
        return self._ranges[equalized]

    @cached_property
    def _equalized(self) -> bytes:
        return self._keep("equalized.tflite", self._make_equalized)

    def _make_equalized(self) -> bytes:
        content, found = equalize.equalize(self._plain.content, self._calibration)
        between = equalize.tensors_between(fb.parse(content), found)
        return ranges.with_ranges(content, ranges.extremes(content, self._calibration(), between))


def _packed(arrays: Mapping[int, np.ndarray]) -> bytes:
    content = io.BytesIO()
    np.savez(content, **{str(index): array for index, array in arrays.items()})  # type: ignore[arg-type]
    return content.getvalue()


def repair(
    model: fb.Model, float_model: fb.Model, places: Mapping[int, Sequence[int]], repairs: Sequence[str], kit: RepairKit
) -> dict[int, Shift]:
    """Do what a recipe's repairs do to a built model, in place.

    Args:
        model: The built model, each operand a tensor of its own.
        float_model: The calibrated model that it was built from.
        places: Where each op of the float model is in ``model``.
        repairs: Names, as in the recipe.
        kit: For what has to be measured.

    Returns:
        By index of the float model's op what bias correction found; empty where it was not asked for.
    """
    if "weights-mse" in repairs:
        rounding.reround(model, float_model, places)
    if "bias" in repairs:
        return bias.correct(model, float_model, places, kit.means(repairs))
    if "bias-sequential" in repairs:
        return bias.correct_in_sequence(model, float_model, places, kit.means(repairs), kit.samples)
    return {}
