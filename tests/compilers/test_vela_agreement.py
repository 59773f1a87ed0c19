"""Vela's verdict and segments are those of the forecast, on random mixes of 8 and 16 bits, hybrid and float.

``AUTOSELECT_VELA_RECIPES`` is the number of recipes for each model and target. Of 100 recipes of the pump case one has
other segments on an Ethos-U55: where values are written into what joins them, Vela may schedule them the other way
round, and there an int8 convolution, whose stride is too long, is left to the CPU.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import logging
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import forecasts
import numpy as np
import pytest
import zoo

from autoselect import embedded
from autoselect.compilers import vela
from autoselect.domain.recipe import Recipe
from autoselect.domain.targets import Target
from autoselect.domain.verdicts import judge
from autoselect.errors import CompilerRefusal
from autoselect.scoring.target_file import read_target
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

pytest.importorskip("ethosu")

RECIPES = int(os.environ.get("AUTOSELECT_VELA_RECIPES", "12"))
CALIBRATED = 20
OTHERWISE = 0.01
"""Share of compiled candidates that may have other segments."""
TARGETS = ["ethos-u55-128", "ethos-u85-256"]
EXPERIMENT = Path(__file__).resolve().parents[2] / "experiments" / "streaming_denoiser"


def prepare(path: Path, samples: Iterable[Any]) -> zoo.Prepared:
    content = path.read_bytes()
    keys = [spec.key for spec in reader.input_specs(fb.parse(content))]
    fed = [s if isinstance(s, dict) else dict(zip(keys, s, strict=True)) for s in itertools.islice(samples, CALIBRATED)]
    return zoo.prepare(content, [[np.asarray(sample[key]) for key in keys] for sample in fed])


def several_outputs() -> zoo.Prepared:
    """Ops that Vela wants in integers, and one output for each branch."""
    import tensorflow as tf

    first, second = zoo.weights(3, 3, 3, 8), zoo.weights(3, 3, 8, 8, seed=1)

    def call(x: Any) -> Any:
        y = tf.nn.conv2d(x, first, 1, "SAME")
        y = y * tf.nn.relu6(y + 3.0) / 6.0
        z = tf.nn.conv2d(y, second, 1, "SAME")
        z = z * tf.nn.relu6(z + 3.0) / 6.0
        return {"a": tf.nn.softmax(z + y), "b": tf.nn.conv2d(z, second, 2, "SAME"), "c": tf.argmax(y, axis=3)}

    return zoo.from_function(call, (1, 8, 8, 3)).prepared


def compositions() -> zoo.Prepared:
    """Ops that are made of others where they have 16 bits."""
    import tensorflow as tf

    first, second, slopes = zoo.weights(3, 3, 3, 8), zoo.weights(3, 3, 8, 8, seed=1), zoo.weights(1, 1, 8, seed=2)

    def call(x: Any) -> Any:
        y = tf.nn.conv2d(x, first, 1, "SAME")
        y = tf.nn.relu(y) + -slopes * tf.nn.relu(-y)
        z = tf.nn.conv2d(y, second, 1, "SAME")
        z = z * tf.nn.relu6(z + 3.0) / 6.0
        return tf.nn.softmax(tf.math.squared_difference(z, y))

    return zoo.from_function(call, (1, 8, 8, 3)).prepared


MODELS = {
    "several outputs": several_outputs,
    "compositions": compositions,
    "pump": lambda: prepare(embedded.model_path(), embedded.calibration()),
}


def compile_in_this_process(command: list[str], _timeout_seconds: float, target: str) -> None:
    """Vela's command without its start, which takes ten times as long as its work."""
    from ethosu.vela import vela as program

    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            program.main([str(word) for word in command[3:]])
        except RuntimeError as exc:
            raise CompilerRefusal(f"Vela refuses the candidate for {target}: {exc}") from exc


def mixes(prepared: zoo.Prepared, base: Recipe) -> Iterator[Recipe]:
    """Every other one all in integers, as few random ones are."""
    for number, recipe in enumerate(forecasts.mixed_recipes(prepared.nodes, base, RECIPES, seed=len(prepared.nodes))):
        yield replace(recipe, denylisted_nodes=frozenset(), float_nodes=frozenset()) if number % 2 else recipe


def segments_by_vela(content: bytes, target: Target) -> int | None:
    """None where it refuses."""
    with contextlib.suppress(CompilerRefusal):
        return vela.VelaCompiler(target).compile(content, timeout_seconds=60.0).segments
    return None


def assert_agreement(prepared: zoo.Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vela, "_run", compile_in_this_process)
    base = Recipe(io_type="int8")
    blueprint = prepared.builder.blueprint(base, int16=True)
    counts = Counter[str]()
    for recipe in mixes(prepared, base):
        denied, floats, int16 = (
            [i for i, node in enumerate(prepared.nodes) if forecasts.escaped(node.name) in names]
            for names in (recipe.denylisted_nodes, recipe.float_nodes, recipe.int16_nodes)
        )
        graph = blueprint.plan(denied, recipe.fallback, floats, int16).graph
        content = prepared.builder.build(recipe).content
        for name in TARGETS:
            target = read_target(name)
            forecast = judge(graph, target)
            wanted = None if forecast.refused("compiler") else forecast.segments
            found = segments_by_vela(content, target)
            assert (found is None) == (wanted is None), (name, recipe)
            counts.update({"compiled": wanted is not None, "with 16 bits": bool(wanted and int16)})
            counts.update({"refused": wanted is None, "with other segments": found != wanted})
    logging.getLogger(__name__).info("verdicts as forecast: %s", dict(counts))
    assert counts["with other segments"] <= OTHERWISE * counts["compiled"]
    assert counts["with 16 bits"]


@pytest.mark.slow
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_vela_agrees_with_the_forecast(make: Callable[[], zoo.Prepared], monkeypatch: pytest.MonkeyPatch) -> None:
    assert_agreement(make(), monkeypatch)


@pytest.mark.slow
@pytest.mark.real
def test_vela_agrees_on_a_streaming_denoiser(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSELECT_REAL_DATA", str(real_data))
    monkeypatch.syspath_prepend(str(EXPERIMENT))
    monkeypatch.delitem(sys.modules, "denoiser", raising=False)
    case = importlib.import_module("denoiser")
    assert_agreement(prepare(case.MODEL, case.calibration()), monkeypatch)
