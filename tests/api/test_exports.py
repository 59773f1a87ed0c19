"""What a run writes for other tools, read by these tools."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pump
import pytest
from model_explorer.builtin_tflite_flatbuffer_adapter import BuiltinTfliteFlatbufferAdapter
from model_explorer.node_data_builder import GradientItem, GraphNodeData, ModelNodeData, NodeDataResult

import autoselect
from autoselect.cases.prepared import load_prepared
from autoselect.domain.recipe import Recipe
from autoselect.quantize.building.build import Builder
from autoselect.quantize.repairing.repairs import RepairKit, before_quantizing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.comparing import difference


def recipe_of(run: autoselect.Run, member: str) -> Recipe:
    return Recipe.from_json((run.directory / "front" / f"{member}.recipe.json").read_text(encoding="utf-8"))


def ops_without_conversions(content: bytes) -> list[tuple[str, str]]:
    """Op types in order, and whether they compute in integers."""
    graph = reader.read_graph(fb.parse(content))
    return [(op.op_type, op.kind.value) for op in graph.ops if op.op_type not in ("QUANTIZE", "DEQUANTIZE")]


# ------------------------------------------------------------------------------------- plain TensorFlow


@pytest.fixture(scope="module")
def new_builder(finished: autoselect.Run, cache: Path) -> Callable[[], Builder]:
    """Makes the run's builder, from the cache that the run filled; its calibrated model is the one in the folder."""
    calibrated_bytes = (finished.directory / "calibrated.tflite").read_bytes()
    for entry in cache.glob("[!.]*"):  # Others are being written.
        if (entry / "calibrated.tflite").exists():
            prepared = load_prepared(entry)
            if prepared.calibrated.content == calibrated_bytes:
                [name] = prepared.calibrated.names.inputs
                samples = [{name: window} for [window] in pump.calibration()]
                kit = RepairKit(prepared.calibrated, samples.copy)
                return lambda: Builder(prepared.calibrated, prepared.layers.nodes, kit)
    raise AssertionError("no entry of the cache holds the run's calibrated model")


def test_each_script_gives_the_integer_part_of_its_member(
    finished: autoselect.Run, new_builder: Callable[[], Builder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = new_builder()
    (spec,) = reader.input_specs(fb.parse(pump.MODEL_PATH.read_bytes()))
    samples = [{spec.key: window} for [window] in list(pump.calibration())[:3]]
    for row in finished.front.itertuples():
        script, target = finished.directory / "front" / f"{row.id}.build.py", tmp_path / "out.tflite"
        monkeypatch.setattr(sys, "argv", [str(script), str(target)])
        runpy.run_path(str(script), run_name="__main__")
        recipe = recipe_of(finished, row.id)
        assert hashlib.sha256(builder.build(recipe).content).hexdigest() == row.sha256
        part = replace(recipe, fallback="float", float_nodes=frozenset(), repairs=before_quantizing(recipe.repairs))
        assert difference(builder.build(part).content, target.read_bytes(), samples) == 0.0


def test_the_scripts_are_short_and_import_tensorflow_only(finished: autoselect.Run) -> None:
    for path in finished.directory.glob("front/*.build.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        modules |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert modules == {"pathlib", "sys", "tensorflow", "tensorflow.lite.python.convert"}
        assert len(tree.body) <= 10


@pytest.mark.slow
def test_a_script_that_was_copied_alone_says_what_it_lacks(finished: autoselect.Run, tmp_path: Path) -> None:
    script = next(iter(finished.directory.glob("front/*.build.py")))
    shutil.copytree(script.parent, tmp_path / "front")
    done = subprocess.run(
        [sys.executable, tmp_path / "front" / script.name, tmp_path / "out.tflite"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert str(tmp_path / "calibrated") in done.stderr


def test_the_scripts_say_what_plain_tensorflow_cannot_express(finished: autoselect.Run, tmp_path: Path) -> None:
    told = set()
    without_16_bits = pump.search(tmp_path / "run", trials=6, int16=False)
    for run, row in ((r, row) for r in (finished, without_16_bits) for row in r.front.itertuples()):
        text = ast.get_docstring(ast.parse((run.directory / f"front/{row.id}.build.py").read_text())) or ""
        kinds = [kind for _, kind in ops_without_conversions(run.model_path(row.id).read_bytes())]
        count = kinds.count("hybrid")
        assert (f"{count} of them, float here, are dynamic-range quantized" in text) == bool(count)
        repairs = recipe_of(run, row.id).repairs
        assert ("expresses the whole recipe" in text) == (count == 0 and repairs == before_quantizing(repairs))
        told.add(count > 0)
    assert told == {True, False}


# ----------------------------------------------------------------------------------- litert-quantizer


@pytest.mark.filterwarnings("ignore:.*experimental_preserve_all_tensors:UserWarning")  # what calibrating needs
def test_litert_quantizer_makes_the_same_ops_integer(finished: autoselect.Run) -> None:
    from litert_quantizer import quantizer

    source = str(pump.MODEL_PATH)
    (spec,) = reader.input_specs(fb.parse(pump.MODEL_PATH.read_bytes()))
    samples = {"serving_default": [{spec.key: sample[0]} for sample in pump.calibration()]}
    for member in finished.front["id"]:
        rules = finished.directory / "front" / f"{member}.litert-quantizer.json"
        tool = quantizer.Quantizer(source, str(rules))
        made = tool.quantize(tool.calibrate(samples) if tool.need_calibration else None).quantized_model
        assert made is not None
        assert ops_without_conversions(bytes(made)) == ops_without_conversions(finished.model_path(member).read_bytes())


# -------------------------------------------------------------------------------------- Model Explorer


def tensor_names(path: Path) -> list[set[str]]:
    """Names under which Model Explorer knows each op of a model, by its own adapter."""
    (collection,) = BuiltinTfliteFlatbufferAdapter().convert(str(path), {})["graphCollections"]
    (graph,) = collection.graphs
    assert graph["id"] == "main"
    return [
        {
            attribute["value"]
            for output in node.get("outputsMetadata", [])
            for attribute in output["attrs"]
            if attribute["key"] == "tensor_name"
        }
        for node in graph["nodes"]
    ]


def load_node_data(path: Path) -> ModelNodeData:
    """The file through Model Explorer's own classes, which refuse unknown keys."""
    graphs = {}
    for graph, values in json.loads(path.read_text(encoding="utf-8")).items():
        results = {key: NodeDataResult(**result) for key, result in values["results"].items()}
        gradient = [GradientItem(**item) for item in values.get("gradient", [])]
        graphs[graph] = GraphNodeData(**{**values, "results": results, "gradient": gradient})
    return ModelNodeData(graphsData=graphs)


@pytest.mark.parametrize("column", ["rmse_per_scale", "sqnr_db", "max_abs_error", "range", "left_out_share"])
def test_statistics_are_found_over_the_float_model_and_the_front(finished: autoselect.Run, column: str) -> None:
    data = load_node_data(finished.directory / "model_explorer" / f"{column}.json").graphsData["main"].results
    layers = finished.layer_statistics
    if column in ("rmse_per_scale", "range"):
        wanted = layers.set_index("tensor_name")[column.replace("_per_", "/")].dropna()
        assert {key: data[key].value for key in wanted.index} == pytest.approx(wanted.to_dict())
    for path in (pump.MODEL_PATH, *(finished.model_path(member) for member in finished.front["id"])):
        known = tensor_names(path)
        for name in layers["tensor_name"]:
            assert any(name in names for names in known) == (name in data), f"{name} in {path.name}"


def test_a_picks_choices_are_what_its_model_is(finished: autoselect.Run) -> None:
    words = {"integer": "int8", "hybrid": "DRQ", "float": "float"}
    for pick in finished.picks:
        data = load_node_data(finished.directory / "model_explorer" / f"{pick}.choices.json").graphsData["main"].results
        graph = reader.read_graph(fb.parse(finished.model_path(pick).read_bytes()))
        computing = [op for op in graph.ops if op.op_type not in ("QUANTIZE", "DEQUANTIZE")]
        found = {graph.tensors[op.outputs[0]].name: words[op.kind.value] for op in computing}
        assert {name: data[name].value for name in found} == found
        assert finished.picks[pick] in str(
            load_node_data(finished.directory / "model_explorer" / f"{pick}.choices.json").graphsData["main"].name
        )


def test_model_explorers_server_takes_the_files(finished: autoselect.Run) -> None:
    from model_explorer.config import ModelExplorerConfig

    paths = sorted((finished.directory / "model_explorer").glob("*.json"))
    config = ModelExplorerConfig().add_model_from_path(str(finished.model_path("compact")))
    for path in paths:
        config.add_node_data_from_path(str(path))
    assert config.node_data_sources == [os.path.abspath(path) for path in paths]
    assert len(paths) == 5 + len(finished.picks)
