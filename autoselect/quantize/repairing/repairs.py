"""What the repairs of a recipe need: the calibrated model that it starts from, and what is measured on samples.

No repair adds a float op. Measures when it is first asked; refuses to know built models.
"""

from __future__ import annotations

import io
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from autoselect.domain.recipe import node_repairs, split_repair
from autoselect.errors import BuildError
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.quantize.repairing import equalize, input_means, ranges
from autoselect.rewrites.names import NameMap
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.ranges import Range, extremes, give_ranges
from autoselect.tflite.tflite_file import TfliteFile

MEASURED_SAMPLES = 50
"""Means are of the first so many calibration samples, and ranges of at least so many."""

MEASURED_VALUES = 2_000_000_000
"""Ranges are of all calibration samples whose activations have so many values together: about 20 s of a processor."""

Samples = Callable[[], Iterable[Mapping[str, np.ndarray]]]
"""Gives the calibration samples, inputs by key, anew at each call."""

Keep = Callable[[str, Callable[[], bytes]], bytes]
"""Gives what is kept under a name; where nothing is, makes it and keeps it."""


def keep_nothing(_name: str, make: Callable[[], bytes]) -> bytes:
    """Make it anew."""
    return make()


def before_quantizing(repairs: Sequence[str]) -> tuple[str, ...]:
    """The repairs of a recipe that change the calibrated model; the others change what the quantizer made of it."""
    return tuple(name for name in repairs if name == "equalization" or split_repair(name)[0] in ranges.METHODS)


T = TypeVar("T")


class RepairKit:
    """What the repairs of one calibrated model need; without samples only a recipe without repairs can be built.

    It also remembers what all builders of the model share.

    Attributes:
        keep: Gives what was measured before under a name; else measures it, and keeps it in a file.
        moments: Second moments of layers' inputs, by the layer's op index and the repairs of the model that was run.
            The code that adds an entry bounds the memory of all.
    """

    def __init__(self, calibrated: CalibratedModel, samples: Samples | None = None, keep: Keep = keep_nothing) -> None:
        """Keep the calibrated model, and where its samples are."""
        self._plain, self._all_samples, self.keep = calibrated, samples, keep
        self.moments: dict[Hashable, Any] = {}
        self._remembered: OrderedDict[Hashable, Any] = OrderedDict()
        # Each is made once for all recipes that ask for the same.
        self._calibrated = cache(self._make_calibrated)
        self._means, self._ranges = cache(self._read_means), cache(self._read_ranges)

    @property
    def names(self) -> NameMap:
        """The key to the float model's names."""
        return self._plain.names

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """What was made under a key, made now where nothing is; the least recently used is forgotten."""
        if key not in self._remembered:
            self._remembered[key] = make()
        self._remembered.move_to_end(key)
        # What is made of a model for one granularity, interface and choice of repairs: its whole builds, and their
        # parts, each with 16-bit nodes or without. A search has up to four choices of repairs.
        while len(self._remembered) > 16:
            self._remembered.popitem(last=False)
        entry: T = self._remembered[key]
        return entry

    def samples(self) -> Iterable[Mapping[str, np.ndarray]]:
        """The samples that are measured on.

        Raises:
            BuildError: If there are none.
        """
        return islice(self._calibration(), MEASURED_SAMPLES)

    def _samples_for_ranges(self, model: fb.Model) -> Iterable[Mapping[str, np.ndarray]]:
        """All calibration samples; of a large model so many as take no longer than others', from everywhere."""
        most = max(MEASURED_SAMPLES, MEASURED_VALUES // max(ranges.count_values(model), 1))
        count = sum(1 for _ in self._calibration())
        return islice(self._calibration(), 0, None, max(1, -(-count // most)))

    def _calibration(self) -> Iterable[Mapping[str, np.ndarray]]:
        if self._all_samples is None:
            raise BuildError("Repairs are measured on the calibration samples, and there are none here. Pass them.")
        return self._all_samples()

    def calibrated(self, repairs: Sequence[str]) -> CalibratedModel:
        """The calibrated model that a recipe with these repairs starts from."""
        return self._calibrated(before_quantizing(repairs))

    def _make_calibrated(self, repairs: tuple[str, ...]) -> CalibratedModel:
        source = self._source("equalization" in repairs)
        chosen = self._chosen_ranges(repairs)
        return replace(self._plain, file=_with_ranges(source, chosen) if chosen else source)

    def float_model(self, repairs: Sequence[str] = ()) -> fb.Model:
        """The parsed model, made once; nobody may change it."""
        return self.calibrated(repairs).file.model

    def _chosen_ranges(self, repairs: Sequence[str]) -> dict[int, Range]:
        """By tensor index: those of the whole model, and instead of these those of single nodes.

        Raises:
            RecipeError: If repairs name a node that the model does not have, or one node twice.
        """
        chosen = [name for name in repairs if name != "equalization"]
        if not chosen:
            return {}
        measured = self._ranges("equalization" in repairs)
        new_ranges = {index: span for name in chosen if name in measured for index, span in measured[name].items()}
        for node, method in node_repairs(chosen, self._owned, "ranges").items():
            new_ranges |= {index: measured[method][index] for index in self._owned[node] if index in measured[method]}
        return new_ranges

    @cached_property
    def _owned(self) -> dict[str, list[int]]:
        """The tensors of each input and of each node, by name."""
        names, graph = self._plain.names, self.float_model().subgraphs[0]
        tensors = {name: [int(i)] for name, i in zip(names.inputs, graph.inputs, strict=True)}
        rows = zip(names.nodes, graph.operators, strict=True)
        return tensors | {name: [int(i) for i in op.outputs] for name, op in rows}

    def means(self, repairs: Sequence[str]) -> input_means.Means:
        """Taps of each weighted op's input, see :func:`autoselect.quantize.repairing.input_means.measure_means`."""
        return self._means("equalization" in repairs)

    def _read_means(self, equalized: bool) -> input_means.Means:
        source, name = self._source(equalized), f"{'equalized_' if equalized else ''}means.npz"
        raw = self.keep(name, lambda: _packed(input_means.measure_means(source, self.samples())))
        with np.load(io.BytesIO(raw)) as arrays:
            return {int(index): arrays[index] for index in arrays.files}

    def _read_ranges(self, equalized: bool) -> dict[str, dict[int, Range]]:
        source, name = self._source(equalized), f"{'equalized_' if equalized else ''}ranges.json"
        # Equalization changes no value outside of pairs of layers.
        among = equalize.tensors_that_may_change(self._plain.file.model) if equalized else None
        raw = self.keep(
            name, lambda: json.dumps(ranges.measure(source, self._samples_for_ranges(source.model), among)).encode()
        )
        plain = self._ranges(False) if equalized else {}
        return {
            method: plain.get(method, {}) | {int(index): (low, high) for index, (low, high) in spans.items()}
            for method, spans in json.loads(raw).items()
        }

    def skipped(self, repairs: Sequence[str]) -> dict[str, Mapping[int, str]]:
        """For each repair that changes the calibrated model, why it left an op alone, by op index."""
        return {name: self._reasons(name, "equalization" in repairs) for name in before_quantizing(repairs)}

    def _reasons(self, name: str, equalized: bool) -> Mapping[int, str]:
        if name == "equalization":
            return self._equalized[1]
        method, pattern = split_repair(name)
        model = self.float_model(("equalization",) if equalized else ())
        left = ranges.without_range(model, self._ranges(equalized)[method])
        if pattern is None:
            return left
        names, meant = self._plain.names.nodes, node_repairs([name], self._owned, "ranges")
        return {index: reason for index, reason in left.items() if names[index] in meant}

    def _source(self, equalized: bool) -> TfliteFile:
        return self._equalized[0] if equalized else self._plain.file

    @cached_property
    def _equalized(self) -> tuple[TfliteFile, Mapping[int, str]]:
        """The equalized model, and why layers of it are not."""
        made = cache(self._make_equalized)
        content = self.keep("equalized.tflite", lambda: made().file.content)
        raw = self.keep("equalized.json", lambda: json.dumps(dict(made().reasons)).encode())
        return TfliteFile(content), {int(index): reason for index, reason in json.loads(raw).items()}

    def _make_equalized(self) -> equalize.Equalized:
        equalization = equalize.equalize(self._plain.file, self._calibration)
        between = equalize.tensors_between(equalization.file.model, equalization.pairs)
        chosen = extremes(equalization.file.content, self._calibration(), between)
        if not np.isfinite(list(chosen.values())).all():
            return equalize.unchanged(self._plain.file, equalization.reasons, equalization.pairs, ranges.NOT_FINITE)
        return replace(equalization, file=_with_ranges(equalization.file, chosen))


def _with_ranges(calibrated: TfliteFile, chosen: Mapping[int, Range]) -> TfliteFile:
    model = calibrated.copied()
    give_ranges(model, chosen)
    return TfliteFile(model=model)


def _packed(arrays: Mapping[int, np.ndarray]) -> bytes:
    content = io.BytesIO()
    np.savez(content, **{str(index): array for index, array in arrays.items()})  # type: ignore[arg-type]
    return content.getvalue()
