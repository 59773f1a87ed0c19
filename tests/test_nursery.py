"""Nets as ordinary users write them are taken in, searched and forecast, whichever file they come as."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forecasts
import numpy as np
import nursery
import pytest
import zoo

import autoselect
from autoselect.api import searching
from autoselect.api.run import load_run
from autoselect.data.representative import representative_samples
from autoselect.domain.recipe import Recipe
from autoselect.quantize.building import proof
from autoselect.quantize.preparing import converter
from autoselect.rewrites import names
from autoselect.sources import loading
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Runner

Grown = Callable[[str], nursery.Sources]
TRIALS = 6
RECIPES = 9
SUFFIXES = (".tflite", ".keras", "")

ONLY_IN_A_FREE_BATCH = {"SHAPE", "EXPAND_DIMS", "SPACE_TO_BATCH_ND"}
"""Op types that tell that the converter wrote another graph for a free batch than for one of 1."""
FLOAT_TOLERANCE = 1e-3
"""Of float's score, relative, where the converter writes another graph for a free batch: it computes shapes at run time
(transformer, mixer, embeddings, group norm, U-Net, GRU, transposed convolution), takes other ops for the same (causal
convolution: EXPAND_DIMS for RESHAPE) or keeps a dilated convolution in parts (SPACE_TO_BATCH_ND). Float sums may then
be taken in another order."""
INTEGER_TOLERANCE = 0.1
"""Of the all-integer score, relative, likewise: one op more has a scale of its own, which moves values by half a
step."""


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., autoselect.Run]:
    monkeypatch.setattr(searching, "drawn", lambda folder: load_run(folder.root))  # Figures are tested elsewhere.
    monkeypatch.setenv("AUTOSELECT_CACHE_DIR", str(tmp_path / "cache"))

    def search(grown: nursery.Sources, suffix: str, **changes: Any) -> autoselect.Run:
        options = {"metric": "mae", "early_exit": False, "debug_samples": 4, "heldout_fraction": 0.25, "workers": 1}
        return autoselect.search(
            grown.by_suffix(suffix),
            calibration=grown.calibration,
            evaluation=(grown.evaluation, grown.targets),
            trials=TRIALS,
            output=tmp_path / f"run{suffix}",
            int16=None if suffix == ".tflite" else False,
            **options | changes,
        )

    return search


# -------------------------------------------------------------------------------------------- the nets


@pytest.mark.parametrize("name", nursery.NETS)
def test_a_net_is_what_it_is_here_for(grown: Grown, name: str) -> None:
    graph = fb.parse(grown(name).tflite.read_bytes()).subgraphs[0]
    assert nursery.NETS[name].op_types <= op_types(grown(name))
    signatures = [graph.tensors[i].shapeSignature for i in [*graph.inputs, *graph.outputs]]
    assert all(s is not None and s[0] == -1 for s in signatures) is (name != "fused LSTM")


def op_types(grown: nursery.Sources) -> set[str]:
    """Of the file as the converter wrote it."""
    model = fb.parse(grown.tflite.read_bytes())
    return {fb.op_type(model, op) for op in model.subgraphs[0].operators}


def test_there_are_enough_of_them() -> None:
    assert len(nursery.NETS) >= 14


# ---------------------------------------------------------------------------------------------- searches


@pytest.mark.slow
@pytest.mark.parametrize("name", nursery.NETS)
def test_each_source_is_searched_and_float_and_all_integer_score_the_same(
    grown: Grown, search: Callable[..., autoselect.Run], name: str
) -> None:
    # Repairs, which are tried first, take a third of the time: one source has them. The other two give one model, byte
    # for byte, as the next test shows: they take turns, and one net has both.
    turn = list(nursery.NETS).index(name) % 2
    others = SUFFIXES[1:] if name == "two inputs, two outputs" else SUFFIXES[1 + turn : 2 + turn]
    runs = [search(grown(name), suffix, repairs=suffix == ".tflite") for suffix in (".tflite", *others)]
    for run in runs:
        assert run.status == "complete"
        assert len(run.trials) == TRIALS
        assert set(run.trials["state"]) <= {"complete", "dropped"}
        assert "tpe" not in set(run.trials["origin"])  # The default sampler works on every model.
        assert math.isfinite(run.front["mae"].min())
    alike = not op_types(grown(name)) & ONLY_IN_A_FREE_BATCH
    for reference, tolerance in (("float", FLOAT_TOLERANCE), ("fiq", INTEGER_TOLERANCE)):
        from_tflite, *from_keras = (_score(run, reference) for run in runs)
        assert len(set(from_keras)) == 1
        assert from_tflite == (from_keras[0] if alike else pytest.approx(from_keras[0], rel=tolerance))


def _score(run: autoselect.Run, reference: str) -> float:
    return float(run.summary["references"][reference]["mae"])


@pytest.mark.slow
@pytest.mark.parametrize("name", nursery.NETS)
def test_a_keras_file_and_a_saved_model_are_one_model(grown: Grown, name: str) -> None:
    """But for the order of inputs: that of a SavedModel is its converter's."""

    def in_one_order(suffix: str) -> bytes:
        parsed = fb.parse(loading.float_model(grown(name).by_suffix(suffix)).content)
        parsed.subgraphs[0].inputs = np.sort(parsed.subgraphs[0].inputs)
        return fb.serialise(parsed)

    assert in_one_order(".keras") == in_one_order("")


# --------------------------------------------------------------------------------------- models and recipes


@pytest.fixture(scope="module", params=nursery.NETS)
def float_and_prepared(request: pytest.FixtureRequest, grown: Grown) -> tuple[bytes, zoo.Prepared]:
    """Each net's ``.tflite``, prepared once for the tests of this part, which pytest runs net by net."""
    sources = grown(request.param)
    content = loading.float_model(sources.tflite).content
    specs = reader.input_specs(fb.parse(content))
    samples = [list(sample.values()) for sample in representative_samples(sources.calibration, specs)]
    return content, zoo.prepare(content, samples)


@pytest.fixture
def prepared(float_and_prepared: tuple[bytes, zoo.Prepared]) -> zoo.Prepared:
    return float_and_prepared[1]


def test_forecasts_are_exact(prepared: zoo.Prepared) -> None:
    for base in (Recipe(), Recipe(per_channel=False), Recipe(io_type="int8"), Recipe(repairs=("bias", "ranges-mse"))):
        forecast = forecasts.forecaster(prepared, base)
        for recipe in forecasts.drawn_recipes(prepared.nodes, base, RECIPES, seed=len(prepared.nodes)):
            assert forecast(recipe) == forecasts.built(prepared.builder.build(recipe)), recipe


def test_16_bit_nodes_are_forecast_and_run(prepared: zoo.Prepared) -> None:
    for base in (Recipe(), Recipe(per_channel=False, io_type="int8"), Recipe(io_type="uint8")):
        forecast = forecasts.forecaster(prepared, base, int16=True)
        for recipe in forecasts.mixed_recipes(prepared.nodes, base, RECIPES, seed=len(prepared.nodes)):
            built = prepared.builder.build(recipe)
            assert forecast(recipe) == forecasts.built(built), recipe
            runner = Runner(built.content)
            runner({s.key: prepared.fed()[0][s.key].astype(s.dtype) for s in runner.inputs})
        assert forecast(base) == forecasts.built(prepared.builder.build(base))


def test_all_of_16_bits_is_tensorflows_own_build(prepared: zoo.Prepared) -> None:
    """With the ops that its quantizer refuses in float, see :mod:`autoselect.quantize.building.int16`."""
    told = proof.int16_remarks(
        prepared.builder, prepared.nodes, prepared.kit, samples=prepared.fed()[:2], per_channel=True
    )
    assert told == ()


def test_every_op_is_within_reach_and_all_float_is_the_float_model(
    float_and_prepared: tuple[bytes, zoo.Prepared],
) -> None:
    content, prepared = float_and_prepared
    everything = Recipe(denylisted_nodes=frozenset({"*"}), fallback="float")
    built = prepared.builder.build(everything)
    assert set(built.kinds.values()) <= {"float", "folded"}
    # Plain kernels: where shape arithmetic is folded XNNPACK takes other ops together, and differs in the last bit.
    runner, float_model = Runner(built.content, delegates=False), Runner(content, delegates=False)
    for sample in prepared.fed()[:2]:
        found, expected = runner(sample), float_model(sample)
        assert list(found) == list(expected)
        for key, values in expected.items():
            np.testing.assert_array_equal(found[key], values)


def test_all_integer_is_what_the_quantizer_makes(prepared: zoo.Prepared) -> None:
    for base in (Recipe(), Recipe(per_channel=False)):
        model = converter.quantize(prepared.calibrated.file, denylisted=(), recipe=base).taken()
        names.hide_unused_outputs(model, prepared.calibrated.names)
        whole = Runner(fb.serialise(model))
        found = Runner(prepared.builder.build(base).content)
        for sample in prepared.fed()[:2]:
            # The quantizer gives outputs names of its own: they are matched by place.
            for ours, theirs in zip(found(sample).values(), whole(sample).values(), strict=True):
                np.testing.assert_array_equal(ours, theirs)
