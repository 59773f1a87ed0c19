"""Finished models and the compilers of chips: real plugins and Vela where they are installed, else made-up ones."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pump
import pytest
from typer.testing import CliRunner

import autoselect
from autoselect.api import compiling
from autoselect.api.compiling import chip_rows, compiled_path, target_names
from autoselect.cli.main import app
from autoselect.compilers.compiler import Partition
from autoselect.compilers.libraries import QNN_VARIABLE
from autoselect.compilers.litert_plugin import DISPATCH_OP
from autoselect.domain.graph import with_answers
from autoselect.domain.targets import Compiled
from autoselect.embedded import model_bytes, model_path
from autoselect.errors import CompilerRefusal, JobFailed, ModelError, PreparationError, UsageError, WorkerDied
from autoselect.scoring.target_file import read_target
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

CHIP = "qualcomm-sm8750"
INTEGERS_ONLY = "qualcomm-sm8735"
"""A chip without float16."""
LEFT = {3: "too wide", 9: "no kernel", 10: "no kernel"}


class FakeCompiler:
    """Leaves the ops of ``LEFT``; an error in place of an answer is raised."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.asked = error, list[bytes]()

    def require(self) -> None:
        pass

    def versions(self) -> dict[str, str]:
        return {"fake": "1.0"}

    def partition(self, content: bytes, *, timeout_seconds: float) -> Partition:
        self.asked.append(content)
        if self.error is not None:
            raise self.error
        count = len(reader.read_graph(fb.parse(content)).ops)
        return Partition(pieces=((0, 1, 2), tuple(range(4, 9)), tuple(range(11, count))), left=LEFT)

    def compile(self, content: bytes, *, timeout_seconds: float) -> Compiled:
        return self.compiled(content, timeout_seconds=timeout_seconds)[0]

    def compiled(self, content: bytes, *, timeout_seconds: float) -> tuple[Compiled, bytes]:
        if self.error is not None:
            raise self.error
        return Compiled(segments=3, ddr_bytes=30, moved={"read_total": 20, "write_total": 10}, cost=5.0), b"compiled"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "pump.tflite"
    path.write_bytes(model_bytes())
    return path


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeCompiler]:
    """Compilers by name of the target; others take the first."""
    found = {CHIP: FakeCompiler()}

    def of(target: Any) -> FakeCompiler:
        return found.get(target.name, found[CHIP])

    monkeypatch.setattr(compiling, "compiler_of", of)
    monkeypatch.setattr("autoselect.cases.compiling.compiler_of", of)
    return found


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "120")


def invoke(*args: object) -> Any:
    return CliRunner().invoke(app, [*map(str, args)], prog_name="autoselect")


# ------------------------------------------------------------------------------------------------ a made-up compiler


def test_files_are_named_after_model_and_chip(model: Path, fakes: dict[str, FakeCompiler]) -> None:
    made = autoselect.compile_model(model, target=f"{CHIP},{INTEGERS_ONLY}")
    paths = [model.with_name(f"pump.{chip}.tflite") for chip in (CHIP, INTEGERS_ONLY)]
    assert [one.path for one in made.models] == [str(path) for path in paths]
    assert [path.read_bytes() for path in paths] == [b"compiled"] * 2
    assert (made.size_bytes, dict(made.failed)) == (model.stat().st_size, {})


def test_pieces_have_their_ops_and_bytes(model: Path, fakes: dict[str, FakeCompiler]) -> None:
    (made,) = autoselect.compile_model(model, target=CHIP).models
    graph = reader.read_graph(fb.parse(model.read_bytes()))
    first, *_, last = made.pieces
    assert (first["ops"], made.left_ops, made.ops) == ([0, 1, 2], 3, len(graph.ops))
    assert first["input_bytes"] == sum(graph.tensors[t].size_bytes for t in graph.inputs)
    assert last["output_bytes"] == sum(graph.tensors[t].size_bytes for t in graph.outputs)
    assert sum(first["ops_by_type"].values()) == 3
    assert [(row["op"], row["reason"]) for row in made.left] == list(LEFT.items())
    assert [row["op_type"] for row in made.left] == [graph.ops[i].op_type for i in LEFT]
    assert {row["precision"] for row in made.left} == {"float"}


def test_a_constant_of_several_ops_counts_once_in_a_piece(model: Path) -> None:
    graph = reader.read_graph(fb.parse(model.read_bytes()))
    op = next(op for op in graph.ops if op.constants)
    twice = replace(graph, ops=(replace(op, left_because=""), replace(op, left_because="")))
    (chip,) = chip_rows(twice, read_target(CHIP))
    assert [piece["constant_bytes"] for piece in chip["pieces"]] == [op.constant_bytes]


def test_what_is_inside_a_piece_and_read_by_nobody_else_is_no_output(model: Path) -> None:
    graph = with_answers(reader.read_graph(fb.parse(model.read_bytes())), LEFT)
    (chip,) = chip_rows(graph, read_target(CHIP))
    assert (chip["partitions"], chip["left_ops"]) == (3, len(LEFT))
    writers = graph.producers()
    crossing = {t for i in LEFT for t in graph.ops[i].inputs if writers.get(t) in chip["pieces"][0]["ops"]}
    later = {t for i in chip["pieces"][1]["ops"] for t in graph.ops[i].inputs if writers.get(t) in (0, 1, 2)}
    expected = sum(graph.tensors[t].size_bytes for t in crossing | later)
    assert chip["pieces"][0]["output_bytes"] == expected > 0


def test_pieces_are_the_compilers_though_they_touch(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin may cut a run of ops that it takes."""

    class Cutting(FakeCompiler):
        def partition(self, content: bytes, *, timeout_seconds: float) -> Partition:
            found = super().partition(content, timeout_seconds=timeout_seconds)
            return Partition(pieces=((0, 1), (2,), *found.pieces[1:]), left=found.left)

    for module in ("api", "cases"):
        monkeypatch.setattr(f"autoselect.{module}.compiling.compiler_of", lambda _chip: Cutting())
    found = autoselect.inspect(model, target=CHIP)["target"]
    (chip,) = found["chips"]
    assert (found["segments"], chip["partitions"], chip["penalty"]) == (4, 4, 5.0)
    assert [piece["ops"] for piece in chip["pieces"]][:2] == [[0, 1], [2]]


def test_two_targets_of_one_name_are_not_written_over_each_other(model: Path, fakes: dict[str, FakeCompiler]) -> None:
    mine = model.with_name("mine.toml")
    mine.write_text(f'extends = "{CHIP}"\n[crossing]\nfixed = 5.0\nper_byte = 1.0\n', encoding="utf-8")
    with pytest.raises(UsageError, match=f"{CHIP}.*{CHIP}"):
        autoselect.compile_model(model, target=[CHIP, str(mine)])
    assert [path.name for path in model.parent.glob("*.tflite")] == ["pump.tflite"]


def test_names_that_differ_in_a_folder_alone_are_not_written_over_each_other(model: Path, tmp_path: Path) -> None:
    """A file has the last part of a chip's name."""
    for maker in ("a", "b"):
        (tmp_path / f"{maker}.toml").write_text(f'extends = "ethos-u55-128"\nname = "{maker}/npu"\n')
    with pytest.raises(UsageError):
        autoselect.compile_model(model, target=[str(tmp_path / "a.toml"), str(tmp_path / "b.toml")])
    assert not [*model.parent.glob("*.npu.tflite")]


def test_a_profile_and_its_copy_are_one_chip(model: Path, fakes: dict[str, FakeCompiler]) -> None:
    copy = model.with_name("copy.toml")
    copy.write_text(f'extends = "{CHIP}"\n', encoding="utf-8")
    made = autoselect.compile_model(model, target=[CHIP, str(copy)], force=True)
    assert {one.path for one in made.models} == {str(compiled_path(model, CHIP))}


def test_a_file_stays_unless_force(model: Path, fakes: dict[str, FakeCompiler]) -> None:
    taken = compiled_path(model, CHIP)
    taken.write_bytes(b"mine")
    with pytest.raises(UsageError, match="exists already"):
        autoselect.compile_model(model, target=CHIP)
    assert (taken.read_bytes(), fakes[CHIP].asked) == (b"mine", [])
    autoselect.compile_model(model, target=CHIP, force=True)
    assert taken.read_bytes() == b"compiled"


def test_the_model_is_never_written_over(model: Path, fakes: dict[str, FakeCompiler]) -> None:
    with pytest.raises(UsageError, match="model itself"):
        autoselect.compile_model(model, target=CHIP, output=model, force=True)
    assert model.read_bytes() == model_bytes()


def test_an_output_is_a_file_for_one_chip_and_a_folder_for_several(
    model: Path, tmp_path: Path, fakes: dict[str, FakeCompiler]
) -> None:
    (one,) = autoselect.compile_model(model, target=CHIP, output=tmp_path / "one.bin").models
    assert Path(one.path) == tmp_path / "one.bin"
    both = autoselect.compile_model(model, target=[CHIP, INTEGERS_ONLY], output=tmp_path / "new").models
    assert {Path(made.path).parent for made in both} == {tmp_path / "new"}
    with pytest.raises(UsageError, match="folder"):
        autoselect.compile_model(model, target=[CHIP, INTEGERS_ONLY], output=tmp_path / "one.bin")


FAILURES = {
    "a refusal": CompilerRefusal("Variable tensors not yet supported."),
    "a crash": WorkerDied("It died of SIGSEGV."),
    "a failure": JobFailed("It ended with exit code 6."),
}


@pytest.mark.parametrize("error", FAILURES.values(), ids=FAILURES)
def test_one_chip_that_fails_costs_no_other(model: Path, fakes: dict[str, FakeCompiler], error: Exception) -> None:
    fakes[INTEGERS_ONLY] = FakeCompiler(error)
    made = autoselect.compile_model(model, target=f"{CHIP},{INTEGERS_ONLY}")
    assert [one.target for one in made.models] == [CHIP]
    assert made.failed == {INTEGERS_ONLY: str(error)}
    with pytest.raises(PreparationError, match=re.escape(str(error))):
        autoselect.compile_model(model, target=INTEGERS_ONLY)
    done = invoke("compile", model, "--target", f"{CHIP},{INTEGERS_ONLY}", "--force")
    assert done.exit_code == PreparationError.exit_code
    assert f"{INTEGERS_ONLY}. {error}" in done.stderr


def test_targets_are_named_once() -> None:
    assert target_names("a, b") == target_names(["a", "b"]) == ["a", "b"]
    assert target_names(f"a,{' ' * 300}b") == ["a", "b"]  # longer than a path
    wrongs: list[str | list[str]] = ["a,,b", "a,a", [], ""]
    for wrong in wrongs:
        with pytest.raises(UsageError, match="different targets"):
            target_names(wrong)


def test_a_target_without_compiler_is_refused(model: Path) -> None:
    with pytest.raises(UsageError, match="no compiler"):
        autoselect.compile_model(model, target="integer-only")


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_what_is_no_tflite_is_refused(tmp_path: Path, fakes: dict[str, FakeCompiler], name: str) -> None:
    (tmp_path / name).write_bytes(b"anything")
    with pytest.raises(ModelError, match=r"expected a \.tflite"):
        autoselect.compile_model(tmp_path / name, target=CHIP)


def test_missing_libraries_are_told_before_anything(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(QNN_VARIABLE, str(tmp_path))
    for run in (autoselect.compile_model, autoselect.inspect):
        with pytest.raises(UsageError, match="pip install"):
            run(model, target=CHIP)
    assert invoke("inspect", model, "--target", CHIP).exit_code == UsageError.exit_code


def test_inspect_shows_a_refusal_as_its_verdict(model: Path, fakes: dict[str, FakeCompiler]) -> None:
    fakes[CHIP].error = FAILURES["a refusal"]
    found = autoselect.inspect(model, target=CHIP)
    assert found.target["refusal"] == "Variable tensors not yet supported."
    assert (found.target["chips"][0]["partitions"], found.fragmentation["off_chip"]) == (0, found.ops_by_kind["float"])
    done = invoke("inspect", model, "--target", CHIP)
    assert done.exit_code == 0
    assert re.search(r"^verdict +Variable tensors not yet supported\.$", done.stdout, re.MULTILINE)
    assert "Islands" not in done.stdout


def test_inspect_says_that_a_compiler_failed(model: Path, fakes: dict[str, FakeCompiler]) -> None:
    fakes[CHIP].error = FAILURES["a crash"]
    done = invoke("inspect", model, "--target", CHIP)
    assert done.exit_code == PreparationError.exit_code
    assert "It died of SIGSEGV." in done.stderr


def test_inspect_tells_pieces_and_left_ops(model: Path, fakes: dict[str, FakeCompiler]) -> None:
    done = invoke("inspect", model, "--target", CHIP)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "integer segments" not in done.stdout
    assert re.search(r"^partitions +3$", done.stdout, re.MULTILINE)
    assert re.search(r"^ops left on the CPU +3$", done.stdout, re.MULTILINE)
    pieces = re.findall(r"^ +(\d) +(\d+)  (\d+-\d+) ", done.stdout, re.MULTILINE)
    assert [(count, numbers) for _, count, numbers in pieces[:2]] == [("3", "0-2"), ("5", "4-8")]
    left = done.stdout.split("Ops left on the CPU\n")[1]
    assert left.startswith("2 ops: no kernel\n")  # The most frequent reason first.
    assert re.search(r"^1 op: too wide\n +3  \w+ +float  ", left, re.MULTILINE)
    told_json = json.loads(invoke("inspect", model, "--target", CHIP, "--json").stdout)
    assert [row["op"] for row in told_json["target"]["chips"][0]["left"]] == [*LEFT]


def test_inspect_has_the_penalty_of_the_compiled_model(model: Path, fakes: dict[str, FakeCompiler]) -> None:
    found = autoselect.inspect(model, target=CHIP)
    (chip,) = found.target["chips"]
    assert (chip["penalty"], found.target["penalty"], found.fragmentation["penalty"]) == (5.0, 5.0, 5.0)
    assert (chip["ddr_bytes"], chip["uncompiled"]) == (30, None)
    parts = ("accelerator_cost", "host_cost", "crossing_cost", "piece_cost")
    assert sum(chip[part] for part in parts) == pytest.approx(5.0)
    done = invoke("inspect", model, "--target", CHIP)
    assert re.search(r"^penalty +5 microseconds$", done.stdout, re.MULTILINE)
    assert re.search(r"^DDR bytes +30 B \(read 20 B, write 10 B\)$", done.stdout, re.MULTILINE)


def test_inspect_says_that_figures_of_a_model_that_does_not_compile_are_estimates(
    model: Path, fakes: dict[str, FakeCompiler], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: Any, **_options: Any) -> Compiled:
        raise JobFailed("It ended with exit code 6.")

    monkeypatch.setattr(fakes[CHIP], "compile", fails)
    done = invoke("inspect", model, "--target", CHIP)
    assert done.exit_code == 0
    assert re.search(r"^DDR bytes .*, estimated: It ended with exit code 6\.$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("target", ["ethos-u55-128", f"ethos-u55-128,{CHIP}"])
def test_a_compiler_that_does_not_decide_tells_the_penalty_all_the_same(
    model: Path, fakes: dict[str, FakeCompiler], target: str
) -> None:
    found = autoselect.evaluate(model, evaluation=pump.HELDOUT, target=target)
    assert found.target == autoselect.inspect(model, target=target).target
    assert found.penalty == found.target["penalty"] == (None if "," in target else 5.0)
    if "," in target:
        assert {island["gain"] for island in found.target["islands"]} <= {None}
        assert found.target["forecast"]["uncompiled"] is None
        told = {chip["name"]: chip["unit"] for chip in found.target["costs"]}
        assert told == {"ethos-u55-128": "NPU cycles", CHIP: "microseconds"}
        done = invoke("inspect", model, "--target", target)
        assert all(re.search(rf"^{name} +5 {unit}$", done.stdout, re.MULTILINE) for name, unit in told.items())
        return
    expected = found.target["forecast"]["penalty"]
    assert expected == sum(found.target[part] for part in ("accelerator_cost", "host_cost", "crossing_cost")) != 5.0
    done = invoke("inspect", model, "--target", target)
    left = "  left +to the CPU by the compiler: none"
    rows = rf"^penalty +5 NPU cycles, compiled\n{left}\nforecast +{expected:,.0f} NPU cycles$"
    assert re.search(rows, done.stdout, re.MULTILINE)


def test_what_a_compiler_refuses_is_not_told_as_accepted(model: Path, fakes: dict[str, FakeCompiler]) -> None:
    refusal = CompilerRefusal("Vela refuses the candidate.")
    fakes["ethos-u55-128"] = FakeCompiler(refusal)
    found = autoselect.inspect(model, target="ethos-u55-128").target
    assert found["refusal"] == found["forecast"]["uncompiled"] == str(refusal)


@pytest.mark.parametrize("error", [UsageError("Vela is missing."), WorkerDied("Vela died of SIGFPE.")])
def test_a_forecast_is_told_as_one(model: Path, fakes: dict[str, FakeCompiler], error: Exception) -> None:
    fakes["ethos-u55-128"] = FakeCompiler(error)
    found = autoselect.inspect(model, target="ethos-u55-128")
    expected = {key: found.fragmentation[key] for key in ("penalty", "segments")}
    assert found.target["forecast"] == expected | {"uncompiled": str(error), "host_ops": {}}
    assert found.target["refusal"] is None
    done = invoke("inspect", model, "--target", "ethos-u55-128")
    assert re.search(rf"^penalty +[\d,]+ NPU cycles, forecast\. Not compiled: {error}$", done.stdout, re.MULTILINE)


def test_places_and_figures_are_both_the_compilers_or_both_a_forecast(
    model: Path, fakes: dict[str, FakeCompiler], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: Any, **_options: Any) -> Partition:
        raise WorkerDied("Vela died of SIGFPE.")

    fakes["ethos-u55-128"] = FakeCompiler()
    monkeypatch.setattr(fakes["ethos-u55-128"], "partition", fails)
    found = autoselect.inspect(model, target="ethos-u55-128").target
    assert found["penalty"] == found["forecast"]["penalty"] != 5.0
    assert found["forecast"]["uncompiled"]


def test_evaluate_tells_what_the_model_is_on_a_target(model: Path, fakes: dict[str, FakeCompiler]) -> None:
    found = autoselect.evaluate(model, evaluation=pump.HELDOUT, target=CHIP)
    plain = autoselect.evaluate(model, evaluation=pump.HELDOUT)
    assert (found.score, plain.target) == (plain.score, None)
    assert found.target == autoselect.inspect(model, target=CHIP).target
    assert (found.penalty, found.segments) == (5.0, 3)
    done = invoke("evaluate", model, "--evaluation", "pump:heldout_pairs", "--target", CHIP)
    assert (done.exit_code, done.stderr) == (0, "")
    for words in (r"accuracy +0\.\d+ ", r"partitions +3$", r"ops left on the CPU +3$", r"penalty +5 microseconds$"):
        assert re.search(f"^{words}", done.stdout, re.MULTILINE)
    assert "integer segments" not in done.stdout


def test_evaluate_tells_of_a_wrong_target_before_the_work(model: Path) -> None:
    with pytest.raises(UsageError, match="'nowhere'"):
        autoselect.evaluate(model, evaluation="no.such:samples", target="nowhere")


def test_evaluate_takes_a_target_without_compiler(model: Path) -> None:
    done = invoke("evaluate", model, "--evaluation", "pump:heldout_pairs", "--target", "litert-cpu")
    assert re.search(r"^penalty +[\d,.]+ CPU cycles$", done.stdout, re.MULTILINE)


# ------------------------------------------------------------------------------------------------ the real ones


def test_a_real_plugin_compiles_for_several_chips(model: Path) -> None:
    """The chip with float16 takes the float model whole; of the other's pieces and left ops every op is one."""
    pytest.importorskip("onnxruntime_qnn")
    whole, integers = autoselect.compile_model(model, target=[CHIP, INTEGERS_ONLY]).models
    assert (whole.partitions, whole.left_ops, whole.left) == (1, 0, [])
    assert integers.left_ops > 0
    numbers = [i for piece in integers.pieces for i in piece["ops"]] + [row["op"] for row in integers.left]
    assert sorted(numbers) == [*range(integers.ops)]
    for made in (whole, integers):
        ops = [op.op_type for op in reader.read_graph(fb.parse(Path(made.path).read_bytes())).ops]
        assert ops.count(DISPATCH_OP) == made.partitions
        assert len(ops) - made.partitions == made.left_ops
    assert whole.ddr_bytes == whole.moved["read_total"] + whole.moved["write_total"] > 0
    assert "LiteRT" in whole.versions
    assert "licence" in whole.licence
    with pytest.raises(ModelError, match="compiled already"):
        autoselect.compile_model(whole.path, target=CHIP)


def test_the_command_prints_what_python_returns(model: Path) -> None:
    pytest.importorskip("onnxruntime_qnn")
    done = invoke("compile", model, "--target", CHIP)
    assert done.exit_code == 0
    for words in (r"for +qualcomm-sm8750", r"partitions +1", r"ops left on the CPU +0 of \d+", r"DDR bytes +\d"):
        assert re.search(f"^{words}", done.stdout, re.MULTILINE)
    assert "licence" in done.stdout
    assert invoke("compile", model, "--target", CHIP).exit_code == UsageError.exit_code
    again = json.loads(invoke("compile", model, "--target", CHIP, "--force", "--json").stdout)
    assert again["models"][0]["path"] == str(model.with_name("pump.qualcomm-sm8750.tflite"))


def test_a_real_plugin_is_asked_by_inspect(model: Path) -> None:
    pytest.importorskip("onnxruntime_qnn")
    found = autoselect.inspect(model, target=f"{CHIP},{INTEGERS_ONLY}")
    names = [chip["name"] for chip in found.target["chips"]]
    left = [chip["left_ops"] for chip in found.target["chips"]]
    assert names == [CHIP, INTEGERS_ONLY]
    assert left[0] == 0 < left[1]
    assert {row["reason"] for row in found.target["chips"][1]["left"]} - {""}


def test_vela_writes_a_file(tmp_path: Path) -> None:
    pytest.importorskip("ethosu")
    (made,) = autoselect.compile_model(model_path(), target="ethos-u55-128", output=tmp_path / "npu.tflite").models
    assert (made.partitions, made.licence) == (0, "")  # A float model has nothing for an Ethos-U.
    assert "none of" in made.warnings[0]
    assert reader.read_graph(fb.parse((tmp_path / "npu.tflite").read_bytes())).ops
