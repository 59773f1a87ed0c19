"""Targets whose compiler says of each op whether the accelerator takes it; what it says is made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoselect.domain.graph import Graph, Op, OpKind, Tensor, with_answers
from autoselect.domain.target_islands import computing_in, islands, without
from autoselect.domain.targets import Kernels, LitertPlugin, Memory, Place, Precision, Processor, Rule, Target
from autoselect.domain.verdicts import judge, may_spill, pins

KINDS = {
    "i": OpKind.INTEGER,
    "w": OpKind.INT16,
    "h": OpKind.HYBRID,
    "f": OpKind.FLOAT,
    "b": OpKind.BOUNDARY,
    "n": OpKind.NEUTRAL,
}
ELEMENTS = 10
SIZES = {"i": 10, "w": 20, "h": 40, "f": 40, "b": 40, "n": 8}
WHY = "it has no such op"


def kernels(per_mac: float, per_element: float) -> Kernels:
    return Kernels(ops=None, per_mac=per_mac, per_element=per_element)


CHIP = Target(
    name="chip",
    why="",
    unit="microseconds",
    accelerator=Processor(name="the NPU", kernels={p: kernels(0.01, 0.1) for p in Precision}),
    host=Processor(name="the CPU", kernels={p: kernels(1.0, 2.0) for p in Precision}),
    segments="listed",
    crossing_fixed=50.0,
    crossing_per_byte=0.5,
    io_type=None,
    per_channel=True,
    compiler=LitertPlugin(manufacturer="Acme", soc_model="X1"),
    piece_fixed=1000.0,
    ddr_per_byte=0.25,
)
# An op of 100 multiply-accumulates costs 0.01 x 100 + 0.1 x 10 = 2 on the NPU and 100 + 20 = 120 on the CPU.


def graph(
    ops: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]], outputs: tuple[int, ...], inputs: int = 1
) -> Graph:
    """Ops as (kind, tensors read, tensors written); a tensor is of the kind of the op that writes it."""
    letters = dict.fromkeys(range(inputs), "f") | {t: kind for kind, _, writes in ops for t in writes}
    tensors = [
        Tensor(name=f"t{t}", dtype=kind, shape=(1, ELEMENTS), is_constant=False, size_bytes=SIZES[kind])
        for t, kind in sorted(letters.items())
    ]
    made = [
        Op(op_type=kind.upper(), kind=KINDS[kind], inputs=reads, constants=(), outputs=writes, macs=100)
        for kind, reads, writes in ops
    ]
    return Graph(tensors=tuple(tensors), ops=tuple(made), inputs=tuple(range(inputs)), outputs=outputs)


def chain(kinds: str, sides: str) -> Graph:
    """A chain of ops of these kinds; ``.`` is left by the compiler, ``#`` is taken."""
    drawn = graph([(kind, (i,), (i + 1,)) for i, kind in enumerate(kinds)], (len(kinds),))
    return with_answers(drawn, {i: WHY for i, side in enumerate(sides) if side == "."})


RUNS = {
    "nothing is taken": ("fff", "...", 0),
    "all is taken": ("fif", "###", 1),
    "an op that is left": ("iii", "#.#", 2),
    "left ops in a row": ("ifwi", "#..#", 2),
    "left at the ends": ("iii", ".#.", 1),
    "shapes and indices cut, too": ("ini", "#.#", 2),
    "shapes and indices that are taken do not": ("ini", "###", 1),
    "the conversion of an input cuts": ("bii", "#.#", 2),
    "float is no reason to leave": ("ifi", "###", 1),
}


@pytest.mark.parametrize(("kinds", "sides", "runs"), RUNS.values(), ids=RUNS)
def test_pieces_are_runs_of_what_is_taken(kinds: str, sides: str, runs: int) -> None:
    found = judge(chain(kinds, sides), CHIP)
    assert found.segments == runs
    assert [p.place for p in found.placements] == [Place.ACCELERATOR if s == "#" else Place.HOST for s in sides]
    assert [p.reason for p in found.placements] == ["" if s == "#" else WHY for s in sides]
    assert found.left_ops == sides.count(".")
    assert found.refused() == ()


def test_pieces_follow_the_order_of_the_file() -> None:
    branches = [("i", (0,), (1,)), ("f", (0,), (2,)), ("i", (0,), (3,)), ("i", (1, 2, 3), (4,))]
    parallel = with_answers(graph(branches, (4,)), {1: WHY})
    assert judge(parallel, CHIP).segments == 2
    moved = replace(parallel, ops=tuple(parallel.ops[i] for i in (1, 0, 2, 3)))
    assert judge(moved, CHIP).segments == 1
    assert judge(parallel, CHIP).left_ops == judge(moved, CHIP).left_ops == 1


@given(st.lists(st.sampled_from(list(KINDS)), max_size=12), st.data())
def test_runs_and_left_ops_are_counted(kinds: list[str], data: st.DataObject) -> None:
    sides = data.draw(st.text("#.", min_size=len(kinds), max_size=len(kinds)))
    found = judge(chain("".join(kinds), sides), CHIP)
    assert found.segments == len([run for run in sides.split(".") if run])
    assert found.left_ops == sides.count(".")


NOT_ASKED = {
    "of no op": lambda drawn: replace(drawn, ops=tuple(replace(op, left_because=None) for op in drawn.ops)),
    "not of one": lambda drawn: replace(drawn, ops=(*drawn.ops[:-1], replace(drawn.ops[-1], left_because=None))),
}


@pytest.mark.parametrize("forget", NOT_ASKED.values(), ids=NOT_ASKED)
@pytest.mark.parametrize("kinds", ["iii", "iin"])
def test_what_the_compiler_was_not_asked_is_not_guessed(forget: object, kinds: str) -> None:
    drawn = forget(chain(kinds, "###"))  # type: ignore[operator]
    with pytest.raises(ValueError, match="compiler of"):
        judge(drawn, CHIP)
    with pytest.raises(ValueError, match="compiler of"):
        islands(drawn, CHIP, lambda _: 0.0)


def test_lists_and_limits_of_the_profile_are_no_matter() -> None:
    narrow = Processor(
        name="the NPU", kernels={Precision.INT8: Kernels(ops=frozenset(), per_mac=0.01, per_element=0.1)}, max_rank=1
    )
    drawn = chain("iii", "#.#")
    assert judge(drawn, replace(CHIP, accelerator=narrow)) == judge(drawn, CHIP)


def test_what_the_host_has_no_kernel_for_runs_nowhere() -> None:
    no_hybrid = {p: k for p, k in CHIP.host.kernels.items() if p is not Precision.HYBRID}
    target = replace(CHIP, host=replace(CHIP.host, kernels=no_hybrid))
    found = judge(chain("hh", "#."), target)
    assert [p.place for p in found.placements] == [Place.ACCELERATOR, Place.NOWHERE]
    assert (found.refused("runtime"), found.left_ops) == ((1,), 1)


def test_a_hard_rule_comes_before_the_compiler() -> None:
    rule = Rule(ops=frozenset({"H"}), precisions=frozenset({Precision.HYBRID}), by="compiler", why="dislikes H")
    found = judge(chain("ihi", "###"), replace(CHIP, rules=(rule,)))
    assert (found.refused("compiler"), found.placements[1].reason) == ((1,), "dislikes H")
    assert found.segments == 2


def test_before_any_candidate_nothing_is_refused() -> None:
    drawn = graph([("f", (0,), (1,)), ("f", (1,), (2,))], (2,))
    found = pins(drawn, range(2), CHIP, hybrid=True)
    assert (found.keep_int, found.keep_float, found.impossible, found.not_int16) == ({}, {}, {}, {})


# ------------------------------------------------------------------------------------------------- what it costs

# t0 40 bytes, f -> t1 40 | i -> t2 10 | b -> t3 40 | f -> t4 40.
CROSSINGS = {
    "none": ("fib", "###", ()),
    "into and out of a left op": ("iii", "#.#", (1, 2)),
    "the conversion of the input counts": ("bii", ".##", (1,)),
    "the conversion of the output counts": ("iib", "##.", (2,)),
    "the model's own ends do not": ("iii", "...", ()),
}


@pytest.mark.parametrize(("kinds", "sides", "crossings"), CROSSINGS.values(), ids=CROSSINGS)
def test_what_one_side_writes_and_the_other_reads_crosses(kinds: str, sides: str, crossings: tuple[int, ...]) -> None:
    drawn = chain(kinds, sides)
    found = judge(drawn, CHIP)
    sizes = [drawn.tensors[t].size_bytes for t in crossings]
    assert (found.crossings, found.crossing_bytes) == (crossings, sum(sizes))
    assert found.crossing_cost == 50.0 * len(sizes) + 0.5 * sum(sizes)


def with_constants(drawn: Graph, *sizes: int) -> Graph:
    ops = (replace(op, constant_bytes=size) for op, size in zip(drawn.ops, sizes, strict=True))
    return replace(drawn, ops=tuple(ops))


def forked(*left: int) -> Graph:
    """The first op's output is read by both others and is an output of the model; the second reads it twice."""
    ops = [("i", (0,), (1,)), ("i", (1, 1), (2,)), ("f", (1,), (3,)), ("i", (2, 3), (4,))]
    return with_answers(graph(ops, (1, 4)), dict.fromkeys(left, WHY))


DDR = {
    "nothing is taken": (chain("iii", "..."), 0),
    "the ends of one piece": (chain("iii", "###"), 40 + 10),
    "the ends of two pieces": (chain("iii", "#.#"), (40 + 10) + (10 + 10)),
    "constants": (with_constants(chain("iwh", "###"), 100, 200, 300), 40 + 40 + 600),
    "constants of left ops": (with_constants(chain("iwh", "#.#"), 100, 200, 300), (40 + 10) + (20 + 40) + 400),
    "float constants have 16 bits": (with_constants(chain("fi", "##"), 1000, 100), 40 + 10 + 500 + 100),
    # The first piece reads t0 and leaves t1 and t2; the last reads t2 and t3 and leaves t4.
    "written once though read twice and an output": (forked(2), 40 + (10 + 10) + (10 + 40) + 10),
    # The first reads t0 and leaves t1; the second reads t1 and t2 and leaves t4.
    "read again by another piece": (forked(1), 40 + 10 + (10 + 10) + 10),
    "within a piece only what is an output leaves it": (forked(), 40 + 10 + 10),
    "read by two pieces": (
        with_answers(graph([("i", (0,), (1,)), ("f", (0,), (2,)), ("i", (0,), (3,))], (1, 2, 3)), {1: WHY}),
        (40 + 10) + (40 + 10),
    ),
}


@pytest.mark.parametrize(("drawn", "moved"), DDR.values(), ids=DDR)
def test_bytes_that_pieces_read_and_write_by_hand(drawn: Graph, moved: int) -> None:
    assert judge(drawn, CHIP).ddr_bytes == moved
    free = judge(drawn, replace(CHIP, ddr_per_byte=0.0))
    assert free.ddr_bytes == 0
    assert judge(drawn, CHIP).cost - free.cost == pytest.approx(0.25 * moved)


# A piece costs 1,000 beyond the first.
COSTS = {
    "all on the NPU": ("iii", "###", 3 * 2.0 + 0.25 * 50),
    "all on the CPU": ("iii", "...", 3 * 120.0),
    "an op on the CPU": ("iii", "#.#", 2 * 2.0 + 120.0 + 1000.0 + 0.25 * 70 + 2 * 50.0 + 0.5 * 20),
    "shapes cost nothing but what they cut": ("ini", "#.#", 2 * 2.0 + 1000.0 + 0.25 * 68 + 2 * 50.0 + 0.5 * 18),
}


@pytest.mark.parametrize(("kinds", "sides", "cost"), COSTS.values(), ids=COSTS)
def test_what_a_model_costs_by_hand(kinds: str, sides: str, cost: float) -> None:
    found = judge(chain(kinds, sides), CHIP)
    assert found.cost == pytest.approx(cost)
    parts = (found.accelerator_cost, found.host_cost, found.crossing_cost, found.piece_cost)
    assert found.cost == pytest.approx(sum(parts))


@given(st.lists(st.sampled_from("iwhfn"), min_size=1, max_size=8), st.data())
def test_the_order_of_independent_ops_changes_pieces_and_no_compute(kinds: list[str], data: st.DataObject) -> None:
    star = graph([(kind, (0,), (i + 1,)) for i, kind in enumerate(kinds)], tuple(range(1, len(kinds) + 1)))
    left = data.draw(st.sets(st.integers(0, len(kinds) - 1)))
    drawn = with_answers(star, dict.fromkeys(left, WHY))
    order = data.draw(st.permutations(range(len(kinds))))
    one, other = judge(drawn, CHIP), judge(replace(drawn, ops=tuple(drawn.ops[i] for i in order)), CHIP)
    assert one.accelerator_cost == pytest.approx(other.accelerator_cost)
    assert one.host_cost == pytest.approx(other.host_cost)
    assert (one.left_ops, one.crossings) == (other.left_ops, other.crossings)


# ------------------------------------------------------------------------------------------------------- islands


def cost_of(drawn: Graph) -> float:
    return judge(drawn, CHIP).cost


ISLANDS = {
    "all is taken": ("ifhwn", "#####", []),
    "one op": ("iii", "#.#", [(1,)]),
    "connected ops": ("iiii", "#..#", [(1, 2)]),
    "two": ("iiiii", "#.#.#", [(1,), (3,)]),
    "float that is taken is none": ("ifi", "##.", [(2,)]),
    "shapes, too": ("ini", "#.#", [(1,)]),
    "a conversion of the interface, too": ("bii", ".##", [(0,)]),
}


@pytest.mark.parametrize(("kinds", "sides", "found"), ISLANDS.values(), ids=ISLANDS)
def test_islands_are_what_the_compiler_leaves(kinds: str, sides: str, found: list[tuple[int, ...]]) -> None:
    assert [island.ops for island in islands(chain(kinds, sides), CHIP, cost_of)] == found


def test_an_island_costs_what_its_ops_would_save_on_the_accelerator() -> None:
    (island,) = islands(chain("iii", "#.#"), CHIP, cost_of)
    assert island.gain == pytest.approx(cost_of(chain("iii", "#.#")) - cost_of(chain("iii", "###")))


def test_ops_that_are_taken_into_integers_are_taken_by_the_compiler() -> None:
    drawn = without(chain("ifw", "#.."), (1, 2))
    assert [(op.kind, op.left_because) for op in drawn.ops] == [(OpKind.INTEGER, "")] * 3
    assert [op.left_because for op in without(chain("if", ".."), (1,)).ops] == [WHY, ""]


def test_the_float_model_in_other_forms_has_what_the_compiler_said_of_them() -> None:
    drawn = graph([("f", (i,), (i + 1,)) for i in range(4)], (4,))
    forms = {
        0: {"integer": "", "int16": "no", "float": None},
        1: {"integer": "never", "float": "no"},
        2: {"integer": ""},
    }
    found = computing_in(drawn, {0: OpKind.INT16, 1: OpKind.FLOAT, 2: OpKind.INTEGER}, forms)
    assert [(op.kind.value, op.left_because) for op in found.ops] == [
        ("int16", "no"),
        ("float", "no"),
        ("integer", ""),
        ("neutral", ""),
    ]
    assert judge(found, CHIP).segments == 1


SHAPES = {
    "a block of each value": ((1, 1, 1), 2 * 2048, False),
    "one element more than a block is wide": ((8, 9, 32), 4 * 2048, False),
    "as much as there is": ((16, 16, 32), 8 * 2048, False),
    "more than there is": ((16, 17, 32), 12 * 2048, True),
    "few channels take as much as many": ((1, 16000), 2 * 1 * 500 * 2048, True),
}


@pytest.mark.parametrize(("shape", "elements", "may"), SHAPES.values(), ids=SHAPES)
def test_what_lies_in_blocks_in_two_forms_may_be_too_large(shape: tuple[int, ...], elements: int, may: bool) -> None:
    """An op reads a value and writes one; a form has two bytes for each element."""
    drawn = chain("f", "#")
    tensors = tuple(replace(tensor, shape=(1, *shape)) for tensor in drawn.tensors)
    memory = Memory(size_bytes=4 * 8 * 2048, block=(8, 8, 32))
    assert 2 * memory.blocked((1, *shape)) == elements
    assert may_spill(replace(drawn, tensors=tensors), replace(CHIP, memory=memory)) is may


def test_of_a_memory_that_nobody_knows_anything_may_be_too_large() -> None:
    assert may_spill(chain("f", "#"), CHIP)


@pytest.mark.parametrize("left", ["", WHY])
def test_an_op_on_indices_is_refused_only_if_the_compiler_leaves_it_to_a_host_without_it(left: str) -> None:
    listed = {p: replace(kernels(1.0, 2.0), ops=frozenset({"CONV"})) for p in Precision}
    chip = replace(CHIP, host=Processor(name="the CPU", kernels=listed))
    asked = with_answers(graph([("n", (0,), (1,))], (1,)), {0: left})
    assert not pins(asked, [], chip, hybrid=True).impossible
    assert judge(asked, chip).placements[0].place is (Place.NOWHERE if left else Place.ACCELERATOR)
