"""What a compiler says of the parts of a blueprint is what it says of the candidates that are made of them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import forecasts
import numpy as np
import pytest
import test_blueprint
import zoo

from autoselect.compilers.litert_plugin import PluginCompiler
from autoselect.domain.graph import Graph, Op, OpKind, Tensor, count_listed
from autoselect.domain.recipe import Recipe
from autoselect.domain.targets import Place
from autoselect.domain.verdicts import judge
from autoselect.errors import JobFailed
from autoselect.quantize.building.blueprint import Blueprint, Conversion, Part, Plan
from autoselect.quantize.building.build import Builder
from autoselect.scoring.target_file import read_target
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Runner

RECIPES = 16

MODELS: Mapping[str, Callable[[], zoo.Prepared]] = {
    "every common op": lambda: zoo.cnn().prepared,
    "several inputs and outputs": lambda: zoo.two_inputs().prepared,
    "branches": test_blueprint.branches,
    "ops that shrink": test_blueprint.shrinking,
    "ops of several outputs": test_blueprint.upsampling,
    "shared weights": test_blueprint.shared_weights,
    "a fused LSTM": lambda: zoo.lstm().prepared,
    "a loop": lambda: zoo.loop().prepared,
}
BASES = {
    "float ends": Recipe(),
    "integer ends": Recipe(io_type="int8"),
    "one scale a tensor": Recipe(per_channel=False),
}


def why(op: Op, tensors: Sequence[Tensor], seed: int) -> str:
    """Why a made-up compiler leaves an op, empty where it takes it: by its type and the types of what it writes alone.

    Of what it reads only an integer's width counts: an op of shapes may read a value in any form.
    """
    made_of = (op.op_type, op.kind.value, *(tensors[t].dtype for t in op.outputs))
    if op.kind is OpKind.BOUNDARY:
        made_of = (*made_of, tensors[op.inputs[0]].dtype)
    leaves = hashlib.sha256(repr((seed, made_of)).encode()).digest()[0] < 110
    return f"no {' '.join(made_of)}" if leaves else ""


def answers(graph: Graph, seed: int) -> list[str]:
    return [why(op, graph.tensors, seed) for op in graph.ops]


class FakeCompiler:
    """Notes the files that it is asked about."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.seen: list[bytes] = []

    def __call__(self, content: bytes) -> Sequence[Mapping[int, str]]:
        self.seen.append(content)
        said = answers(reader.read_graph(fb.parse(content)), self.seed)
        return [{i: reason for i, reason in enumerate(said) if reason}]


def builder(prepared: zoo.Prepared, ask: Any, *, gathers: bool = True) -> Builder:
    return Builder(prepared.calibrated, prepared.nodes, ask=ask, gathers=gathers)


def steps_of(blueprint: Blueprint) -> Iterator[Part | Conversion]:
    for choice in blueprint.choices:
        forms = (choice.integer, choice.left_out, choice.hybrid, choice.int16)
        yield from (part for part in forms if part is not None)
    for chain in blueprint.conversions.values():
        yield from chain


def mixes(prepared: zoo.Prepared, base: Recipe, count: int = RECIPES) -> Iterator[Recipe]:
    yield from forecasts.drawn_recipes(prepared.nodes, base, count, seed=1)
    yield from forecasts.mixed_recipes(prepared.nodes, base, count, seed=2)


def planned(blueprint: Blueprint, prepared: zoo.Prepared, recipe: Recipe) -> Plan:
    denied, floats, wide = (
        [i for i, node in enumerate(prepared.nodes) if forecasts.escaped(node.name) in names]
        for names in (recipe.denylisted_nodes, recipe.float_nodes, recipe.int16_nodes)
    )
    return blueprint.plan(denied, recipe.fallback, floats, wide)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_every_form_and_every_conversion_has_its_answer(make: Callable[[], zoo.Prepared], seed: int) -> None:
    prepared, ask = make(), FakeCompiler(seed)
    blueprint = builder(prepared, ask).blueprint(Recipe(), int16=True)
    steps = list(steps_of(blueprint))
    assert {step.record.left_because for step in steps} != {None}
    assert [s.record.left_because for s in steps] == [why(s.record, blueprint.tensors, seed) for s in steps]
    assert blueprint.unsteady == 0
    # Four whole builds, three mixes without 16 bits, one with them, and few files for what none of them has.
    assert 3 + 4 <= len(ask.seen) <= 4 + 4 + 8
    for index, forms in blueprint.forms.items():
        choice = blueprint.choices[blueprint.indices.index(index)]
        assert forms[choice.integer.record.kind.value] == choice.integer.record.left_because
        assert None not in forms.values()


def test_without_a_compiler_no_form_has_an_answer() -> None:
    blueprint = zoo.cnn().prepared.builder.blueprint(Recipe(), int16=True)
    assert {step.record.left_because for step in steps_of(blueprint)} == {None}
    assert {why for forms in blueprint.forms.values() for why in forms.values()} == {None}
    assert not blueprint.gathers


def test_the_forms_of_an_op_are_those_that_it_has() -> None:
    prepared = test_blueprint.branches()
    forms = prepared.builder.blueprint(Recipe(), int16=True).forms
    named = [(node.op_type, set(forms[node.index])) for node in prepared.nodes]
    assert named.count(("CONV_2D", {"integer", "float", "int16"})) == 2  # Their weights are too few for a hybrid form.
    assert named.count(("CONV_2D", {"integer", "float", "hybrid", "int16"})) == 1
    assert ("MAX_POOL_2D", {"integer", "float", "int16"}) in named
    narrow = prepared.builder.blueprint(Recipe(), int16=False).forms
    assert not any("int16" in of for of in narrow.values())


def row(op: Op, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    return op.op_type, op.kind, tuple((tensors[t].dtype, tensors[t].shape) for t in (*op.inputs, *op.outputs))


@pytest.mark.parametrize("gathers", [False, True], ids=["as they are", "gathered"])
@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_the_forecast_says_of_each_op_what_the_compiler_says_of_the_file(
    make: Callable[[], zoo.Prepared], base: Recipe, gathers: bool
) -> None:
    prepared, seed = make(), 3
    own = builder(prepared, FakeCompiler(seed), gathers=gathers)
    blueprint = own.blueprint(base, int16=True)
    narrow = own.blueprint(base)
    for recipe in mixes(prepared, base):
        plan = planned(blueprint if recipe.int16_nodes else narrow, prepared, recipe)
        candidate = own.build(recipe)
        file = reader.read_graph(fb.parse(candidate.content))
        assert [row(op, plan.graph.tensors) for op in plan.graph.ops] == [row(op, file.tensors) for op in file.ops]
        said = answers(file, seed)
        assert [op.left_because for op in plan.graph.ops] == said
        assert [op.left_because for op in candidate.graph.ops] == said
        for index, place in candidate.places.items():
            assert candidate.places[index] == plan.places[index]
            assert 0 <= place < len(file.ops)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_gathered_ops_make_no_more_runs_and_compute_the_same(make: Callable[[], zoo.Prepared]) -> None:
    prepared, fewer = make(), 0
    plain, gathered = (builder(prepared, FakeCompiler(5), gathers=gathers) for gathers in (False, True))
    for recipe in mixes(prepared, Recipe(), RECIPES // 4):
        one, other = plain.build(recipe), gathered.build(recipe)
        runs, least = (count_listed([op.left_because == "" for op in c.graph.ops]) for c in (one, other))
        assert least <= runs
        fewer += least < runs
        assert forecasts.described(one.graph) == forecasts.described(other.graph)
        assert (len(one.content), one.kinds) == (len(other.content), other.kinds)
        left, right = (Runner(candidate.content) for candidate in (one, other))
        for sample in prepared.fed():
            before, after = left(sample), right(sample)
            assert before.keys() == after.keys()
            for key, value in before.items():
                np.testing.assert_array_equal(value, after[key])


def test_gathering_makes_fewer_runs_of_some_models() -> None:
    prepared = test_blueprint.branches()
    saved = 0
    for seed in range(4):
        plain, gathered = (builder(prepared, FakeCompiler(seed), gathers=g) for g in (False, True))
        for recipe in mixes(prepared, Recipe(), 4):
            runs = [
                count_listed([op.left_because == "" for op in own.build(recipe).graph.ops]) for own in (plain, gathered)
            ]
            saved += runs[0] - runs[1]
    assert saved > 0


def test_an_op_with_an_effect_beside_its_outputs_keeps_all_in_place() -> None:
    prepared = zoo.prepare(zoo.remembering())
    for recipe in mixes(prepared, Recipe(), 6):
        plain, gathered = (
            builder(prepared, FakeCompiler(7), gathers=gathers).build(recipe) for gathers in (False, True)
        )
        assert any(not op.outputs for op in plain.graph.ops)
        assert plain.content == gathered.content


def test_an_ops_place_is_where_it_was_moved_to() -> None:
    prepared = test_blueprint.branches()
    own = builder(prepared, FakeCompiler(5))
    float_graph = reader.read_graph(fb.parse(prepared.calibrated.content))
    for recipe in mixes(prepared, Recipe(), 4):
        candidate = own.build(recipe)
        for index, place in candidate.places.items():
            made, before = candidate.graph.ops[place], float_graph.ops[index]
            shapes = [
                [g.tensors[t].shape for t in op.outputs] for g, op in ((candidate.graph, made), (float_graph, before))
            ]
            assert shapes[0] == shapes[1]


class Swayed(FakeCompiler):
    """Leaves what its seed says, and every op of one type in models whose weights are not the first model's."""

    def __init__(self, seed: int, op_type: str) -> None:
        super().__init__(seed)
        self._op_type, self.is_swayed = op_type, False

    def __call__(self, content: bytes) -> Sequence[Mapping[int, str]]:
        [left] = super().__call__(content)
        ops = reader.read_graph(fb.parse(content)).ops
        swayed = {i: "swayed" for i, op in enumerate(ops) if op.op_type == self._op_type}
        return [{**left, **swayed} if self.is_swayed else left]


REPAIRED = {
    "biases": ("bias",),
    "ranges": ("ranges-mse",),
    "weights and biases": ("bias", "equalization"),
}


@pytest.mark.parametrize("repairs", REPAIRED.values(), ids=REPAIRED)
@pytest.mark.parametrize("make", [MODELS["every common op"], MODELS["branches"]], ids=["every common op", "branches"])
def test_other_repairs_take_one_question_more(make: Callable[[], zoo.Prepared], repairs: tuple[str, ...]) -> None:
    prepared, ask = make(), FakeCompiler(2)
    own = Builder(prepared.calibrated, prepared.nodes, prepared.kit, ask)
    own.blueprint(Recipe(), int16=True)
    before = len(ask.seen)
    blueprint = own.blueprint(Recipe(repairs=repairs), int16=True)
    assert len(ask.seen) == before + 1
    assert [s.record.left_because for s in steps_of(blueprint)] == [
        why(s.record, blueprint.tensors, ask.seed) for s in steps_of(blueprint)
    ]


def test_a_compiler_that_answers_otherwise_of_other_repairs_is_asked_about_all() -> None:
    prepared, ask = zoo.cnn().prepared, Swayed(2, "CONV_2D")
    own = Builder(prepared.calibrated, prepared.nodes, prepared.kit, ask)
    plain = own.blueprint(Recipe(), int16=True)
    before, ask.is_swayed = len(ask.seen), True
    repaired = own.blueprint(Recipe(repairs=("bias",)), int16=True)
    assert len(ask.seen) - before >= 1 + 4 + 3  # One that contradicts, then the four whole builds and three mixes.
    for blueprint, words in ((plain, False), (repaired, True)):
        reasons = {s.record.left_because for s in steps_of(blueprint) if s.record.op_type == "CONV_2D"}
        assert (reasons == {"swayed"}) is words


class Moody(FakeCompiler):
    """Leaves a convolution only in models that have a hybrid op, too."""

    def __call__(self, content: bytes) -> Sequence[Mapping[int, str]]:
        self.seen.append(content)
        ops = reader.read_graph(fb.parse(content)).ops
        if not any(op.kind is OpKind.HYBRID for op in ops) or all(op.kind is not OpKind.INTEGER for op in ops):
            return [{}]
        return [{i: "it is moody" for i, op in enumerate(ops) if op.op_type == "CONV_2D"}]


def test_what_is_left_in_one_model_and_taken_in_another_counts_as_left() -> None:
    prepared = test_blueprint.branches()
    blueprint = builder(prepared, Moody(0)).blueprint(Recipe(), int16=True)
    assert blueprint.unsteady > 0
    records = [step.record for step in steps_of(blueprint)]
    hybrid = [op.left_because for op in records if (op.op_type, op.kind) == ("CONV_2D", OpKind.HYBRID)]
    assert hybrid == ["it is moody"]
    others = {op.left_because for op in records if op.op_type != "CONV_2D"}
    assert others == {""}


def test_several_chips_have_an_answer_each() -> None:
    prepared = zoo.cnn().prepared
    first, second = FakeCompiler(0), FakeCompiler(1)

    def both(content: bytes) -> Sequence[Mapping[int, str]]:
        return [*first(content), *second(content)]

    blueprint = builder(prepared, both).blueprint(Recipe(), int16=True)
    for step in steps_of(blueprint):
        said = tuple(why(step.record, blueprint.tensors, seed) for seed in (0, 1))
        assert step.record.answers == said
        assert step.record.left_because == (said[0] or said[1])


def test_a_compiler_that_fails_fails_the_blueprint() -> None:
    def fails(_content: bytes) -> Sequence[Mapping[int, str]]:
        raise JobFailed("No space left on device.")

    with pytest.raises(JobFailed, match="No space"):
        builder(zoo.cnn().prepared, fails).blueprint(Recipe())


# ------------------------------------------------------------------------------------------------ the real compiler

REAL = {
    "every common op": lambda: zoo.cnn().prepared,
    "branches": test_blueprint.branches,
}


@functools.cache
def as_it_is(name: str) -> zoo.Prepared:
    """Prepared once for both chips."""
    return REAL[name]()


@pytest.mark.parametrize("chip", ["sm8750", "sm8735"])
@pytest.mark.parametrize("name", REAL)
def test_the_forecast_is_the_real_compilers_partition(name: str, chip: str) -> None:
    pytest.importorskip("onnxruntime_qnn")
    target, prepared = read_target(f"qualcomm-{chip}"), as_it_is(name)
    compiler = PluginCompiler(target)

    def left(content: bytes) -> Mapping[int, str]:
        return compiler.partition(content, timeout_seconds=120.0).left

    own = builder(prepared, lambda content: [left(content)])
    seen = {"16 bits": 0, "left": 0, "pieces": 0}
    for recipe in forecasts.mixed_recipes(prepared.nodes, Recipe(), 10, seed=4):
        candidate = own.build(recipe)
        found, real = judge(candidate.graph, target), compiler.partition(candidate.content, timeout_seconds=120.0)
        assert found.segments == len(real.pieces)
        assert {i for i, p in enumerate(found.placements) if p.place is not Place.ACCELERATOR} == set(real.left)
        seen["16 bits"] += "int16" in candidate.kinds.values()
        seen["left"] += len(real.left)
        seen["pieces"] += len(real.pieces)
    assert own.blueprint(Recipe(), int16=True).unsteady == 0
    assert min(seen.values()) > 0
