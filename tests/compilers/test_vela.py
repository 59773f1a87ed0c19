"""Vela where it is installed, and programs that fail in its place."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo
from ai_edge_litert import schema_py_generated as schema
from reviewing import Reviewed

from autoselect.api.compiling import compile_model
from autoselect.cases.compiling import UNKEPT, compile_report
from autoselect.compilers.litert_plugin import name_of
from autoselect.compilers.opening import compiler_of
from autoselect.compilers.vela import NPU_OP, VelaCompiler
from autoselect.domain.graph import OpKind
from autoselect.domain.recipe import Recipe
from autoselect.domain.targets import Precision, Vela
from autoselect.domain.verdicts import judge
from autoselect.errors import AutoselectError, CompilerRefusal, JobFailed, UsageError, WorkerDied
from autoselect.quantize.building.build import Candidate
from autoselect.scoring.target_file import read_target
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.tflite_file import TfliteFile

U55 = read_target("ethos-u55-128")

FAKES = {
    "hangs": ("import time; time.sleep(60)", WorkerDied, r"took longer than 1 s"),
    "is killed": ("import os; os.kill(os.getpid(), 9)", WorkerDied, r"died of SIGKILL"),
    "refuses": (
        "import sys; sys.exit('RuntimeError: Compilation failed: Error: no\\n - good\\nFailed to parse TFLite file')",
        CompilerRefusal,
        r"Vela refuses the candidate for ethos-u55-128: no - good$",
    ),
    "refuses an op of a long name": (
        f"import sys; sys.exit('Compilation failed: Error: GELU ' + repr({'a/b;' * 99!r}) + ' is\\n - odd')",
        CompilerRefusal,
        r"GELU '(a/b;)+\.\.\.' is - odd$",
    ),
    "breaks off where it compiles": (
        "import sys; sys.exit('Traceback:\\n  made = regor.compile(a)\\n  ^^^^\\nRuntimeError: NotEqual cannot run')",
        CompilerRefusal,
        r"^Vela cannot compile the candidate for ethos-u55-128: NotEqual cannot run$",
    ),
    "finds no thread where it compiles": (
        "import sys; sys.exit('  made = regor.compile(a)\\nRuntimeError: Resource temporarily unavailable')",
        JobFailed,
        r"Resource temporarily unavailable",
    ),
    "breaks off elsewhere": (
        "import sys; sys.exit('Traceback:\\n  made = thread.start()\\nRuntimeError: no thread')",
        JobFailed,
        r"RuntimeError: no thread",
    ),
    "takes no such option": (
        "import sys; sys.exit('vela: error: argument --accelerator-config: invalid choice: x')",
        UsageError,
        r"\[compiler\] of the profile ethos-u55-128: argument --accelerator-config: invalid choice: x",
    ),
    "finds no such section": (
        "raise type('CliOptionError', (Exception,), {})('Error: --memory-mode=x: Section not found')",
        UsageError,
        r"--memory-mode=x: Section not found\. Change",
    ),
    "fails without a word": ("import sys; sys.exit(3)", JobFailed, r"it gave no reason"),
    "fails with other words": (
        "import sys; sys.exit('Traceback:\\nOSError: [Errno 28] No space left on device')",
        JobFailed,
        r"Vela failed for ethos-u55-128, which says nothing of the candidate: OSError: \[Errno 28\] No space left",
    ),
}


@pytest.mark.parametrize("asks", ["partition", "compile"])
@pytest.mark.parametrize(("program", "error", "words"), FAKES.values(), ids=FAKES)
def test_what_a_compiler_that_fails_costs(program: str, error: type[AutoselectError], words: str, asks: str) -> None:
    compiler = VelaCompiler(U55, program=(sys.executable, "-c", program))
    content = candidate().content if asks == "partition" else b""
    with pytest.raises(error, match=words) as caught:
        getattr(compiler, asks)(content, timeout_seconds=1.0)
    assert caught.type is error


WRITES = """
import pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--output-dir") + 1])
(folder / "model_vela.tflite").write_bytes(MODEL)
(folder / "model_summary_x.csv").write_bytes(SUMMARY)
"""
RUBBISH = {
    "a file that is no model": ("b'rubbish'", "b''", "wrote a file that is no model"),
    "no summary": ("CONTENT", "b''", "summary has no figure"),
    "a summary of other columns": ("CONTENT", "b'a,b\\n1,2\\n'", "summary has no figure .*cycles_total"),
    "words for numbers": ("CONTENT", "b'cycles_total\\nmany\\xff\\n'", "summary has no figure .*many"),
    "figures without an end": ("CONTENT", "b'cycles_total\\ninf\\n'", "summary has no figure .*infinity"),
    "no table": ("CONTENT", "b'a' * 200_000", r"summary (that cannot be read|has no figure)"),
}


@pytest.mark.parametrize(("model", "summary", "words"), RUBBISH.values(), ids=RUBBISH)
def test_a_compiler_that_writes_rubbish_costs_one_trial(model: str, summary: str, words: str) -> None:
    content = candidate().content
    written = WRITES.replace("MODEL", model).replace("SUMMARY", summary)
    if model == "CONTENT":
        written = written.replace(model, "pathlib.Path(sys.argv[1]).read_bytes()")
    compiler = VelaCompiler(U55, program=(sys.executable, "-c", written))
    with pytest.raises(JobFailed, match=words):
        compiler.compile(content, timeout_seconds=20.0)


OWN_CHIP = """
# Vela's two readers differ in comments, colons and the order of parents.
[System_Config.Own]
Sram_clock_scale={scale}  ; of the clock
inherit: System_Config.Family

[System_Config.Family]
core_clock = 400e6
axi0_port: Sram
axi1_port=OffChipFlash
Sram_clock_scale=1.0
OffChipFlash_clock_scale=0.125

[Memory_Mode.Own]
const_mem_area=Axi1
arena_mem_area=Axi0
cache_mem_area=Axi0
"""


def test_vela_compiles_for_a_chip_of_ones_own_configuration(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        'extends = "ethos-u55-128"\nname = "own"\n'
        '[compiler]\nconfig = "chip/own.ini"\nsystem_config = "Own"\nmemory_mode = "Own"\n'
    )
    (tmp_path / "chip").mkdir()
    cycles = []
    for scale in (1.0, 0.125):
        (tmp_path / "chip" / "own.ini").write_text(OWN_CHIP.format(scale=scale))
        compiler = VelaCompiler(read_target(str(tmp_path / "own.toml")))
        compiler.require()
        cycles.append(compiler.compile(candidate().content, timeout_seconds=60.0).cycles)
    assert 0 < cycles[0] < cycles[1]  # The second reads its activations at an eighth of the rate.


def test_without_vela_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match=r"pip install 'autoselect\[ethos-u\]'"):
        VelaCompiler(U55).require()


@pytest.mark.parametrize(
    ("accelerator", "system", "words"),
    [
        ("ethos-u85-256", "Ethos_U55_High_End_Embedded", "expected a system of the Ethos-U85"),
        ("ethos-u55-128", "Ethos_U65_Embedded", "expected a system of the Ethos-U55"),
        ("ethos-u55-32", "Ethos_U55_Deep_Embedded", None),
        ("ethos-u65-512", "My_System", None),
    ],
)
def test_a_system_of_another_chip_is_told_before_the_work(accelerator: str, system: str, words: str | None) -> None:
    """Vela compiles for such a pair all the same."""
    pytest.importorskip("ethosu")
    assert isinstance(U55.compiler, Vela)
    pair = replace(U55.compiler, accelerator_config=accelerator, system_config=system)
    compiler = VelaCompiler(replace(U55, compiler=pair))
    if words is None:
        compiler.require()
        return
    with pytest.raises(UsageError, match=words):
        compiler.require()


def test_a_target_without_a_compiler_is_refused() -> None:
    with pytest.raises(UsageError, match="no compiler"):
        compiler_of(replace(U55, compiler=None))


@functools.cache
def candidate() -> Candidate:
    """Six convolutions of one shape in a row, of which the third is left in float."""
    import tensorflow as tf

    kernels = [zoo.weights(3, 3, 16, 16, seed=i) for i in range(6)]

    def call(x: Any) -> Any:
        for kernel in kernels:
            x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
        return x

    prepared = zoo.from_function(call, (1, 8, 8, 16)).prepared
    node = prepared.nodes[2].name
    return prepared.builder.build(Recipe(denylisted_nodes=frozenset({node}), fallback="float", io_type="int8"))


def test_what_vela_makes_of_two_segments() -> None:
    pytest.importorskip("ethosu")
    built = candidate()
    found = VelaCompiler(U55).compile(built.content, timeout_seconds=120.0)
    assert (found.segments, found.host_ops) == (2, {"DEQUANTIZE": 1, "CONV_2D": 1, "QUANTIZE": 1})
    assert found.crossing_bytes == 2 * 8 * 8 * 16
    assert found.cycles > 0
    # The CPU's part is the profile's: the float op and its conversions, and two crossings.
    host = sum(
        p.cost
        for p, op in zip(judge(built.graph, U55).placements, built.graph.ops, strict=True)
        if op.kind is not OpKind.INTEGER
    )
    assert found.cost == pytest.approx(found.cycles + host + 2 * (2000 + 0.25 * 8 * 8 * 16))


@pytest.mark.parametrize("is_output", [True, False])
def test_a_float_value_that_is_also_an_output_crosses_to_the_npu(is_output: bool) -> None:
    """Its conversion to integers is none of the model's interface: the NPU reads what the host has computed."""
    import tensorflow as tf

    def call(x: Any) -> Any:
        first = tf.nn.relu(x @ zoo.weights(8, 16, seed=0))
        second = first @ zoo.weights(16, 4, seed=1)
        return (first, second) if is_output else second

    pytest.importorskip("ethosu")
    prepared = zoo.from_function(call, (1, 8)).prepared
    recipe = Recipe(denylisted_nodes=frozenset({prepared.nodes[0].name}), fallback="float")
    built = prepared.builder.build(recipe)
    found, forecast = VelaCompiler(U55).compile(built.content, timeout_seconds=120.0), judge(built.graph, U55)
    assert found.host_ops["FULLY_CONNECTED"] == len(forecast.crossings) == found.crossing_tensors == 1
    assert found.crossing_bytes == forecast.crossing_bytes == 16


def test_a_host_op_without_outputs_may_read_from_the_npu(tmp_path: Path) -> None:
    """An int8 state that the NPU computes, and that the host keeps in a variable."""
    import tensorflow as tf

    pytest.importorskip("ethosu")
    shape, kernel = (1, 4, 4, 8), zoo.weights(3, 3, 8, 8, seed=0)

    class Stateful(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            self.state = tf.Variable(tf.zeros(shape))

        @tf.function(input_signature=[tf.TensorSpec(shape, tf.float32)])  # type: ignore[untyped-decorator]
        def step(self, x: Any) -> Any:
            state = tf.nn.relu(tf.nn.conv2d(x + self.state, kernel, 1, "SAME"))
            self.state.assign(state)
            return tf.nn.conv2d(state, kernel, 1, "SAME")

    model, rng = Stateful(), np.random.default_rng(0)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([model.step.get_concrete_function()], model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([rng.random(shape, np.float32)] for _ in range(4))
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter._experimental_variable_quantization = True
    profile = tmp_path / "stateful.toml"
    profile.write_text('extends = "ethos-u55-128"\nname = "stateful"\n[host.int8]\nops = "all"\n', encoding="utf-8")
    found = VelaCompiler(read_target(str(profile))).compile(converter.convert(), timeout_seconds=120.0)
    assert found.host_ops["ASSIGN_VARIABLE"] == 1
    assert found.crossing_bytes == 2 * 4 * 4 * 8


def test_what_pieces_beyond_the_first_cost() -> None:
    pytest.importorskip("ethosu")
    free, priced = (
        VelaCompiler(replace(U55, piece_fixed=each)).compile(candidate().content, timeout_seconds=120.0)
        for each in (0.0, 7000.0)
    )
    assert free.segments == 2
    assert priced.cost == free.cost + 7000.0


def test_which_ops_vela_takes(reviewed: Reviewed) -> None:
    pytest.importorskip("ethosu")
    content = candidate().content
    ops = reader.read_graph(fb.parse(content)).ops
    found = VelaCompiler(U55).partition(content, timeout_seconds=120.0)
    assert NPU_OP not in {op.op_type for op in ops}
    assert [ops[i].op_type for i in sorted(found.left)] == ["DEQUANTIZE", "CONV_2D", "QUANTIZE"]
    reviewed("Vela leaves an op", set(found.left.values()))
    assert found.pieces == ((0, 1), (5, 6, 7))
    assert sorted(i for piece in found.pieces for i in piece) == sorted(set(range(len(ops))) - set(found.left))


def test_the_ops_of_a_model_without_names_are_told_apart() -> None:
    """Tools that make files small for microcontrollers take all names away."""
    pytest.importorskip("ethosu")
    content = candidate().content
    model = fb.parse(content)
    for tensor in model.subgraphs[0].tensors:
        tensor.name = b""
    named, unnamed = (VelaCompiler(U55).partition(one, timeout_seconds=120.0) for one in (content, fb.serialise(model)))
    assert unnamed == named
    assert len({name_of(TfliteFile(fb.serialise(model)).graph, i) for i in unnamed.left}) == len(unnamed.left)


@functools.cache
def halves() -> Candidate:
    """A convolution, halved in float; one half is scaled by what the other passes on."""
    import tensorflow as tf

    kernels = [zoo.weights(3, 3, 8, 8, seed=0), zoo.weights(3, 3, 4, 4, seed=1)]

    def call(x: Any) -> Any:
        first, second = tf.split(tf.nn.conv2d(x, kernels[0], 1, "SAME"), 2, -1)
        return tf.nn.conv2d((1.0 - tf.sigmoid(first)) * tf.tanh(second), kernels[1], 1, "SAME")

    recipe = Recipe(denylisted_ops=frozenset({"SPLIT"}), fallback="float", io_type="int8")
    return zoo.from_function(call, (1, 8, 8, 8)).prepared.builder.build(recipe)


def test_no_piece_is_without_ops_where_vela_keeps_a_value_in_the_npu() -> None:
    """Of a piece whose result only another piece reads, Vela lists no output."""
    pytest.importorskip("ethosu")
    compiler, content = VelaCompiler(U55), halves().content
    ops = reader.read_graph(fb.parse(content)).ops
    found = compiler.partition(content, timeout_seconds=120.0)
    assert len(found.pieces) == compiler.compile(content, timeout_seconds=120.0).segments == 3
    taken = [{ops[i].op_type for i in piece} for piece in found.pieces]
    assert taken[0] == {"CONV_2D"}
    assert taken[1] in ({"TANH"}, {"LOGISTIC", "SUB"})
    assert taken[1] | taken[2] == {"LOGISTIC", "SUB", "TANH", "MUL", "CONV_2D"}
    assert sorted([i for piece in found.pieces for i in piece] + [*found.left]) == [*range(len(ops))]


@functools.cache
def reversed_in_between() -> Candidate:
    """A convolution, its rows in reverse order, and another convolution."""
    import tensorflow as tf

    kernels = [zoo.weights(3, 3, 4, 4, seed=i) for i in range(2)]

    def call(x: Any) -> Any:
        return tf.nn.conv2d(tf.reverse(tf.nn.conv2d(x, kernels[0], 1, "SAME"), [1]), kernels[1], 1, "SAME")

    return zoo.from_function(call, (1, 8, 8, 4)).prepared.builder.build(Recipe(io_type="int8"))


def test_a_model_is_refused_if_the_host_lacks_what_vela_leaves_to_it(tmp_path: Path) -> None:
    """The file is made all the same, with a warning."""
    pytest.importorskip("ethosu")
    profile, built = tmp_path / "own.toml", reversed_in_between()
    host = '[host.int8]\nops = ["QUANTIZE"]\nper_mac = 1.0\nper_element = 4.0\n'
    profile.write_text(f'extends = "ethos-u55-128"\nname = "own"\n{host}', encoding="utf-8")
    target = read_target(str(profile))
    with pytest.raises(CompilerRefusal, match="REVERSE_V2"):
        compile_report(built.content, target, judge(built.graph, target), UNKEPT)
    (made,) = compile_model(built.content, target=str(profile), output=tmp_path / "npu.tflite").models
    assert [warning for warning in made.warnings if "REVERSE_V2" in warning]


def test_what_vela_leaves_to_tensorflow_lite_micro_is_priced_if_that_has_a_kernel() -> None:
    """TensorFlow Lite Micro reverses values of int8, int16 and float32."""
    pytest.importorskip("ethosu")
    built = reversed_in_between()
    report = compile_report(built.content, U55, judge(built.graph, U55), UNKEPT)
    assert (report["host_ops"], report["lack"]) == ({"REVERSE_V2": 1}, "")
    assert report["cost"] > report["cycles"]


def test_a_host_that_runs_all_ops_runs_no_piece_of_the_npu() -> None:
    pytest.importorskip("ethosu")
    host = replace(U55.host, kernels={p: replace(k, ops=None) for p, k in U55.host.kernels.items()})
    found = VelaCompiler(replace(U55, host=host)).compile(reversed_in_between().content, timeout_seconds=120.0)
    assert (found.segments, found.host_ops, found.lack) == (2, {"REVERSE_V2": 1}, "")
    elements = 8 * 8 * 4  # of the reversed value, which goes to the host and back
    priced = elements * host.kernels[Precision.INT8].per_element + 2 * (2000 + 0.25 * elements)
    assert found.cost == pytest.approx(found.cycles + priced)


def test_vela_refuses_with_its_own_reason() -> None:
    pytest.importorskip("ethosu")
    with pytest.raises(CompilerRefusal, match="Vela refuses"):
        VelaCompiler(U55).compile(b"no model", timeout_seconds=120.0)


def test_what_a_verdict_of_vela_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: {"ethos-u-vela": "9.8.7"}[name])
    assert VelaCompiler(U55).versions() == {"Vela": "9.8.7"}


def test_vela_without_a_package_of_its_usual_name_has_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert VelaCompiler(U55).versions() == {"Vela": "unknown"}


@functools.cache
def in_4_bits() -> bytes:
    """A convolution whose weights are stored in 4 bits."""
    model = fb.parse(candidate().content)
    graph = model.subgraphs[0]
    for op in graph.operators:
        if fb.op_type(model, op) == "CONV_2D" and graph.tensors[op.inputs[1]].type == schema.TensorType.INT8:
            tensor = graph.tensors[op.inputs[1]]
            levels = fb.constant_values(model, tensor).ravel().astype(np.int16) >> 4
            tensor.type = schema.TensorType.INT4
            tensor.buffer = editing.add_buffer(model, ((levels[1::2] & 15) << 4 | (levels[::2] & 15)).astype(np.uint8))
    return fb.serialise(model)


def test_weights_of_4_bits_never_reach_vela(monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies of them: a floating-point exception, and not a word."""
    called = list[object]()
    monkeypatch.setattr("autoselect.compilers.vela.run_tethered", lambda *a, **k: called.append(a))
    compiler = VelaCompiler(U55)
    for ask in (compiler.compile, compiler.partition, compiler.compiled):
        with pytest.raises(CompilerRefusal, match="int4 constants"):
            ask(in_4_bits(), timeout_seconds=120.0)
    assert not called


def test_a_forecast_knows_that_vela_reads_no_weights_of_4_bits(reviewed: Reviewed) -> None:
    verdict = judge(reader.read_graph(fb.parse(in_4_bits())), U55)
    refused = verdict.refused(by="compiler")
    assert len(refused) == 5
    reviewed("Vela refuses weights of 4 bits", {verdict.placements[i].reason for i in refused})
    assert not judge(candidate().graph, U55).refused()


def test_vela_dies_of_weights_of_4_bits_where_nothing_keeps_it_from_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the refusal is needed; once this fails, Vela reads them."""
    pytest.importorskip("ethosu")
    monkeypatch.setattr(VelaCompiler, "_refuse_unreadable", lambda *_: None)
    with pytest.raises(WorkerDied, match="SIGFPE"):
        VelaCompiler(U55).compile(in_4_bits(), timeout_seconds=120.0)


def test_the_compiled_file_is_what_is_stored() -> None:
    pytest.importorskip("ethosu")
    made, content = VelaCompiler(U55).compiled(candidate().content, timeout_seconds=120.0)
    assert made.stored_bytes == len(content)


@pytest.mark.parametrize(("target", "memory"), [("ethos-u55-128", "flash_bytes"), ("ethos-u65-256", "dram_bytes")])
def test_every_memory_that_vela_allots_is_told(target: str, memory: str) -> None:
    """Weights are in flash or in DRAM; in the second memory mode values are in DRAM, too."""
    pytest.importorskip("ethosu")
    content = candidate().content
    made = VelaCompiler(read_target(target)).compile(content, timeout_seconds=120.0)
    assert made.sram_bytes > 0
    kinds = {"flash_bytes", "dram_bytes"}
    weights = 5 * 3 * 3 * 16 * 16  # of the convolutions in int8; Vela packs them
    assert {kind for kind in kinds if getattr(made, kind) > weights / 2} == {memory}


@pytest.mark.parametrize("name", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
def test_profiles_give_16_bits_to_no_op_of_which_velas_report_asks_for_8(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ethosu")
    subprocess.run([Path(sys.executable).with_name("vela"), "--supported-ops-report"], cwd=tmp_path, check=True)
    report = (tmp_path / "SUPPORTED_OPS.md").read_text(encoding="utf-8")
    chips = "Ethos-U85" if "u85" in name else "Ethos-U55 and Ethos-U65"
    sections = re.findall(rf"^### {chips} TFLite (\w+) Constraints$(.*?)(?=^##)", report, re.MULTILINE | re.DOTALL)
    narrow = {op for op, text in sections if re.search(r"^- (?!IF ).*must be Int8( or UInt8)?$", text, re.MULTILINE)}
    assert {"ELU", "GELU"} <= narrow
    accelerator = read_target(name).accelerator
    assert accelerator is not None
    ops = accelerator.kernels[Precision.INT16].ops
    assert ops is not None
    assert not narrow & ops
