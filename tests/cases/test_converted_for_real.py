"""Real converters, in the environments whose Pythons ``AUTOSELECT_CONVERTER_PYTHON`` lists, with colons between."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoselect.cases.calibrate import load_float
from autoselect.cases.files import CaseFiles
from autoselect.errors import ModelError
from autoselect.isolation.pool import WorkerPool
from autoselect.sources.converters import converter
from autoselect.sources.tflite_files import FloatModel
from autoselect.sources.wishes import wishes_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Runner

Load = Callable[..., FloatModel]

ONNX_NETS = """
import sys, numpy as np, onnx
from onnx import TensorProto as T, helper as h, numpy_helper as n
out = sys.argv[1]
rng = np.random.default_rng(0)
w = lambda name, *shape: n.from_array((rng.normal(size=shape) / shape[-1]).astype(np.float32), name)
def save(name, nodes, inputs, outputs, weights, opset=17, more=(), **how):
    graph = h.make_graph(nodes, name, [h.make_tensor_value_info(*one) for one in inputs],
                         [h.make_tensor_value_info(o, T.FLOAT, None) for o in outputs], weights)
    opsets = [h.make_opsetid("", opset), *(h.make_opsetid(one, 1) for one in more)]
    onnx.save(h.make_model(graph, opset_imports=opsets, ir_version=10), f"{out}/{name}.onnx", **how)
conv = [
    h.make_node("Conv", ["image", "w0"], ["c0"], "/stem/Conv", pads=[1] * 4, strides=[2, 2]),
    h.make_node("Relu", ["c0"], ["r0"], "/stem/Relu"),
    h.make_node("Conv", ["r0", "w1"], ["c1"], "/body/Conv"),
    h.make_node("GlobalAveragePool", ["c1"], ["p"], "/head/Pool"),
    h.make_node("Flatten", ["p"], ["f"], "/head/Flatten"),
    h.make_node("Gemm", ["f", "w2"], ["scores"], "/head/Gemm"),
]
image = ("image", T.FLOAT, ["n", 3, "h", "w"])
weights = lambda: [w("w0", 8, 3, 3, 3), w("w1", 16, 8, 1, 1), w("w2", 16, 5)]
save("free", conv, [image], ["scores"], weights())
save("beside", conv, [image], ["scores"], weights(), save_as_external_data=True, location="w.bin", size_threshold=0)
save("new", conv, [image], ["scores"], weights(), opset=99)
warp = h.make_node("Warp", ["c1"], ["scores"], "/neck/Warp", domain="com.me")
save("custom", [*conv[:3], warp], [image], ["scores"], weights()[:2], more=["com.me"])
save("two", [h.make_node("MatMul", ["a", "w"], ["m"], "/left/MatMul"), h.make_node("Add", ["m", "b"], ["y"], "/Add")],
     [("a", T.FLOAT, [1, 6]), ("b", T.FLOAT, [1, 4])], ["y"], [w("w", 6, 4)])
constant = h.make_node("Constant", [], ["k"], "/Constant", value=w("k", 6, 4))
save("held", [constant, h.make_node("MatMul", ["a", "k"], ["y"], "/MatMul")], [("a", T.FLOAT, [1, 6])], ["y"], [],
     save_as_external_data=True, location="k.bin", size_threshold=0, convert_attribute=True)
"""

TORCH_NET = """
import sys, torch
torch.manual_seed(0)
net = torch.nn.Sequential()
net.add_module("stem", torch.nn.Conv2d(3, 8, 3, 2, 1))
net.add_module("norm", torch.nn.BatchNorm2d(8))
net.add_module("act", torch.nn.ReLU())
net.add_module("pool", torch.nn.AdaptiveAvgPool2d(1))
net.add_module("flat", torch.nn.Flatten())
net.add_module("head", torch.nn.Linear(8, 5))
program = torch.export.export(net.eval(), (torch.zeros(1, 3, 16, 16),))
torch.export.save(program, f"{sys.argv[1]}/net.pt2")
class Named(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = torch.nn.Linear(6, 5), torch.nn.Linear(6, 5)
    def forward(self, p, q, more=None):
        return torch.relu(self.left(p)) - self.right(q[0])
rows = torch.export.Dim("rows", min=1, max=64)
p, q = torch.randn(2, 6), torch.randn(2, 6)
free = {"q": [{0: rows}], "p": {0: rows}}
named = torch.export.export(Named().eval(), (), {"q": [q], "p": p}, dynamic_shapes=free)
torch.export.save(named, f"{sys.argv[1]}/named.pt2")
"""


def python_with(package: str) -> str:
    """A Python of an environment that has the package; skips where there is none."""
    for python in filter(None, os.environ.get(converter.VARIABLE, "").split(":")):
        probe = f"import importlib.util as u, sys; sys.exit(u.find_spec({package!r}) is None)"
        if subprocess.run([python, "-c", probe], check=False).returncode == 0:
            return python
    pytest.skip(f"{converter.VARIABLE} names no Python that has {package}")


@pytest.fixture(scope="module")
def onnx_nets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx")
    subprocess.run([python_with("onnx2tf"), "-c", ONNX_NETS, str(folder)], check=True)
    return folder


@pytest.fixture
def load(tmp_path: Path, session_workers: WorkerPool) -> Iterator[Load]:
    with session_workers.lent(tmp_path / "worker.log") as pool:

        def call(path: Path, package: str, **given: Any) -> FloatModel:
            wishes = wishes_of(None, given.pop("shapes", None), python_with(package))
            return load_float(path, CaseFiles(root=tmp_path), pool, wishes=wishes, cache_root=None, **given)

        yield call


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def names(content: bytes) -> set[str]:
    model = fb.parse(content)
    return {fb.tensor_name(model.subgraphs[0].tensors[op.outputs[0]]) for op in model.subgraphs[0].operators}


def decibels(found: FloatModel) -> float:
    told = found.notes[0] if found.notes[0].startswith("Converted") else found.notes[1]
    if "equal bit for bit" in told:
        return float("inf")
    return float(told.partition("samples: ")[2].split()[0])


@pytest.mark.parametrize("name", ["free", "beside"])
def test_an_onnx_model_is_converted_and_only_read(name: str, onnx_nets: Path, load: Load) -> None:
    before = digests(onnx_nets)
    samples = np.random.default_rng(0).normal(size=(6, 3, 16, 24)).astype(np.float32)
    found = load(onnx_nets / f"{name}.onnx", "onnx2tf", calibration=samples)
    assert decibels(found) > 80
    assert {"/stem/Conv", "/body/Conv", "scores"} <= names(found.content)
    (spec,) = reader.read_interface(found.content).inputs
    assert (spec.shape, spec.other_shape) == ((1, 16, 24, 3), (1, 3, 16, 24))
    assert "TRANSPOSE" not in {op.op_type for op in reader.read_graph(fb.parse(found.content)).ops}
    assert digests(onnx_nets) == before


def test_weights_beside_the_model_that_changed_are_converted_once_more(
    onnx_nets: Path, tmp_path: Path, session_workers: WorkerPool
) -> None:
    """Those of a node's attribute are in a file of their own, too."""
    for name in ("held.onnx", "k.bin"):
        shutil.copy(onnx_nets / name, tmp_path)
    found = []
    for number in range(2):
        (tmp_path / "k.bin").write_bytes(np.full((6, 4), number + 1.0, np.float32).tobytes())
        files = CaseFiles(root=tmp_path / str(number))
        with session_workers.lent(tmp_path / "worker.log") as pool:
            wishes = wishes_of(None, None, python_with("onnx2tf"))
            found.append(load_float(tmp_path / "held.onnx", files, pool, wishes=wishes, cache_root=tmp_path / "cache"))
    outputs = [Runner(model.content)(np.ones((1, 6), np.float32)) for model in found]
    assert [float(next(iter(values.values())).flat[0]) for values in outputs] == [6.0, 12.0]


def test_a_model_of_two_inputs_keeps_their_names(onnx_nets: Path, load: Load) -> None:
    found = load(onnx_nets / "two.onnx", "onnx2tf")
    assert decibels(found) > 80
    assert {spec.key: spec.shape for spec in reader.read_interface(found.content).inputs} == {"a": (1, 6), "b": (1, 4)}


@pytest.mark.parametrize(
    ("name", "says"),
    [("custom", r"none of ONNX's own: Warp \(com\.me\) at node '/neck/Warp'"), ("new", "Its opset is 99: export it")],
)
def test_what_onnx_runtime_does_not_run_is_told(name: str, says: str, onnx_nets: Path, load: Load) -> None:
    with pytest.raises(ModelError, match=says):
        load(onnx_nets / f"{name}.onnx", "onnx2tf", shapes={"image": (1, 3, 16, 16)})


def test_a_program_of_torch_is_converted(tmp_path: Path, load: Load) -> None:
    subprocess.run([python_with("litert_torch"), "-c", TORCH_NET, str(tmp_path)], check=True)
    samples = np.random.default_rng(0).normal(size=(6, 3, 16, 16)).astype(np.float32)
    found = load(tmp_path / "net.pt2", "litert_torch", calibration=samples)
    assert decibels(found) > 80
    assert "stem" in names(found.content)
    (spec,) = reader.read_interface(found.content).inputs
    assert (spec.shape, spec.other_shape) == ((1, 16, 16, 3), (1, 3, 16, 16))


def test_a_program_of_torch_may_take_its_tensors_by_name_in_lists_and_in_any_number(tmp_path: Path, load: Load) -> None:
    subprocess.run([python_with("litert_torch"), "-c", TORCH_NET, str(tmp_path)], check=True)
    found = load(tmp_path / "named.pt2", "litert_torch")
    assert decibels(found) > 80
    assert sorted(spec.shape for spec in reader.read_interface(found.content).inputs) == [(1, 6), (1, 6)]
