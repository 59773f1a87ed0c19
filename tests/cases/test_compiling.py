"""What is kept of asking a compiler; the compiler itself is a fake."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import cloudpickle
import pytest
import zoo

from autoselect.cases.compiling import (
    UNKEPT,
    Compiling,
    any_spills,
    compile_candidate,
    compile_report,
    least_cost,
    look_at,
    partition,
    read_for,
)
from autoselect.cases.files import CaseFiles
from autoselect.cases.prepare import write_scoring
from autoselect.cases.settings import SearchSettings
from autoselect.cases.settled import Facts, settle
from autoselect.compilers.compiler import Partition
from autoselect.domain.graph import Graph
from autoselect.domain.targets import Compiled, LitertPlugin, Place, Seen, Target, as_seen
from autoselect.domain.verdicts import Placement, Verdict, judge, moves_beside
from autoselect.errors import CompilerRefusal, JobFailed, ModelError, UsageError, WorkerDied
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.target_file import read_target

U55, PHONE = read_target("ethos-u55-128"), read_target("qualcomm-sm8750")
DONE = Compiled(segments=2, host_ops={"CONV_2D": 1}, crossing_bytes=64, cycles=900, cost=1000.0)
TAKEN = Partition(pieces=((0, 2), (4,)), left={1: "no kernel", 3: "too wide"})
PREDICTED = Verdict(
    placements=(), segments=2, crossings=(), crossing_bytes=64, accelerator_cost=0.0, host_cost=0.0, crossing_cost=0.0
)


class FakeCompiler:
    """Gives its answers one after the other and counts how often it is asked."""

    def __init__(self, *answers: Compiled | Partition | Exception) -> None:
        self.answers, self.calls, self.version = list(answers), 0, "5.2.0"

    def require(self) -> None:
        pass

    def versions(self) -> Mapping[str, str]:
        return {"fake": self.version}

    def compile(self, content: bytes, *, timeout_seconds: float) -> Compiled:
        found = self.answer()
        assert isinstance(found, Compiled)
        return found

    def partition(self, content: bytes, *, timeout_seconds: float) -> Partition:
        found = self.answer()
        assert isinstance(found, Partition)
        return found

    def answer(self) -> Compiled | Partition:
        self.calls += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def install(monkeypatch: pytest.MonkeyPatch, *answers: Compiled | Partition | Exception) -> FakeCompiler:
    fake = FakeCompiler(*answers)
    monkeypatch.setattr("autoselect.cases.compiling.compiler_of", lambda _target: fake)
    return fake


def kept_in(folder: Path | None) -> Compiling:
    return Compiling(cache_root=folder, timeout_seconds=1.0)


def report(tmp_path: Path | None, content: bytes = b"model", target: Target = U55) -> dict[str, object]:
    return compile_report(content, target, PREDICTED, kept_in(tmp_path))


def test_equal_bytes_are_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = install(monkeypatch, DONE)
    first = report(tmp_path)
    assert (first["cost"], first["cycles"], first["agrees"]) == (1000.0, 900, True)
    assert report(tmp_path) == first
    assert fake.calls == 1


def test_which_ops_are_taken_is_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = install(monkeypatch, TAKEN)
    for _ in range(2):
        found = partition(b"model", PHONE, kept_in(tmp_path))
        assert (found.pieces, dict(found.left)) == (TAKEN.pieces, TAKEN.left)
    assert fake.calls == 1


def test_what_is_asked_tells_answers_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = install(monkeypatch, TAKEN, DONE)
    partition(b"model", PHONE, kept_in(tmp_path))
    assert report(tmp_path, target=PHONE)["segments"] == 2
    assert fake.calls == 2


assert PHONE.accelerator is not None
assert isinstance(PHONE.compiler, LitertPlugin)
OTHERS = {
    "other bytes": {"content": b"another"},
    "another name": {"target": replace(U55, name="my-chip")},
    "another price": {"target": replace(U55, crossing_fixed=1.0)},
    "another price of a piece": {"target": replace(U55, piece_fixed=1.0)},
    "another price of a byte": {"target": replace(U55, ddr_per_byte=1.0)},
    "another price of the accelerator": {"target": replace(U55, accelerator=PHONE.accelerator)},
    "another price of the host": {"target": replace(U55, host=PHONE.host)},
    "another system": {"target": replace(U55, compiler=read_target("ethos-u65-256").compiler)},
    "another chip": {"target": replace(U55, compiler=PHONE.compiler)},
    "other libraries": {"target": replace(U55, compiler=replace(PHONE.compiler, libraries="/elsewhere"))},
}


@pytest.mark.parametrize("changed", OTHERS.values(), ids=OTHERS)
def test_what_changes_the_result_is_compiled_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changed: dict[str, object]
) -> None:
    fake = install(monkeypatch, DONE, replace(DONE, segments=3))
    report(tmp_path)
    assert not report(tmp_path, **changed)["agrees"]  # type: ignore[arg-type]
    assert fake.calls == 2


def test_another_version_is_asked_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = install(monkeypatch, DONE, replace(DONE, segments=3))
    report(tmp_path)
    fake.version = "5.3.0"
    assert not report(tmp_path)["agrees"]


def test_without_a_cache_everything_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, DONE, DONE)
    assert report(None) == report(None)
    assert fake.calls == 2


def test_a_refusal_is_kept_with_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = install(monkeypatch, CompilerRefusal("Vela refuses the candidate: no float LSTM"))
    for _ in range(2):
        with pytest.raises(CompilerRefusal, match="float LSTM"):
            report(tmp_path)
    assert fake.calls == 1


FAILURES = {
    "it hung": WorkerDied("Vela took longer than 1 s"),
    "it was killed": WorkerDied("Vela died of SIGKILL"),
    "it failed": JobFailed("No space left on device"),
    "a library is missing": UsageError("The libraries are not there."),
    "it wrote no model": ModelError("This is no TensorFlow Lite file."),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_a_compiler_that_failed_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failure: Exception
) -> None:
    fake = install(monkeypatch, failure, DONE)
    with pytest.raises(type(failure)):
        report(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert report(tmp_path)["segments"] == 2
    assert fake.calls == 2


DAMAGED = {
    "cut short": '{"said": {"segments": 2, "host',
    "empty": "",
    "no object": "[1, 2]",
    "of another version": json.dumps({"segments": 2, "cost": 1.0}),
    "neither said nor refused": "{}",
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_entry_is_asked_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    fake = install(monkeypatch, DONE, DONE)
    report(tmp_path)
    (entry,) = tmp_path.glob("*.json")
    entry.write_text(text)
    assert report(tmp_path)["segments"] == 2
    assert fake.calls == 2
    assert report(tmp_path)["segments"] == 2
    assert fake.calls == 2


def test_an_entry_whose_bytes_are_no_text_is_asked_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = install(monkeypatch, TAKEN, TAKEN)
    partition(b"model", PHONE, kept_in(tmp_path))
    (entry,) = tmp_path.glob("*.json")
    entry.write_bytes(b"\xff\xfe\x00")
    assert partition(b"model", PHONE, kept_in(tmp_path)).pieces == TAKEN.pieces
    assert fake.calls == 2


def test_a_graph_is_read_with_what_the_compiler_says(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, TAKEN)
    content = zoo.cnn().float_model
    graph = read_for(content, PHONE, UNKEPT)
    assert [op.left_because for op in graph.ops] == [TAKEN.left.get(i, "") for i in range(len(graph.ops))]
    assert fake.calls == 1


def test_where_no_compiler_decides_none_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch)
    assert {op.left_because for op in read_for(zoo.cnn().float_model, U55, None).ops} == {None}
    assert fake.calls == 0


ALL_TAKEN = Partition(pieces=((0,),), left={})


def test_what_ops_move_beside_their_constants_is_read_off_compiled_models(monkeypatch: pytest.MonkeyPatch) -> None:
    content = zoo.cnn().float_model
    install(monkeypatch, ALL_TAKEN)
    graph = read_for(content, PHONE, UNKEPT)
    estimated, moving = judge(graph, PHONE).ddr_bytes, sum(map(moves_beside, graph.ops))
    assert moving > 0
    install(monkeypatch, Compiled(ddr_bytes=estimated + 300 * moving))
    assert look_at([(content, graph)], PHONE, UNKEPT) == Seen(ddr_per_op={"float": 300.0})


MOVED = {
    "less than estimated": ((ALL_TAKEN, Compiled(ddr_bytes=1)), {"float": 0.0}),
    "a form that is taken and not compiled": ((ALL_TAKEN, JobFailed("rc 3")), {}),
    "nothing is taken": ((Partition(pieces=(), left=dict.fromkeys(range(99), "no")),), {}),
    "the same form again": ((ALL_TAKEN, ALL_TAKEN, Compiled(ddr_bytes=1)), {"float": 0.0}),
}


@pytest.mark.parametrize(("answers", "expected"), MOVED.values(), ids=MOVED)
def test_forms_of_which_nothing_is_known_are_left_out(
    monkeypatch: pytest.MonkeyPatch, answers: tuple[Compiled | Partition | Exception, ...], expected: dict[str, float]
) -> None:
    fake = install(monkeypatch, *answers)
    content = zoo.cnn().float_model
    models = [(content, read_for(content, PHONE, UNKEPT)) for answer in answers if isinstance(answer, Partition)]
    assert look_at(models, PHONE, UNKEPT) == Seen(ddr_per_op=expected)
    assert not fake.answers


def moving(spilled: int) -> Compiled:
    return Compiled(ddr_bytes=1 + 2 * spilled, moved={"spill": spilled, "fill": spilled})


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, Graph]:
    content = zoo.cnn().float_model
    install(monkeypatch, ALL_TAKEN)
    return content, read_for(content, PHONE, UNKEPT)


@pytest.mark.parametrize("spilled", [0, 5])
def test_a_whole_model_that_spills_is_seen_and_what_spills_is_no_ops(
    monkeypatch: pytest.MonkeyPatch, model: tuple[bytes, Graph], spilled: int
) -> None:
    install(monkeypatch, moving(spilled))
    assert look_at([model], PHONE, UNKEPT) == Seen(ddr_per_op={"float": 0.0}, spills=spilled > 0)


MIXES = {
    "none": ((moving(0), moving(0), moving(0)), False, 0),
    "the second, so the third is not compiled": ((moving(0), moving(5)), True, 1),
    "one that does not compile says nothing": ((JobFailed("rc 3"), moving(0), moving(5)), True, 0),
}


@pytest.mark.parametrize(("answers", "spills", "spared"), MIXES.values(), ids=MIXES)
def test_mixes_are_compiled_until_one_spills(
    monkeypatch: pytest.MonkeyPatch,
    model: tuple[bytes, Graph],
    answers: tuple[Compiled | Exception, ...],
    spills: bool,
    spared: int,
) -> None:
    fake, drawn = install(monkeypatch, *answers), iter([model] * 3)
    assert any_spills(drawn, PHONE, UNKEPT) is spills
    assert not fake.answers
    assert len(list(drawn)) == spared


def test_of_several_chips_a_candidate_is_compiled_for_those_that_spill(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as dear as it is on the chip where it is dearest."""
    content, several = zoo.cnn().float_model, read_target("qualcomm-sm8750,qualcomm-sm8650")
    install(monkeypatch, ALL_TAKEN, ALL_TAKEN)
    graph = read_for(content, several, UNKEPT)
    seen = as_seen(several, [Seen(best=2.0, spills=True), Seen(best=1.0)])
    plain = judge(graph, seen)
    made = replace(moving(5), segments=plain.segments)
    for cost, worst in ((1000.0 + plain.cost, 500.0 + plain.cost / 2), (0.0, plain.cost)):
        fake = install(monkeypatch, replace(made, cost=cost))
        found = compile_candidate(content, graph, seen, plain, replace(UNKEPT, each=False))
        assert found["cost"] == pytest.approx(worst)
        assert found["predicted_cost"] == plain.cost
        assert found["agrees"]
        assert not fake.answers


def test_of_several_chips_without_lists_of_their_compilers_a_candidate_is_compiled_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The compilers' figures count in place of the profiles', each in units of the chip's own best."""
    content, several = zoo.cnn().float_model, read_target("ethos-u55-128,ethos-u85-256,tflm")
    graph = read_for(content, several, UNKEPT)
    seen = as_seen(several, [Seen(best=2.0), Seen(best=5.0), Seen(best=1e12)])
    fake = install(monkeypatch, replace(DONE, segments=3), replace(DONE, segments=1, cost=4000.0, crossing_tensors=7))
    found = compile_candidate(content, graph, seen, replace(judge(graph, seen), segments=9), UNKEPT)
    assert (found["cost"], found["segments"], found["crossing_tensors"]) == (800.0, 3, 7)
    assert (found["predicted_segments"], fake.answers) == (9, [])


def test_of_several_chips_one_refusal_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    content, several = zoo.cnn().float_model, read_target("ethos-u55-128,ethos-u85-256")
    graph = read_for(content, several, UNKEPT)
    install(monkeypatch, DONE, CompilerRefusal("too wide"))
    with pytest.raises(CompilerRefusal, match="too wide"):
        compile_candidate(content, graph, several, judge(graph, several), UNKEPT)


@pytest.mark.parametrize(
    ("target", "compiling", "compiles"),
    [
        ("ethos-u55-128", True, True),
        ("ethos-u55-128,ethos-u85-256", True, True),
        ("ethos-u55-128,tflm", True, True),
        ("edgetpu,tflm", True, False),
        ("ethos-u55-128,ethos-u85-256", False, False),
    ],
)
def test_which_targets_every_candidate_is_compiled_for(
    tmp_path: Path, target: str, compiling: bool, compiles: bool
) -> None:
    chosen = settle(SearchSettings(target=target, compiling=compiling), Facts())
    write_scoring(files := CaseFiles(root=tmp_path), make_metric("accuracy"), None, chosen)
    how = cloudpickle.loads(files.scoring.read_bytes()).compiling
    assert (how is not None and how.each) is compiles


COSTS = {
    "the cheapest counts": ((30.0, 20.0), (False, False), None, 20.0),
    "not what is refused": ((30.0, 20.0), (False, True), None, 30.0),
    "what is refused, if all is": ((30.0, 20.0), (True, True), None, 20.0),
    "by the compiler": ((30.0, 20.0), (False, False), DONE, 1000.0),
    "by the compiler, not the profile": ((20.0, 30.0), (False, False), (DONE, replace(DONE, cost=900.0)), 900.0),
    "the next one, if the cheapest is refused": (
        (30.0, 20.0),
        (False, False),
        (CompilerRefusal("too wide"), DONE),
        1000.0,
    ),
    "not by a compiler that fails": ((30.0, 20.0), (False, False), JobFailed("rc 3"), 20.0),
}


@pytest.mark.parametrize(("costs", "refused", "answer", "least"), COSTS.values(), ids=COSTS)
def test_what_the_cheapest_model_costs(
    monkeypatch: pytest.MonkeyPatch,
    costs: tuple[float, float],
    refused: tuple[bool, bool],
    answer: Compiled | Exception | tuple[Compiled | Exception, ...] | None,
    least: float,
) -> None:
    """Ops that run nowhere cost nothing, so that a refused model would look cheap."""
    install(monkeypatch, *(answer if isinstance(answer, tuple) else [answer] * 2))
    nowhere = Placement(place=Place.NOWHERE, precision=None, refused_by="runtime")
    models = [
        (b"model", replace(PREDICTED, host_cost=cost, placements=(nowhere,) if is_refused else ()))
        for cost, is_refused in zip(costs, refused, strict=True)
    ]
    assert least_cost(models, U55, None if answer is None else UNKEPT) == least
