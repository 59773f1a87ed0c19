from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import types
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo
from reviewing import Reviewed

from autoselect.api.source import load_source, look
from autoselect.cases.calibrate import load_float
from autoselect.cases.files import CaseFiles
from autoselect.data.representative import representative_samples
from autoselect.errors import ModelError, PreparationError, UsageError
from autoselect.isolation.pool import WorkerPool
from autoselect.sources.converters import converter
from autoselect.sources.converters.kinds import kind_of
from autoselect.sources.converters.live import saved
from autoselect.sources.converters.proof import EQUAL, _apart
from autoselect.sources.tflite_files import FloatModel
from autoselect.sources.wishes import FreeSizes, Wishes, wishes_of
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb

ONNX = bytes([0x08, 8, 0x12, 4, *b"test", 0x3A, 5, *b"graph", 0x42, 2, 0x10, 13])
"""A version, a producer, a graph and an opset, as fields of a message."""
FAKE = Path(__file__).with_name("fake_converter.py")

Load = Callable[..., FloatModel]


def described(**changes: Any) -> dict[str, Any]:
    return {
        "digest": "0" * 64,
        "inputs": [{"name": "image", "sizes": [None, 3, 8, 8], "dtype": "float32"}],
        "outputs": ["scores"],
        "ways": [[], ["-eru"]],
        "versions": {"onnx2tf": "2.6.9"},
        "foreign": [],
        "opset": {"ai.onnx": 17},
        **changes,
    }


class Home:
    """Where the fake converter finds what it answers."""

    def __init__(self, root: Path) -> None:
        self.root, self.truth = root, zoo.cnn().float_model
        root.mkdir()
        graph = fb.parse(self.truth).subgraphs[0]
        ops = [(fb.op_type(fb.parse(self.truth), op), int(op.outputs[0])) for op in graph.operators]
        index = dict(ops)
        nodes = [
            {"name": "/stem/Conv", "op": "Conv", "in": ["image"], "out": ["a"]},
            {"name": "/stem/Relu", "op": "Relu", "in": ["a"], "out": ["b"]},
            {"name": "/body/dw/Conv", "op": "Conv", "in": ["b"], "out": ["c"]},
            {"name": "/body/Add", "op": "Add", "in": ["c"], "out": ["d"]},
            {"name": "/head/Softmax", "op": "Softmax", "in": ["d"], "out": ["scores"]},
        ]
        values = {"b": ops[0][1], "c": index["DEPTHWISE_CONV_2D"], "d": index["ADD"], "scores": index["SOFTMAX"]}
        self.told: dict[str, Any] = {"describe": described(), "nodes": nodes, "values": values}
        (root / "truth.tflite").write_bytes(self.truth)
        self.way(0, self.truth)
        self.python = root / "python"
        self.python.write_text(f'#!/bin/sh\nFAKE_HOME={root} exec {sys.executable} {FAKE} "$@"\n')
        self.python.chmod(0o755)
        self.model = root / "net.bin"
        self.model.write_bytes(ONNX)
        self.tell()

    def tell(self, **changes: Any) -> None:
        self.told |= changes
        (self.root / "told.json").write_text(json.dumps(self.told))

    def way(self, number: int, content: bytes | None) -> None:
        path = self.root / f"way{number}.tflite"
        path.unlink() if content is None else path.write_bytes(content)

    @property
    def asked(self) -> list[str]:
        return [line.strip() for line in (self.root / "asked.txt").read_text().splitlines()]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def load(home: Home, tmp_path: Path, session_workers: WorkerPool) -> Iterator[Load]:
    with session_workers.lent(tmp_path / "worker.log") as pool:

        def call(source: Any = home.model, **given: Any) -> FloatModel:
            wishes = wishes_of(
                given.pop("signature", None), given.pop("shapes", None), given.pop("python", home.python)
            )
            root = given.pop("cache_root", tmp_path / "cache")
            return load_float(source, CaseFiles(root=tmp_path), pool, wishes=wishes, cache_root=root, **given)

        yield call


def first_last(content: bytes) -> bytes:
    """The weights of the classifier, in another order."""
    model = fb.parse(content)
    (op,) = (op for op in model.subgraphs[0].operators if fb.op_type(model, op) == "FULLY_CONNECTED")
    tensor = model.subgraphs[0].tensors[op.inputs[1]]
    tensor.buffer = editing.add_buffer(model, fb.constant_values(model, tensor)[::-1])
    return fb.serialise(model)


def names(content: bytes) -> list[str]:
    model = fb.parse(content)
    return [fb.tensor_name(model.subgraphs[0].tensors[op.outputs[0]]) for op in model.subgraphs[0].operators]


def zipped(*members: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for member in members:
            archive.writestr(member, b"{}")
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        pytest.param(ONNX, "onnx", id="an ONNX model"),
        pytest.param(ONNX[:-1], None, id="one that is cut off"),
        pytest.param(b"\x08\x08", None, id="a message without a graph"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"\xff" * 40, None, id="a number without end"),
        pytest.param(zipped("net/models/model.json"), "torch", id="a program of torch.export"),
        pytest.param(zipped("serialized_exported_program.json"), "torch", id="one of an older version"),
        pytest.param(zipped("metadata.json", "config.json"), None, id="a Keras file"),
        pytest.param(b"\x1c\x00\x00\x00TFL3" + bytes(60), None, id="a .tflite"),
    ],
)
def test_a_source_is_known_by_what_is_in_it(content: bytes, kind: str | None, tmp_path: Path) -> None:
    assert kind_of(content) == kind
    (tmp_path / "model.whatever").write_bytes(content)
    assert kind_of(tmp_path / "model.whatever") == kind


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("net.onnx", r"net\.onnx is not an ONNX model, or it is cut off: it has 10 bytes and begins with b'no"),
        ("net.pt2", r"is not a program of torch\.export.*torch\.export\.save"),
        ("net.pt", r"net\.pt is not a program of torch\.export.*Weights alone or TorchScript"),
    ],
)
def test_what_a_name_promises_and_the_content_is_not_is_told(name: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"not a mode")
    with pytest.raises(ModelError, match=says):
        look(path)
    path.write_bytes(fb.LFS_POINTER + b"/spec/v1")
    with pytest.raises(ModelError, match="Git LFS"):
        look(path)
    path.write_bytes(zoo.cnn().float_model)
    assert look(path)["ops"]


def test_no_file_and_a_folder_are_no_such_source(tmp_path: Path) -> None:
    assert kind_of(tmp_path) is kind_of(tmp_path / "none") is None


def test_a_model_is_converted_proved_and_named_as_its_source_is(reviewed: Reviewed, home: Home, load: Load) -> None:
    found = load(calibration=np.random.default_rng(1).normal(size=(6, 3, 8, 8)).astype(np.float32))
    reviewed("a converted model", found.notes[:2])
    assert found.notes[2].startswith(f"4 of {len(names(found.content))} ops ")
    assert {"/stem/Conv", "/body/dw/Conv", "/body/Add", "scores"} <= set(names(found.content))
    assert home.asked == ["describe", "run", "convert"]
    assert home.model.read_bytes() == ONNX


def test_ops_of_the_converter_alone_are_named_after_one_op_of_the_source(home: Home, load: Load) -> None:
    """However many stand in a row: steps of an unrolled layer would repeat the names of all that follow."""
    told = {key: home.told["values"][key] for key in ("b", "scores")}
    home.tell(values=told)
    kinds = {op.op_type.lower() for op in reader.read_graph(fb.parse(home.truth)).ops}
    added = set(names(load().content)) - {"/stem/Conv", "scores"}
    ends = {name.removeprefix("/stem/Conv/").removeprefix("scores/") for name in added}
    assert len(added) > 3
    assert {re.sub(r"_\d+$", "", end) for end in ends} <= kinds


def test_samples_are_taken_in_both_layouts(load: Load) -> None:
    inputs = reader.read_interface(load().content).inputs
    first = np.random.default_rng(0).normal(size=(5, 3, 8, 8)).astype(np.float32)
    last = first.transpose(0, 2, 3, 1)
    wanted = [sample[np.newaxis] for sample in last]
    forms = [
        first,
        last,
        {"image": first},
        lambda: ([one[np.newaxis]] for one in first),
        lambda: ([one] for one in last),
    ]
    for given in forms:
        found = [sample["image"] for sample in representative_samples(given, inputs)]
        np.testing.assert_array_equal(found, wanted)


def test_without_samples_inputs_are_drawn_which_is_told(load: Load) -> None:
    assert "at random" in load().notes[0]


def test_free_sizes_come_from_samples_in_the_sources_layout(home: Home, load: Load) -> None:
    free = {"name": "image", "sizes": [None, 3, None, None], "dtype": "float32"}
    home.tell(describe=described(inputs=[free]))
    with pytest.raises(FreeSizes, match=r"image=\?x3x\?x\?"):
        load()
    assert "image=1x3x8x8" in load(calibration=np.zeros((4, 3, 8, 8), np.float32)).notes[0]
    assert load(shapes={"image": (1, 3, 8, 8)}).notes


def test_several_inputs_and_outputs_keep_the_sources_names(reviewed: Reviewed, home: Home, load: Load) -> None:
    source = zoo.two_inputs().float_model
    (home.root / "truth.tflite").write_bytes(source)
    home.way(0, source)
    sizes = {"left": 6, "right": 4, "shift": 1}
    order = [spec.shape[1] for spec in reader.read_interface(source).inputs]
    named = sorted(sizes, key=lambda name: order.index(sizes[name]))
    inputs = [{"name": name, "sizes": [1, sizes[name]], "dtype": "float32"} for name in named]
    home.tell(describe=described(inputs=inputs, outputs=["one", "other"]), nodes=[], values={})
    rng = np.random.default_rng(0)
    found = load(calibration={name: rng.normal(size=(5, n)).astype(np.float32) for name, n in sizes.items()})
    reviewed("a converted model of two outputs", found.notes[0])
    assert {spec.key: spec.shape for spec in reader.read_interface(found.content).inputs} == {
        name: (1, n) for name, n in sizes.items()
    }


def test_equal_infinities_differ_in_nothing(home: Home, load: Load) -> None:
    """As the logarithm of a probability that a mask made zero."""
    source = zoo.from_function(lambda x: zoo.tf().math.log(zoo.tf().nn.relu(x)), (1, 6)).float_model
    (home.root / "truth.tflite").write_bytes(source)
    inputs = [{"name": "left", "sizes": [1, 6], "dtype": "float32"}]
    home.tell(describe=described(inputs=inputs, outputs=["one"]), nodes=[], values={})
    values = np.linspace(-2.0, 3.0, 30, dtype=np.float32).reshape(5, 6)
    home.way(0, zoo.from_function(zoo.tf().nn.relu, (1, 6)).float_model)
    with pytest.raises(ModelError, match="SQNR"):
        load(calibration={"left": values})
    home.way(0, source)
    assert "onnx2tf" in load(calibration={"left": values}).notes[0]


def test_an_output_may_have_other_axes_of_one(home: Home, load: Load) -> None:
    """A scalar of ONNX's becomes (1, 1) in LiteRT; before, it was refused as a model that computes something else."""

    def summed(shape: Sequence[int]) -> bytes:
        tf = zoo.tf()
        return zoo.from_function(lambda x: tf.reshape(tf.reduce_sum(tf.square(x)), shape), (1, 6)).float_model

    (home.root / "truth.tflite").write_bytes(summed(()))
    inputs = [{"name": "left", "sizes": [1, 6], "dtype": "float32"}]
    home.tell(describe=described(inputs=inputs, outputs=["one"]), nodes=[], values={})
    home.way(0, summed((1, 1)))
    found = load(calibration={"left": np.linspace(-2.0, 3.0, 30, dtype=np.float32).reshape(5, 6)})
    assert found.notes[0].endswith("at 'one'.")
    assert len(found.notes) == 2


def test_axes_of_one_may_differ_in_outputs_whose_sizes_differ_by_sample() -> None:
    """As of detectors that write as many boxes as they find."""
    rows = [np.ones(count, np.float32) for count in (3, 5)]
    assert _apart([row[None] for row in rows], rows)[0] == EQUAL
    assert _apart([rows[0][None], rows[0][None]], rows)[0] == -np.inf


def test_what_was_converted_is_not_converted_again(home: Home, load: Load) -> None:
    first = load()
    second = load()
    assert (first.content, first.notes) == (second.content, second.notes)
    assert home.asked == ["describe", "run", "convert", "describe"]
    home.tell(describe=described(digest="1" * 64))
    load()
    home.tell(describe=described(versions={"onnx2tf": "2.7.0"}))
    load()
    load(cache_root=None)
    assert home.asked.count("convert") == 4


def test_where_one_way_differs_the_next_is_taken(home: Home, load: Load) -> None:
    home.way(0, first_last(home.truth))
    home.way(1, home.truth)
    assert "onnx2tf -eru." in load().notes[0]
    assert home.asked[-2:] == ["convert", "convert -eru"]


def test_a_model_that_computes_something_else_is_refused_with_the_node(home: Home, load: Load) -> None:
    home.way(0, first_last(home.truth))
    said = r"computes something else than net\.bin: SQNR.*expected at least 40 dB.*part at node '/head/Softmax'.*\.log"
    with pytest.raises(ModelError, match=said):
        load()


@pytest.mark.parametrize(
    ("describe", "says"),
    [
        ({}, r"cannot be converted\. onnx2tf and onnx2tf -eru: NotImplementedError: no such op\. Export it with other"),
        ({"foreign": [["com.me", "Warp", "/neck/Warp"]]}, r"none of ONNX's own: Warp \(com\.me\) at node '/neck/Warp'"),
        ({"opset": {"ai.onnx": 25}}, r"Its opset is 25: export it with opset 21 or lower"),
    ],
    ids=["op without a form", "custom op", "opset too new"],
)
def test_what_cannot_be_converted_is_told_with_the_log(
    home: Home, load: Load, describe: dict[str, Any], says: str
) -> None:
    home.way(0, None)
    home.tell(describe=described(**describe))
    with pytest.raises(ModelError, match=says) as caught:
        load()
    log = Path(str(caught.value).rpartition("log: ")[2])
    assert "--- convert" in log.read_text()


def test_a_cache_that_cannot_be_written_hides_no_reason(home: Home, load: Load, tmp_path: Path) -> None:
    home.way(0, None)
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match=r"NotImplementedError.*log: ") as caught:
        load(cache_root=tmp_path / "file")
    assert "--- convert" in Path(str(caught.value).rpartition("log: ")[2]).read_text()


def test_custom_ops_of_the_converter_are_refused(home: Home, load: Load) -> None:
    model = fb.parse(home.truth)
    code = editing.add_code(model, "SOFTMAX")
    model.operatorCodes[code].builtinCode, model.operatorCodes[code].customCode = 32, b"ONNX_IF"
    model.operatorCodes[code].deprecatedBuiltinCode = 32
    model.subgraphs[0].operators[-1].opcodeIndex = code
    home.way(0, fb.serialise(model))
    with pytest.raises(ModelError, match=r"ONNX_IF at .*custom op"):
        load()


@pytest.mark.parametrize(
    ("told", "error", "says"),
    [
        ({"fails": {"describe": "DecodeError: x"}}, ModelError, r"net\.bin cannot be read: DecodeError: x\. Export"),
        ({"fails": {"run": "Fail: no kernel"}}, ModelError, r"net\.bin cannot run: Fail: no kernel\."),
        ({"dies": "run"}, ModelError, r"ended with exit status -?\d+: Segmentation fault"),
    ],
    ids=["damaged file", "runtime refuses", "process dies"],
)
def test_errors_of_the_converter_are_told(
    home: Home, load: Load, told: dict[str, Any], error: type[Exception], says: str
) -> None:
    home.tell(**told)
    with pytest.raises(error, match=says):
        load()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def ended(pid: int) -> bool:
    for _ in range(100):
        if not is_running(pid):
            return True
        time.sleep(0.1)
    return False


def test_a_converter_that_hangs_is_ended(home: Home, load: Load) -> None:
    home.tell(hangs="convert")
    with pytest.raises(PreparationError, match=r"5 s \(onnx2tf\).*--trial-timeout"):
        load(timeout_seconds=5.0)
    assert ended(int((home.root / "pid").read_text()))


def test_ctrl_c_ends_the_converter(home: Home, tmp_path: Path) -> None:
    home.tell(hangs="describe")
    arguments = f"{str(home.model)!r}, converter_python={str(home.python)!r}"
    # A shell's background jobs begin with SIGINT ignored.
    code = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from autoselect.api.source import look
look({arguments})
"""
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as process:
        pid = home.root / "pid"
        for _ in range(600):
            if pid.exists() and pid.read_text():
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
    assert process.returncode != 0
    assert ended(int(pid.read_text()))


def test_no_such_python_and_no_converter_in_it_are_told(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"--converter-python .*/no/such/python"):
        load(python="/no/such/python")
    monkeypatch.setenv(converter.VARIABLE, "/none/at/all")
    with pytest.raises(UsageError, match="/none/at/all"):
        load(python=None)


def test_a_python_without_the_converter_names_the_command(load: Load) -> None:
    bare = Path(sys.base_prefix) / "bin" / "python3"
    with pytest.raises(UsageError, match="install onnx2tf"):
        load(python=str(bare))


def test_signatures_are_of_other_sources(load: Load) -> None:
    with pytest.raises(UsageError, match="--signature: only SavedModels"):
        load(signature="serve")


def test_a_live_onnx_model_is_its_bytes() -> None:
    class ModelProto:
        __module__ = "onnx.onnx_ml_pb2"

        def SerializeToString(self) -> bytes:  # noqa: N802
            return ONNX

    assert load_source(ModelProto()).model == ONNX


def a_module(
    monkeypatch: pytest.MonkeyPatch, copied: Exception | None = None, exported: Exception | None = None
) -> Any:
    """A module of a PyTorch that can do no more than this."""

    class Module:
        __module__ = "torch.nn"

        def forward(self, x: Any) -> Any: ...

        def cpu(self) -> Module:
            if copied:
                raise copied
            return self

        def eval(self) -> Module:
            return self

    def export(*_: Any) -> Any:
        raise exported or AssertionError

    torch = types.SimpleNamespace(export=types.SimpleNamespace(export=export), from_numpy=lambda value: value)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return Module()


def test_a_module_without_weights_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    module = a_module(monkeypatch, copied=NotImplementedError("Cannot copy out of meta tensor; no data!"))
    with pytest.raises(ModelError, match=r"module .*meta tensor.*to_empty"):
        load_source(module, wishes_of(None, {"x": (1, 3)}, None))


@pytest.mark.parametrize("has_mask", [True, False], ids=["optional argument", "two arguments"])
def test_a_module_is_exported_by_a_list_of_one_array_per_argument(
    monkeypatch: pytest.MonkeyPatch, has_mask: bool
) -> None:
    module = a_module(monkeypatch)

    def two(self: Any, a: Any, b: Any) -> Any: ...

    def masked(self: Any, a: Any, b: Any, mask: Any = None, **others: Any) -> Any: ...

    monkeypatch.setattr(type(module), "forward", masked if has_mask else two)
    given: list[Any] = []
    monkeypatch.setattr(sys.modules["torch"].export, "export", lambda _, values: given.extend(values))
    monkeypatch.setattr(sys.modules["torch"].export, "save", lambda program, file: None, raising=False)
    saved(module, Wishes(), [np.zeros((5, 3)), np.zeros((5, 2))])
    assert [value.shape for value in given] == [(1, 3), (1, 2)]


def test_a_module_that_cannot_be_exported_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    module = a_module(monkeypatch, exported=RuntimeError("Not guarded."))
    with pytest.raises(ModelError, match=r"^torch\.export .*: Not guarded"):
        load_source(module, wishes_of(None, {"x": (1, 3)}, None))


def test_a_file_that_this_user_may_not_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret.tflite").write_bytes(b"model")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelError, match=r"secret\.tflite .*Permission denied\.$"):
        kind_of(tmp_path / "secret.tflite")
