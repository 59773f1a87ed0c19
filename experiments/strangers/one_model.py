"""One model of others from intake to its all-integer form; says after each step how far it came, as it may die."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "zoo"), str(HERE.parents[1] / "tests")]
import core  # noqa: E402 - found by the path above
import numpy as np  # noqa: E402
from forecasts import built, drawn_recipes, forecaster  # noqa: E402

from autoselect.domain.recipe import Recipe  # noqa: E402
from autoselect.errors import AutoselectError  # noqa: E402
from autoselect.tflite import flatbuffer as fb  # noqa: E402
from autoselect.tflite import reader  # noqa: E402
from autoselect.tflite.runner import Runner  # noqa: E402

FREE_SIZE = 2048
"""Stands for each free size beside the batch: long enough for a front end of sound."""


class Sheet:
    """What is known of a model so far, on disk."""

    def __init__(self, path: Path) -> None:
        self._path, self._known = path, dict[str, Any]()

    def add(self, **facts: Any) -> None:
        """Write more."""
        self._known.update(facts)
        self._path.write_text(json.dumps(self._known), encoding="utf-8")


def free_shapes(content: bytes) -> dict[str, tuple[int, ...]]:
    """Shapes for inputs with free sizes beside the batch, by key."""
    model = fb.parse(content)
    shapes = {}
    for spec, at in zip(reader.input_specs(model), model.subgraphs[0].inputs, strict=True):
        signature = model.subgraphs[0].tensors[at].shapeSignature
        if signature is not None and any(size < 0 for size in signature[1:]):
            shapes[spec.key] = (1, *(int(size) if size > 0 else FREE_SIZE for size in signature[1:]))
    return shapes


def random_samples(content: bytes, count: int) -> list[Mapping[str, np.ndarray]]:
    """Of what the inputs take: floats from -1 to 1, small integers, truth values."""
    rng = np.random.default_rng(0)
    draws: dict[str, Callable[[Sequence[int]], np.ndarray]] = {
        "f": lambda shape: rng.uniform(-1.0, 1.0, shape),
        "i": lambda shape: rng.integers(0, 10, shape),
        "u": lambda shape: rng.integers(0, 10, shape),
        "b": lambda shape: rng.integers(0, 2, shape),
    }
    specs = reader.input_specs(fb.parse(content))
    return [
        {
            spec.key: draws[np.dtype(spec.dtype).kind]([max(1, size) for size in spec.shape]).astype(spec.dtype)
            for spec in specs
        }
        for _ in range(count)
    ]


def examine(path: Path, sheet: Sheet, samples: int, recipes: int) -> None:
    """Take the model in, forecast random candidates, build the all-integer one and run it."""
    source = path.read_bytes()
    sheet.add(step="intake", bytes=len(source))
    sheet.add(ops=len(reader.read_graph(fb.parse(source)).ops))
    content, notes = core.intake(path, free_shapes(source))
    sheet.add(step="preparing", notes=notes)
    prepared = core.prepare(content, random_samples(content, samples))
    sheet.add(step="forecasts", nodes=len(prepared.nodes))
    exact, forecast = 0, forecaster(prepared, Recipe())
    for recipe in drawn_recipes(prepared.nodes, Recipe(), recipes, seed=0):
        told, candidate = forecast(recipe), built(prepared.builder.build(recipe))
        exact += all(getattr(told, key) == getattr(candidate, key) for key in ("size_bytes", "kinds", "ops"))
    sheet.add(step="all-integer build", exact=exact, recipes=recipes)
    whole = prepared.builder.build(Recipe())
    sheet.add(step="running", kinds=dict(Counter(whole.kinds.values())))
    outputs = Runner(whole.content)(prepared.samples[0])
    sheet.add(step="", finite=all(bool(np.isfinite(value).all()) for value in outputs.values()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Examine, and write a refusal as such."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--output", type=Path, required=True, help="The .json file.")
    parser.add_argument("--samples", type=int, default=8, help="To calibrate with.")
    parser.add_argument("--recipes", type=int, default=8, help="Random candidates that are forecast and built.")
    options = parser.parse_args(arguments)
    sheet = Sheet(options.output)
    try:
        examine(options.model, sheet, options.samples, options.recipes)
    except AutoselectError as exc:
        sheet.add(refused=str(exc))


if __name__ == "__main__":
    main()
