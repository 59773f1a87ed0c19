"""LiteRT's compiler plugin: a fake program that plays every failure, and the real one where its libraries are there."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import zoo
from reviewing import Reviewed

from autoselect.cases.compiling import Compiling
from autoselect.cases.compiling import partition as kept_partition
from autoselect.compilers.compiler import ChipCompiler, Partition
from autoselect.compilers.libraries import NEEDED
from autoselect.compilers.litert_plugin import DISPATCH_OP, PluginCompiler
from autoselect.domain.recipe import Recipe
from autoselect.domain.targets import LitertPlugin, Target
from autoselect.errors import CompilerRefusal, JobFailed, ModelError, UsageError, WorkerDied
from autoselect.scoring.target_file import read_target
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

PHONE = read_target("qualcomm-sm8750")
ROOT = Path(__file__).resolve().parents[2]
REASON = "its log gives no reason"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="LiteRT has its plugins for Linux")


# ------------------------------------------------------------------------------------------------- a fake program

FAKE = '''
"""Plays apply_plugin_main as plan.json beside it says, and notes how it was called."""

import copy, hashlib, json, os, pathlib, signal, sys, time

here = pathlib.Path(__file__).parent
given = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
content = pathlib.Path(given["model"]).read_bytes()
plan = json.loads((here / "plan.json").read_text())[given["cmd"]]
noted = {**given, "libraries": os.environ.get("LD_LIBRARY_PATH"), "digest": hashlib.sha256(content).hexdigest()}
with (here / "calls.jsonl").open("a") as file:
    file.write(json.dumps(noted) + "\\n")
sys.stdout.buffer.write(plan.get("out", "").encode("latin1"))
sys.stdout.buffer.flush()
sys.stderr.buffer.write(plan.get("err", "").encode("latin1"))
sys.stderr.buffer.flush()
time.sleep(plan.get("sleeps", 0.0))
if plan.get("dies"):
    os.kill(os.getpid(), plan["dies"])

def cut(taken):
    """The model with a custom op in place of each run of taken ops, and with a subgraph for each run."""
    sys.path.insert(0, ROOT)
    import numpy as np
    from autoselect.tflite import editing, flatbuffer as fb

    model = fb.parse(content)
    main = model.subgraphs[0]
    runs, ops = [], []
    code = copy.copy(model.operatorCodes[0])
    code.builtinCode, code.customCode, code.deprecatedBuiltinCode = 32, b"DISPATCH_OP", 32
    model.operatorCodes.append(code)
    for index, op in enumerate(main.operators):
        if index not in taken:
            ops.append(op)
        elif runs and runs[-1][-1] == index - 1 and index not in plan.get("cuts", []):
            runs[-1].append(index)
        else:
            runs.append([index])
            ops.append(runs[-1])
    for place, run in enumerate(ops):
        if not isinstance(run, list):
            continue
        inside = [main.operators[i] for i in run]
        made = {int(t) for op in inside for t in op.outputs}
        read = {int(t) for op in inside for t in op.inputs if t >= 0}
        others = [op for i, op in enumerate(main.operators) if i not in run]
        wanted = {int(t) for op in others for t in op.inputs} | {int(t) for t in main.outputs}
        part = copy.deepcopy(main)
        part.operators = [part.operators[i] for i in run]
        part.inputs = np.array(sorted(t for t in read - made if main.tensors[t].buffer == 0), np.int32)
        part.outputs = np.array(sorted(made & wanted), np.int32)
        model.subgraphs.append(part)
        ops[place] = copy.copy(inside[0])
        ops[place].opcodeIndex, ops[place].builtinOptions = len(model.operatorCodes) - 1, None
        ops[place].builtinOptionsType = 0
        ops[place].inputs, ops[place].outputs = part.inputs, part.outputs
    main.operators = ops
    return fb.serialise(model)

written = {"nothing": lambda: None, "garbage": lambda: b"\\x00" * 64, "half": lambda: cut(plan["taken"])[:400]}
made = written.get(plan.get("writes"), lambda: cut(plan.get("taken", [])))()
if made is not None:
    pathlib.Path(given["o"]).write_bytes(made)
sys.exit(plan.get("code", 0))
'''.replace("ROOT", repr(str(ROOT)))


@dataclass(frozen=True)
class Fake:
    """A fake program in a folder of its own, and a target whose libraries are empty files there."""

    folder: Path

    def plans(self, partition: Mapping[str, Any], apply: Mapping[str, Any] | None = None) -> PluginCompiler:
        self.target  # noqa: B018 - the folder is filled
        (self.folder / "fake.py").write_text(FAKE, encoding="utf-8")
        (self.folder / "plan.json").write_text(json.dumps({"partition": partition, "apply": apply}))
        return PluginCompiler(self.target, program=[sys.executable, str(self.folder / "fake.py")])

    @functools.cached_property
    def target(self) -> Target:
        libraries = self.folder / "libraries"
        libraries.mkdir()
        for name in NEEDED["Qualcomm"]:
            (libraries / name).touch()
        plugin = LitertPlugin(manufacturer="Qualcomm", soc_model="SM8750", libraries=str(libraries))
        return replace(PHONE, compiler=plugin)

    @property
    def calls(self) -> list[dict[str, Any]]:
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


@functools.cache
def content() -> bytes:
    """Eight ops in integers, with conversions at both ends."""
    return zoo.cnn().prepared.builder.build(Recipe()).content


def op_types(model: bytes) -> list[str]:
    return [op.op_type for op in reader.read_graph(fb.parse(model)).ops]


def asked(compiler: ChipCompiler, model: bytes | None = None, timeout_seconds: float = 60.0) -> Partition:
    return compiler.partition(content() if model is None else model, timeout_seconds=timeout_seconds)


TAKEN = {
    "all": (range(20), "all"),
    "none": ((), "none"),
    "two runs": ((0, 1, 2, 5, 6), ((0, 1, 2), (5, 6))),
    "each other one": ((1, 3, 5), ((1,), (3,), (5,))),
}


@pytest.mark.parametrize(("taken", "pieces"), TAKEN.values(), ids=TAKEN)
def test_what_is_in_no_piece_is_left(reviewed: Reviewed, fake: Fake, taken: Sequence[int], pieces: Any) -> None:
    count = len(op_types(content()))
    pieces = {"all": (tuple(range(count)),), "none": ()}.get(pieces, pieces)
    found = asked(fake.plans({"taken": [i for i in taken if i < count]}))
    assert found.pieces == pieces
    assert set(found.left) == set(range(count)) - {i for piece in pieces for i in piece}
    assert all(REASON in why for why in found.left.values())
    if found.left:
        reviewed("Qualcomm's compiler leaves an op", sorted(set(found.left.values())))


def test_the_program_is_told_the_model_the_chip_and_where_to_write(fake: Fake) -> None:
    asked(fake.plans({"taken": [0]}))
    (call,) = fake.calls
    assert (call["cmd"], call["soc_manufacturer"], call["soc_model"], call["err"]) == (
        *("partition", "Qualcomm", "SM8750"),
        "--",
    )
    assert Path(call["libs"]).parts[-3:] == ("vendors", "qualcomm", "compiler")
    assert Path(call["model"]).parent == Path(call["o"]).parent
    assert not Path(call["o"]).parent.exists()


def test_a_plugin_is_called_by_the_name_that_it_gives_itself(fake: Fake) -> None:
    compiler = fake.plans({"taken": [0]})
    intel = LitertPlugin(manufacturer="Intel", soc_model="PTL", libraries=str(fake.folder / "libraries"))
    asked(PluginCompiler(replace(compiler._target, compiler=intel), program=compiler._program))
    (call,) = fake.calls
    assert (call["soc_manufacturer"], Path(call["libs"]).parent.name) == ("IntelOpenVINO", "intel_openvino")


def test_only_the_program_is_told_where_the_libraries_are(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/before")
    environment = dict(os.environ)
    asked(fake.plans({"taken": [0]}))
    (call,) = fake.calls
    first, *_, last = call["libraries"].split(":")
    assert (first, last) == (str(fake.folder / "libraries"), "/before")
    assert dict(os.environ) == environment


# Some lines of the real program, which writes to one pipe, and of the vendor's library, which writes to the other:
# pieces of its long messages are cut off where the next one begins.
SAID_BY_LITERT = """
ERROR: [qnn_manager.cc:480]\x20
QNN op validation failed: 'DepthWiseConv2d_3' (type=DepthWiseConv2d)
  Inputs:
    [0] name="0_litert_91" dtype=QNN_DATATYPE_SFIXED_POINT_16 dims=[1,7,7,256] per-tensor-quant
  QNN error=3110. See the QNN validator log lines above for the specific reason.
ERROR: [qnn_compiler_plugin.cc:538]\x20
LiteRT Op #2 'DepthwiseConv2d' (code=4) is not supported in Qualcomm Compiler.
  Outputs:
    [0] name="op 2"  tensor_idx=94
WARNING: [Qnn] Convert bias tensor in conv2d op from int64 to int32.
ERROR: [qnn_manager.cc:480]\x20
QNN op validation failed: 'ElementWiseNeuron_6' (type=ElementWiseNeuron, operation=ReluMinMax)
ERROR: [qnn_compiler_plugin.cc:538]\x20
LiteRT Op #3 'Conv2d' (code=3) is not supported in Qualcomm Compiler.
ERROR: [qnn_compiler_plugin.cc:538]\x20
LiteRT Op #4 'CumSum' (code=128) is not supported in Qualcomm Compiler.
"""
SAID_BY_VENDOR = """
5295000.0ms [  INFO ]  validate OpConfig with Adapter     0.0ms [  INFO ]   <I> QnnBackend_validateOpConfig started
     0.0ms [ ERROR ]   <E> unexpected GraphHtpSettings option 66
     0.0ms [ ERROR ]   <E> QnnBackend_validateOpConfig failed 3110
     0.0ms [ ERROR ]   <E> Failed to validate op ElementWiseNeuron_2 with error 0xc26
     0.0ms [ ERROR ]   <E> Unsupported input/output datatypes of 'DepthWiseConv2d' in the node 'DepthWiseConv2d_3'. Mix.
     0.0ms [ ERROR ]   <E> Requested I/O datatype set:
   in[0]:QNN_DATATYPE_UFIXED_POI     0.0ms [ ERROR ]   <E> Supported I/O datatype sets for the configuration: INT8
     0.0ms [ ERROR ]   <E> QnnBackend_validateOpConfig failed 3110
     0.0ms [ ERROR ]   <E> Failed to validate op DepthWiseConv2d_3 with error 0xc26
     0.0ms [ ERROR ]   <E> QnnBackend_validateOpConfig failed 3110
     0.0ms [ ERROR ]   <E> Failed to validate op ElementWiseNeuron_6 with error 0xc26
"""


def test_reasons_are_taken_from_both_logs(reviewed: Reviewed, fake: Fake) -> None:
    found = asked(fake.plans({"taken": [0, 1, 6], "err": SAID_BY_LITERT, "out": SAID_BY_VENDOR}))
    reviewed("reasons of both logs", [f"{i}: {found.left[i]}" for i in range(2, 5)])
    assert REASON in found.left[5]


def test_a_reason_does_not_begin_with_the_number_of_a_value_that_has_none(fake: Fake) -> None:
    err = "QNN op validation failed: 'A' (type=A)\nLiteRT Op #2 'B' (code=1) is not supported\n"
    words = "has incorrect Rank 6"
    out = f"0.0ms <E> [4294967295] {words}.\n0.0ms <E> Failed to validate op A with error 0xc26\n"
    assert asked(fake.plans({"taken": [0, 1], "err": err, "out": out})).left[2] == words


def test_an_op_that_is_in_a_piece_is_taken_whatever_the_log_says(fake: Fake) -> None:
    found = asked(fake.plans({"taken": list(range(20)), "err": SAID_BY_LITERT}))
    assert found.left == {}


GARBAGE = {
    "bytes that are no text": "\xff\xfe\x00\x80" * 40 + "\n<E> \xff",
    "numbers of ops that are not there": "LiteRT Op #999999999999999999999 'X' (code=1) is not supported\n",
    "cut in the middle": SAID_BY_LITERT[: len(SAID_BY_LITERT) // 2],
    "one long line": "<E> " + "x" * 300_000,
    "a reason without an end": "<E> " + "why " * 5000 + "\n<E> Failed to validate op A with error 1\n",
}


@pytest.mark.parametrize("said", GARBAGE.values(), ids=GARBAGE)
def test_garbage_in_the_logs_changes_nothing_but_reasons(fake: Fake, said: str) -> None:
    err = f"{said}\nQNN op validation failed: 'A' (type=A)\nLiteRT Op #2 'B' (code=1) is not supported\n"
    found = asked(fake.plans({"taken": [0, 1], "err": err, "out": said}))
    assert found.pieces == ((0, 1),)
    assert set(found.left) == set(range(2, len(op_types(content()))))
    assert all(0 < len(why) <= 200 and "\n" not in why for why in found.left.values())


LOAD = "[LITERT_TOOLS:PARTITION] Failed to load model from file.[LITERT_TOOLS:PARTITION] \tFailed\n"
FAILURES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a crash": ({"dies": 11}, WorkerDied, r"Qualcomm's compiler died of SIGSEGV while it compiled\."),
    "killed": ({"dies": 9}, WorkerDied, r"died of SIGKILL"),
    "a hang": ({"sleeps": 60.0}, WorkerDied, r"took longer than 1\.5 s for qualcomm-sm8750 \(--trial-timeout\)"),
    "no libraries": (
        {"code": 6, "err": "ERROR: [qnn_manager.cc:180] Could not load shared library libQnnHtp.so\n"},
        UsageError,
        r"could not load its plugin .* Could not load shared library libQnnHtp\.so\. Use a complete SDK",
    ),
    "a library that a plugin needs": (
        {
            "code": 6,
            "err": "WARNING: [p.cc:312] Failed to load plugin at: /a/libX.so with error: ERROR: [p.cc:259]\n"
            "+ Could not load shared library /a/libX.so: libY.so.1: cannot open shared object file.\n",
        },
        UsageError,
        r"Could not load shared library libX\.so: libY\.so\.1: cannot open shared object file\. Use",
    ),
    "no plugin": ({"code": 6, "err": "[LITERT_TOOLS:PARTITION] Loaded 0 plugins\n"}, UsageError, r"could not load"),
    "the code of no libraries for another reason": (
        {"code": 6, "err": "ERROR: [x.cc:1] out of arenas\n"},
        JobFailed,
        "6",
    ),
    "an LSTM with a state": (
        {"code": 5, "err": f"ERROR: [model_load.cc:316] Variable tensors not yet supported.\n{LOAD}"},
        CompilerRefusal,
        r"^Qualcomm's compiler refuses the model for qualcomm-sm8750: Variable tensors not yet supported\. A fused",
    ),
    "a state in variables": (
        {"code": 5, "err": f"ERROR: [common.cc:9] QNN Unsupported data type, litert type: 14\n{LOAD}"},
        CompilerRefusal,
        r"QNN Unsupported data type\. The vendor",
    ),
    "the code of a refusal for another reason": ({"code": 5, "err": LOAD}, JobFailed, r"exit code 5"),
    "the words of a refusal with another code": (
        {"code": 1, "err": "Variable tensors not yet supported.\n"},
        JobFailed,
        "1",
    ),
    "an unknown chip": (
        {"code": 1, "err": "ERROR: [qnn_compiler_plugin.cc:101] Unexpected SoC model: SM8750\n"},
        UsageError,
        r"knows no chip 'SM8750'\. Change soc_model in the profile\.",
    ),
    "no library of an SDK": (
        {
            "code": 3,
            "err": "ERROR: [x.cc:7] Failed to load Tensor TPU compiler library: Failed to load Tensor TPU compiler "
            "library: libX.so: cannot open shared object file\n",
        },
        UsageError,
        r"the Tensor TPU compiler library\. .*SDK of Qualcomm.*\(libraries in \[compiler\]\)\.$",
    ),
    "an error with words": (
        {
            "code": 1,
            "err": "INFO: fine\nERROR: [a.cc:1] \nERROR: [b.cc:2] No space left\nERROR: [c.cc:3] Failed\nINFO: bye\n",
        },
        JobFailed,
        r"exit code 1 and no result: No space left\.$",
    ),
    "an error of the vendor's": (
        {"code": 1, "out": "  0.0ms [ ERROR ]   <E> No memory for graph 1\n", "err": "ERROR: [c.cc:3] Failed\n"},
        JobFailed,
        r"exit code 1 and no result: No memory for graph 1\.$",
    ),
    "an op that passes validation and cannot be made": (
        {
            "code": 6,
            "out": "  0.0ms [ ERROR ]   <E> [4294967295] has incorrect Rank 6.\n"
            "  0.0ms [ ERROR ]   <E> QnnBackend_validateOpConfig failed 3110\n"
            "  0.0ms [ ERROR ]   <E> Failed to validate op Exp_12 with error 0xc26\n"
            "  0.0ms [ ERROR ]   <E> unexpected GraphHtpSettings option 66\n"
            "  0.0ms [ ERROR ]  migration.cc:2207::ERROR:no properties registered for q::QNN_Elu\n"
            "  0.0ms [ ERROR ]  graph.cc:211::ERROR:could not create op: q::QNN_Elu\n"
            "  0.0ms [ ERROR ]   <E> prepare failed 12\n",
        },
        JobFailed,
        r"exit code 6 and no result: could not create op: q::QNN_Elu\.$",
    ),
    "an error of which nothing follows": (
        {"code": 1, "out": "  0.0ms [ ERROR ]   <E> unexpected GraphHtpSettings option 66\n"},
        JobFailed,
        r"no result: unexpected GraphHtpSettings option 66\.$",
    ),
    "an error without words": ({"code": 245}, JobFailed, r"exit code 245 and no result: it said nothing\.$"),
    "no file": ({"writes": "nothing"}, JobFailed, r"exit code 0 and no result"),
    "a code and a file": ({"code": 1, "taken": [0]}, JobFailed, r"exit code 1"),
    "garbage in the file": ({"writes": "garbage"}, JobFailed, "wrote a file that is no model"),
    "half a file": ({"writes": "half", "taken": [0, 1]}, JobFailed, "wrote a file that is no model"),
}


@pytest.mark.parametrize("asks", ["partition", "compile"])
@pytest.mark.parametrize(("plan", "error", "words"), FAILURES.values(), ids=FAILURES)
def test_each_failure_is_told_apart(
    fake: Fake, plan: dict[str, Any], error: type[Exception], words: str, asks: str
) -> None:
    good = {"taken": [0, 1]}
    compiler = fake.plans(*((plan,) if asks == "partition" else (good, plan)))
    with pytest.raises(error, match=words) as caught:
        getattr(compiler, asks)(content(), timeout_seconds=1.5 if "sleeps" in plan else 60.0)
    assert caught.type is error
    assert [call["cmd"] for call in fake.calls] == (["partition"] if asks == "partition" else ["partition", "apply"])
    assert not any(Path(call["o"]).parent.exists() for call in fake.calls)


@pytest.mark.parametrize(("plan", "error", "words"), FAILURES.values(), ids=FAILURES)
def test_only_refusals_are_kept(
    fake: Fake,
    monkeypatch: pytest.MonkeyPatch,
    plan: dict[str, Any],
    error: type[Exception],
    words: str,
) -> None:
    compiler, cache = fake.plans(plan), fake.folder / "cache"
    monkeypatch.setattr("autoselect.cases.compiling.compiler_of", lambda _target: compiler)
    how = Compiling(cache_root=cache, timeout_seconds=1.5 if "sleeps" in plan else 60.0)
    for _ in range(2):
        with pytest.raises(error, match=words):
            kept_partition(content(), fake.target, how)
    assert len(fake.calls) == (1 if error is CompilerRefusal else 2)
    assert len(list(cache.glob("*.json"))) == (1 if error is CompilerRefusal else 0)


def test_what_was_said_is_kept(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, cache = fake.plans({"taken": [0, 1, 4], "err": SAID_BY_LITERT}), fake.folder / "cache"
    monkeypatch.setattr("autoselect.cases.compiling.compiler_of", lambda _target: compiler)
    how = Compiling(cache_root=cache, timeout_seconds=60.0)
    first = kept_partition(content(), fake.target, how)
    assert kept_partition(content(), fake.target, how) == first
    assert len(fake.calls) == 1
    (entry,) = cache.glob("*.json")
    entry.write_bytes(entry.read_bytes()[:-20])
    assert kept_partition(content(), fake.target, how) == first
    assert len(fake.calls) == 2


def test_bytes_that_are_no_model_reach_no_compiler(fake: Fake) -> None:
    with pytest.raises(ModelError):
        asked(fake.plans({"taken": []}), content()[:1000])
    assert fake.calls == []


SUMMARY = """
====== DDR bandwidth summary ======
     0.0ms [  INFO ]  spill_bytes=8
     0.0ms [  INFO ]  fill_bytes=16
     0.0ms [  INFO ]  write_total_bytes=1000
  0.0ms [ ERROR ] <E> half a li     0.0ms [  INFO ]  read_total_bytes=20000
"""


def test_what_the_pieces_move_is_summed_up(fake: Fake) -> None:
    plan = {"taken": [0, 1, 4]}
    compiler = fake.plans(plan, {**plan, "out": SUMMARY * 2})
    found, written = compiler.compiled(content(), timeout_seconds=60.0)
    count = len(op_types(content()))
    assert (found.segments, found.ddr_bytes) == (2, 42000)
    assert found.moved == {"spill": 16, "fill": 32, "write_total": 2000, "read_total": 40000}
    assert sum(found.host_ops.values()) == len(found.left) == count - 3
    assert op_types(written).count(DISPATCH_OP) == 2
    # A byte more costs what the profile says of a byte.
    dearer, _ = fake.plans(plan, {**plan, "out": SUMMARY * 3}).compiled(content(), timeout_seconds=60.0)
    assert dearer.cost - found.cost == pytest.approx(21000 * PHONE.ddr_per_byte)


def test_pieces_cost_as_many_as_there_are_though_they_touch(fake: Fake) -> None:
    """A plugin may cut a run of ops that it takes."""
    plans = [{"taken": [1, 2, 3, 4, 5, 6], "cuts": cuts} for cuts in ((), (3,), (3, 5))]
    made = [fake.plans(plan, plan).compile(content(), timeout_seconds=60.0) for plan in plans]
    assert [one.segments for one in made] == [1, 2, 3]
    further = [one.cost - made[0].cost for one in made]
    assert further == pytest.approx([0.0, fake.target.piece_fixed, 2.0 * fake.target.piece_fixed])


def test_a_model_of_which_nothing_is_taken_is_not_compiled(fake: Fake) -> None:
    found, written = fake.plans({"taken": []}).compiled(content(), timeout_seconds=60.0)
    assert (found.segments, found.ddr_bytes, written) == (0, 0, content())
    assert [call["cmd"] for call in fake.calls] == ["partition"]


def test_a_compiler_that_contradicts_itself_says_nothing(fake: Fake) -> None:
    compiler = fake.plans({"taken": [0, 1, 4]}, {"taken": [0, 1]})
    with pytest.raises(JobFailed, match=r"\b1 pieces .*\b2\."):
        compiler.compile(content(), timeout_seconds=60.0)


def test_a_nightly_litert_has_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"ai-edge-litert-nightly": "9.8.7"}

    def version(name: str) -> str:
        if name not in known:
            raise importlib.metadata.PackageNotFoundError(name)
        return known[name]

    monkeypatch.setattr("importlib.metadata.version", version)
    monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: {"ai_edge_litert": list(known)})
    elsewhere = replace(PHONE, compiler=LitertPlugin(manufacturer="Google", soc_model="X"))
    assert PluginCompiler(elsewhere).versions() == {"LiteRT": "9.8.7"}


@pytest.mark.parametrize(("name", "nearest"), [("Acme", "there."), ("qualcomm", "'Qualcomm'?")])
def test_a_vendor_without_a_plugin_is_told(name: str, nearest: str) -> None:
    other = replace(PHONE, compiler=LitertPlugin(manufacturer=name, soc_model="X"))
    with pytest.raises(UsageError, match=rf"'{name}': .*Google, Intel, ") as caught:
        PluginCompiler(other).require()
    assert str(caught.value).endswith(nearest)


def test_without_litert_it_is_said_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match=r"ai-edge-litert 2\.1 "):
        PluginCompiler(PHONE).require()


def answer(folder: str, taken: Sequence[int], barrier: Any, model: bytes) -> tuple[Any, set[int]]:
    """In another process."""
    compiler = Fake(Path(folder)).plans({"taken": list(taken), "sleeps": 1.0})
    barrier.wait(120.0)
    found = asked(compiler, model)
    return found.pieces, set(found.left)


def test_two_threads_at_once_have_an_output_each(fake: Fake) -> None:
    compiler = fake.plans({"taken": [0, 1], "sleeps": 1.0})
    other = zoo.two_inputs().prepared.builder.build(Recipe()).content
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(functools.partial(asked, compiler), (content(), other))
    assert len(one.left) == len(op_types(content())) - 2
    assert len(two.left) == len(op_types(other)) - 2
    assert len({call["o"] for call in fake.calls}) == len({call["digest"] for call in fake.calls}) == 2


def test_two_processes_at_once_have_an_output_each(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(2) as pool:
        barrier = manager.Barrier(2)
        plans = {"one": (0, 1), "two": (2, 3, 6)}
        for name in plans:
            (tmp_path / name).mkdir()
        waiting = [
            pool.apply_async(answer, (str(tmp_path / n), taken, barrier, content())) for n, taken in plans.items()
        ]
        found = [one.get(180.0) for one in waiting]
    everything = set(range(len(op_types(content()))))
    assert [pieces for pieces, _ in found] == [((0, 1),), ((2, 3), (6,))]
    assert [left for _, left in found] == [everything - {0, 1}, everything - {2, 3, 6}]
    assert len({call["o"] for name in plans for call in Fake(tmp_path / name).calls}) == 2


# ----------------------------------------------------------------------------------------------- the real program


@functools.cache
def real(chip: str = "sm8750") -> PluginCompiler:
    pytest.importorskip("onnxruntime_qnn")
    if platform.machine() != "x86_64":
        pytest.skip("the libraries of onnxruntime-qnn that compile are for x86_64")
    return PluginCompiler(read_target(f"qualcomm-{chip}"))


@functools.cache
def built(state: str) -> bytes:
    """The net of every common op with all its nodes in one state."""
    prepared = zoo.cnn().prepared
    names = frozenset(node.name for node in prepared.nodes)
    recipes = {
        "int8": Recipe(),
        "int8 interface": Recipe(io_type="int8"),
        "int16": Recipe(int16_nodes=names),
        "hybrid": Recipe(denylisted_nodes=names, fallback="drq"),
        "float": Recipe(denylisted_nodes=names, fallback="float"),
    }
    return prepared.builder.build(recipes[state]).content


def splits() -> bytes:
    """An op of several outputs, which are outputs of the model, too."""
    import tensorflow as tf

    def call(x: Any) -> Any:
        a, b, c = tf.split(tf.nn.relu(tf.matmul(x, zoo.weights(8, 12))), 3, axis=1)
        return {"sum": a + b, "a": a, "c": c}

    return zoo.from_function(call, (1, 8)).prepared.builder.build(Recipe()).content


REAL = {
    "all in 8 bits": (functools.partial(built, "int8"), "sm8750", 1, set()),
    "an interface of integers": (functools.partial(built, "int8 interface"), "sm8750", 1, set()),
    "float where there is float16": (functools.partial(built, "float"), "sm8750", 1, set()),
    "an op of several outputs": (splits, "sm8750", 1, set()),
    "several inputs and outputs": (
        lambda: zoo.two_inputs().prepared.builder.build(Recipe()).content,
        "sm8750",
        1,
        set(),
    ),
    "16 bits": (functools.partial(built, "int16"), "sm8750", 2, {"DEPTHWISE_CONV_2D"}),
    "8 bits where there is no float16": (functools.partial(built, "int8"), "sm8735", 1, set()),
}


@pytest.mark.parametrize(("make", "chip", "pieces", "left"), REAL.values(), ids=REAL)
def test_partition_and_compile_agree(make: Any, chip: str, pieces: int, left: set[str]) -> None:
    compiler, model = real(chip), make()
    types = op_types(model)
    partition = asked(compiler, model)
    assert sorted([*partition.left, *(i for piece in partition.pieces for i in piece)]) == list(range(len(types)))
    assert (len(partition.pieces), {types[i] for i in partition.left}) == (pieces, left)
    found, written = compiler.compiled(model, timeout_seconds=120.0)
    assert (found.segments, sum(found.host_ops.values())) == (pieces, len(partition.left))
    assert op_types(written).count(DISPATCH_OP) == pieces
    assert sorted(t for t in op_types(written) if t != DISPATCH_OP) == sorted(types[i] for i in partition.left)
    assert set(found.moved) == {"spill", "fill", "write_total", "read_total"}
    assert found.ddr_bytes == found.moved["write_total"] + found.moved["read_total"] > 0


def test_a_16_bit_depthwise_convolution_is_left_with_the_validators_words() -> None:
    (why,) = asked(real(), built("int16")).left.values()
    assert why.startswith("Unsupported input/output datatypes")
    assert "DepthWiseConv2d" in why
    assert " node" not in why


def test_a_chip_without_float16_leaves_float() -> None:
    found = asked(real("sm8735"), built("float"))
    types = op_types(built("float"))
    assert {types[i] for i in found.left} >= {"CONV_2D", "DEPTHWISE_CONV_2D", "SOFTMAX", "ADD"}
    assert all(found.left.values())


def test_a_fused_lstm_is_refused_as_a_whole() -> None:
    model = zoo.lstm().prepared.builder.build(Recipe()).content
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in op_types(model)
    for ask in (real().partition, real().compile):
        with pytest.raises(CompilerRefusal, match="fused LSTM"):
            ask(model, timeout_seconds=60.0)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.99])
def test_a_file_that_was_cut_off_is_no_refusal(share: float) -> None:
    model = built("int8")
    with pytest.raises((WorkerDied, JobFailed, ModelError)):
        asked(real(), model[: int(share * len(model))])


def test_an_unknown_chip_is_told() -> None:
    compiler = real()
    other = replace(PHONE, compiler=LitertPlugin(manufacturer="Qualcomm", soc_model="SM9999"))
    with pytest.raises(UsageError, match="'SM9999'"):
        PluginCompiler(other).partition(built("int8"), timeout_seconds=60.0)
    compiler.require()


def test_libraries_that_are_none_are_told(fake: Fake) -> None:
    real()
    with pytest.raises(UsageError, match="its plugin"):
        PluginCompiler(fake.target).partition(built("int8"), timeout_seconds=60.0)


@pytest.mark.parametrize("state", ["int16", "hybrid"])
def test_equal_questions_have_equal_answers(state: str) -> None:
    first, second = (real().compiled(built(state), timeout_seconds=120.0)[0] for _ in range(2))
    assert first == second
    partitions = [asked(real(), built(state)) for _ in range(2)]
    assert partitions[0] == partitions[1]


def test_four_at_once_answer_as_one_does() -> None:
    models = [built(state) for state in ("int8", "int16", "hybrid", "float")]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(functools.partial(asked, real()), models))
    assert found == [asked(real(), model) for model in models]


def test_subgraphs_of_a_loop_are_no_pieces() -> None:
    model = zoo.loop().prepared.builder.build(Recipe()).content
    assert "WHILE" in op_types(model)
    partition = asked(real(), model)
    count = len(op_types(model))
    assert sorted([*partition.left, *(i for piece in partition.pieces for i in piece)]) == list(range(count))


def test_what_an_answer_depends_on_is_told() -> None:
    versions = real().versions()
    assert set(versions) >= {"LiteRT", "libraries"}
    assert all(versions.values())
