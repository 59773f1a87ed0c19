"""``autoselect inspect`` on real files."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo
from reviewing import Reviewed
from typer.testing import CliRunner

import autoselect
from autoselect.cli.main import app
from autoselect.domain.recipe import Recipe
from autoselect.embedded import model_path
from autoselect.errors import ModelError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model as float, DRQ, FIQ, and mixed as a pick is; and files that are no models."""
    root, cnn = tmp_path_factory.mktemp("models"), zoo.cnn()
    (root / "float.tflite").write_bytes(cnn.float_model)
    (root / "drq.tflite").write_bytes(cnn.drq())
    (root / "fiq.tflite").write_bytes(cnn.fiq(zoo.random_samples(cnn.float_model)))
    recipe = Recipe(denylisted_ops=frozenset({"ADD", "FULLY_CONNECTED"}))
    (root / "mixed.tflite").write_bytes(cnn.prepared.builder.build(recipe).content)
    (root / "cut.tflite").write_bytes(cnn.float_model[:3000])
    (root / "empty.tflite").touch()
    (root / "text.tflite").write_text("this is no model, it only looks like one")
    return root


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "80")


def invoke(*args: object) -> Any:
    return CliRunner().invoke(app, ["inspect", *map(str, args)], prog_name="autoselect")


def test_an_empty_target_is_not_the_default_one(folder: Path) -> None:
    done = invoke(folder / "mixed.tflite", "--target", "")
    assert (done.exit_code, done.stdout) == (2, "")


def test_where_ops_run_on_a_target(folder: Path) -> None:
    """Of the mixed model: int8 runs on the accelerator, the rest on the host, and the parts of the cost add up."""
    done = invoke(folder / "mixed.tflite", "--target", "ethos-u55-128")
    assert (done.exit_code, done.stderr) == (0, "")
    graph = autoselect.inspect(folder / "mixed.tflite")["subgraphs"][0]
    rows = re.findall(r"^ *(\d+) +([A-Z_0-9]+) +([a-z0-9]+) +(host|accelerator|nowhere) +", done.stdout, re.M)
    assert [name for _, name, _, _ in rows] == [op["op_type"] for op in graph["ops"]]
    assert {precision for _, _, precision, place in rows if place == "accelerator"} == {"int8"}
    assert {precision for _, _, precision, place in rows if place == "host"} == {"conversion", "float"}
    assert {precision for _, _, precision, place in rows if place == "nowhere"} == {"hybrid"}
    assert re.search(r"^verdict +ethos-u55-128 refuses .*FULLY_CONNECTED ", done.stdout, re.MULTILINE)
    penalty, *parts = (
        float(figure.replace(",", ""))
        for figure in re.findall(r"^(?:penalty|  \w+) +([\d,.]+) NPU cycles", done.stdout, re.MULTILINE)
    )
    assert len(parts) == 3
    assert penalty == pytest.approx(sum(parts), abs=2)
    islands = re.findall(r"^ +\d+ +[A-Z].*? +([\d, -]+?) +[\d,]+$", done.stdout.split("Islands on")[1], re.MULTILINE)
    assert islands
    assert re.search(r"taking island \d+ .*: [\d,]+ of [\d,]+ NPU cycles\.", done.stdout)


def test_the_parts_of_the_penalty_add_up_if_pieces_cost(folder: Path, tmp_path: Path) -> None:
    profile = tmp_path / "pieces.toml"
    profile.write_text('extends = "litert-cpu"\nname = "pieces"\n[piece]\nfixed = 9000.0\nddr_per_byte = 0.5\n')
    target = autoselect.inspect(folder / "mixed.tflite", target=str(profile)).target
    assert target["piece_cost"] > 0.0
    parts = sum(target[f"{part}_cost"] for part in ("accelerator", "host", "crossing", "piece"))
    assert target["penalty"] == pytest.approx(parts)
    done = invoke(folder / "mixed.tflite", "--target", profile)
    (told,) = re.findall(r"^  pieces +([\d,.]+) CPU cycles$", done.stdout, re.MULTILINE)
    assert float(told.replace(",", "")) == pytest.approx(target["piece_cost"], rel=1e-3)


def test_a_refused_model_has_a_forecast(folder: Path) -> None:
    """Vela would compile it, but what it makes of it is not what the target stands for."""
    done = invoke(folder / "mixed.tflite", "--target", "ethos-u55-128")
    assert re.search(r"^penalty .*, forecast\. Not compiled: .*refuses.*$", done.stdout, re.MULTILINE)


def test_vela_tells_the_penalty_of_an_ethos_u(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("ethosu")
    found = autoselect.inspect(folder / "fiq.tflite", target="ethos-u55-128")
    assert found.target["forecast"]["uncompiled"] is None
    assert found.target["penalty"] != found.target["forecast"]["penalty"]
    (made,) = autoselect.compile_model(folder / "fiq.tflite", target="ethos-u55-128", output=tmp_path / "npu").models
    assert found.target["forecast"]["host_ops"] == Counter(op["op_type"] for op in made.left)
    done = invoke(folder / "fiq.tflite", "--target", "ethos-u55-128")
    assert re.search(rf"^penalty +{found.target['penalty']:,.0f} NPU cycles, compiled$", done.stdout, re.MULTILINE)


def test_pieces_and_crossings_are_those_that_vela_makes(tmp_path: Path) -> None:
    """A mean over an axis in the middle, which the forecast does not know that Vela leaves to the CPU."""
    pytest.importorskip("ethosu")
    kernels = [zoo.weights(1, 1, 8, 8, seed=i) for i in range(2)]

    def call(x: Any) -> Any:
        import tensorflow as tf

        x = tf.reshape(tf.nn.conv2d(x, kernels[0], 1, "SAME"), [1, 4, 2, 4, 2, 8])
        return tf.nn.conv2d(tf.reshape(tf.reduce_mean(x, [2, 4]), [1, 4, 4, 8]), kernels[1], 1, "SAME")

    (tmp_path / "mean.tflite").write_bytes(zoo.tensorflow_integer(zoo.from_function(call, (1, 8, 8, 8))))
    found = autoselect.inspect(tmp_path / "mean.tflite", target="ethos-u55-128")
    (made,) = autoselect.compile_model(tmp_path / "mean.tflite", target="ethos-u55-128", output=tmp_path).models
    assert made.left_ops > 0
    for told in (found.target, found.fragmentation):
        assert (told["segments"], told["crossing_bytes"]) == (made.partitions, made.crossing_bytes)
    assert found.target["forecast"]["segments"] < found.target["segments"]
    places = [row["place"] for row in found.target["placements"]]
    assert {row["op"] for row in made.left} == {i for i, place in enumerate(places) if place == "host"}


def test_a_model_without_islands_says_so(folder: Path) -> None:
    done = invoke(folder / "fiq.tflite", "--target", "integer-only")
    assert done.stdout.count("Islands on") == 1
    assert "helps most" not in done.stdout


def test_the_summary(folder: Path) -> None:
    done = invoke(folder / "fiq.tflite")
    assert (done.exit_code, done.stderr) == (0, "")
    size = (folder / "fiq.tflite").stat().st_size
    assert re.search(rf"^file +{size}  100.0 %$", done.stdout, re.MULTILINE)
    parts = re.findall(r"^  (?:weights|metadata|unused buffers|rest) +(\d+) ", done.stdout, re.MULTILINE)
    assert sum(map(int, parts)) == size
    assert re.search(r"^CONV_2D +2  2 integer$", done.stdout, re.MULTILINE)
    assert "  input   x0: T0 float32 1x8x8x3" in done.stdout
    assert "\n0 |--------|\n- 8 integer   | 2 conversion\n" in done.stdout
    assert "Tensors of" not in done.stdout
    assert max(map(len, done.stdout.splitlines()[1:])) <= 80


def test_float_islands_stand_out(folder: Path) -> None:
    assert "\n0 FFFFFFFF\n" in invoke(folder / "float.tflite").stdout
    assert "\n0 FFFFFFhF\n" in invoke(folder / "drq.tflite").stdout
    (strip,) = re.findall(r"^ ?0 ([|hF.-]+)$", invoke(folder / "mixed.tflite").stdout, re.MULTILINE)
    assert strip.replace("|", "") == "---F--h-"  # the ops of the CNN, ADD and FULLY_CONNECTED left out of integers
    assert strip.startswith("|-")
    assert strip.endswith("-|")
    assert "|F|" in strip
    assert "|h|" in strip


def test_colours_change_no_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = invoke(folder / "mixed.tflite").stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = invoke(folder / "mixed.tflite").stdout
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == without


def test_a_strip_is_wrapped_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "14")
    assert f"\n 0 {'F' * 10}\n10 {'F' * 10}\n20 FF\n" in invoke(model_path()).stdout


def test_long_tables(folder: Path) -> None:
    done = invoke(folder / "fiq.tflite", "--ops", "--tensors").stdout
    assert re.search(r"^ 2 +DEPTHWISE_CONV_2D +integer +2304 +T10 T6\* T4\* -> T11 +int8 1x4x4x16$", done, re.MULTILINE)
    assert re.search(r"^T6 +int8 +1x3x3x16 +144 +buffer \d+ +\S+, zero 0 \(16 scales, axis 3\)", done, re.MULTILINE)
    assert "Tensors of" not in invoke(folder / "fiq.tflite", "--ops").stdout
    assert "(* a constant)" not in invoke(folder / "fiq.tflite", "--tensors").stdout


def test_json_is_what_the_function_returns(folder: Path) -> None:
    path = str(folder / "mixed.tflite")
    told = json.loads(invoke(path, "--json").stdout)
    assert told == json.loads(json.dumps(autoselect.inspect(path).as_dict()))
    assert told["path"] == path
    assert sum(told["sizes"].values()) == told["size_bytes"] == Path(path).stat().st_size
    assert told["compare"] == []
    assert told["fragmentation"]["float_ops"] == 2


NAMES = ("float", "drq", "fiq", "mixed")


@pytest.mark.parametrize("flag_first", [True, False])
def test_comparison(folder: Path, flag_first: bool) -> None:
    paths = [folder / f"{name}.tflite" for name in NAMES]
    done = invoke("--compare", *paths) if flag_first else invoke(paths[0], "--compare", *paths[1:])
    assert done.exit_code == 0, done.output
    heading, *lines = done.stdout.splitlines()
    assert tuple(heading.split()) == NAMES
    cells = {name: values for name, *values in (line.rsplit(maxsplit=4) for line in lines)}
    assert cells["file bytes"] == [str(path.stat().st_size) for path in paths]
    assert cells["ops CONV_2D"] == ["2"] * 4
    assert cells["float ops"] == ["8", "8", "0", "2"]
    assert cells["kind hybrid"] == ["0", "1", "0", "1"]
    assert cells["integer segments"] == ["0", "0", "1", "3"]
    assert [float(cell) > 0 for cell in cells["penalty"]] == [True, True, False, True]


def test_a_comparison_with_scores(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (sample,) = zoo.random_samples(zoo.cnn().float_model, 1)
    np.savez("unlabelled.npz", **{f"x{i}": np.repeat(value, 8, axis=0) for i, value in enumerate(sample)})
    options = ["--evaluation", "unlabelled.npz", "--metric", "sqnr_db", "--reference", "float.tflite"]
    done = invoke("--compare", "drq.tflite", "fiq.tflite", *options, "--output", "out")
    assert done.exit_code == 0, done.output
    cells = {line[:16].strip(): line.split()[-2:] for line in done.stdout.splitlines()[:-2]}
    alone = autoselect.evaluate("fiq.tflite", evaluation="unlabelled.npz", metric="sqnr_db", reference="float.tflite")
    assert float(cells["sqnr_db"][1]) == pytest.approx(alone["score"], abs=1e-3)
    assert float(cells["sqnr_db"][0]) > float(cells["sqnr_db"][1])
    assert (len(cells["95 % from"]), len(cells["95 % to"])) == (2, 2)
    assert done.stdout.splitlines()[-1].endswith(" out: inspect.json, islands.png, islands.svg")
    assert json.loads(Path("out/inspect.json").read_text())["compare"][0]["score"]["metric"] == "sqnr_db"


def test_one_model_can_be_drawn(folder: Path, tmp_path: Path) -> None:
    done = invoke(folder / "mixed.tflite", "--output", tmp_path / "out", "--json")
    assert json.loads(done.stdout) == json.loads((tmp_path / "out" / "inspect.json").read_text())
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"inspect.json", "islands.png", "islands.svg"}


def test_json_of_a_comparison(folder: Path) -> None:
    paths = [str(folder / f"{name}.tflite") for name in NAMES]
    told = json.loads(invoke("--compare", *paths, "--json").stdout)
    assert [told["path"], *(other["path"] for other in told["compare"])] == paths
    assert told["compare"][1]["ops_by_kind"] == {"integer": 8, "boundary": 2}


def test_the_penalty_is_that_of_evaluate(folder: Path) -> None:
    from autoselect.scoring.fragmentation import fragmentation
    from autoselect.scoring.target_file import read_target
    from autoselect.tflite import flatbuffer, reader

    content = (folder / "mixed.tflite").read_bytes()
    cut = fragmentation(reader.read_graph(flatbuffer.parse(content)), read_target().shares)
    assert autoselect.inspect(content)["fragmentation"]["penalty"] == cut.penalty


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("nowhere.tflite", "There is no model file", id="missing"),
        pytest.param("cut.tflite", "damaged or cut off", id="truncated"),
        pytest.param("empty.tflite", "Expected a TFLite file", id="empty"),
        pytest.param("text.tflite", "Expected a TFLite file", id="no TFLite file"),
        pytest.param(".", "cannot be read", id="a folder"),
    ],
)
@pytest.mark.parametrize("before", [[], ["--compare", "float.tflite"]], ids=["alone", "compared"])
def test_bad_files(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str, before: list[str]) -> None:
    monkeypatch.chdir(folder)
    done = invoke(*before, name)
    assert (done.exit_code, done.stdout) == (ModelError.exit_code, "")
    assert done.stderr.startswith("Error: ")
    assert words in done.stderr
    assert name in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        pytest.param([], id="no model"),
        pytest.param(["float.tflite", "fiq.tflite"], id="several without --compare"),
        pytest.param(["float.tflite", "fiq.tflite", "--compare", "--ops"], id="a long table of several"),
        pytest.param(["float.tflite", "--evaluation", "e.npz"], id="scores without --compare"),
        pytest.param(["float.tflite", "--compare", "--metric", "mse"], id="a metric without --evaluation"),
    ],
)
def test_wrong_options_exit_with_2(folder: Path, monkeypatch: pytest.MonkeyPatch, args: list[str]) -> None:
    monkeypatch.chdir(folder)
    done = invoke(*args)
    assert (done.exit_code, done.stdout) == (2, "")


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # as Keras saves
def test_a_keras_file_is_converted(tmp_path: Path) -> None:
    import keras

    layers = [keras.Input((8,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(3)]
    path = tmp_path / "model.keras"
    keras.Sequential(layers).save(path)
    done = invoke(path)
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, str(path))
    assert "\nFULLY_CONNECTED  2  2 float\n" in done.stdout


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # as Keras saves
def test_the_sizes_that_a_keras_file_leaves_free_are_given(tmp_path: Path) -> None:
    import keras

    path = tmp_path / "model.keras"
    keras.Sequential([keras.Input((None, 4), name="wave"), keras.layers.Conv1D(3, 3)]).save(path)
    assert "--shape wave=1x64x4" in invoke(path).stderr
    done = invoke(path, "--shape", "wave=1x20x4")
    assert done.exit_code == 0
    assert "wave: T0 float32 1x20x4" in done.stdout


def test_shapes_that_do_not_fit_a_file_are_refused(reviewed: Reviewed) -> None:
    done = invoke(model_path(), "--shape", "window=1x128x12")
    assert done.exit_code == 2
    reviewed("shapes that do not fit a file", done.stderr)


def test_the_signature_of_a_savedmodel_is_chosen(tmp_path: Path) -> None:
    import tensorflow as tf

    module = tf.Module()
    spec = tf.TensorSpec([1, 4], tf.float32, name="x")
    calls = {
        "double": tf.function(lambda x: {"y": x + x}, input_signature=[spec]),
        "sine": tf.function(lambda x: {"y": tf.sin(x)}, input_signature=[spec]),
    }
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures=calls)
    assert "double, sine" in " ".join(invoke(tmp_path / "saved").stderr.split())
    done = invoke(tmp_path / "saved", "--signature", "sine")
    assert done.exit_code == 0
    assert "\nSIN  1  1 float\n" in done.stdout


def test_a_signature_that_a_file_does_not_have_is_refused() -> None:
    done = invoke(model_path(), "--signature", "encode")
    assert done.exit_code == 2
    assert "serving_default" in done.stderr
    assert invoke(model_path(), "--signature", "serving_default").exit_code == 0
