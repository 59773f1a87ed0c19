"""Asks a chip's compiler about every op of a blueprint in each of its forms; knows no compiler.

A compiler that looks at each op by itself need not see a candidate to say which of its ops it takes: the whole builds
tell it of every op in every form. What they do not contain (a conversion that only mixes have) is asked in files of its
own, where each op reads inputs of the model and writes outputs of it. A few mixes are asked about, too, to see whether
the compiler does look at each op by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from autoselect.domain.graph import Graph, answered
from autoselect.quantize.building.blueprint import Blueprint, Choice, Conversion, Part, Plan
from autoselect.quantize.building.parts import Stock
from autoselect.quantize.building.stitch import stitch
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb

AskCompiler = Callable[[bytes], Sequence[Mapping[int, str]]]
"""For each chip of the target, of the ops of a model that its compiler leaves to the host, by index, why.

May raise a TrialError.
"""

_CHECKS = 3
"""Mixes that are asked about, too: a compiler that looks at more than one op at a time may say otherwise of them."""

_Key = tuple[str, int, int]
_Step = TypeVar("_Step", Part, Conversion)


def asked(
    blueprint: Blueprint, stock: Stock, ask: AskCompiler, *, gathers: bool, like: Blueprint | None = None
) -> Blueprint:
    """The blueprint with what the compiler says of each of its parts and conversions.

    Args:
        blueprint: As it was read.
        stock: What it is stitched of.
        ask: The compiler.
        gathers: Whether candidates list their ops so that those it takes stand in the fewest runs.
        like: A blueprint with answers, of the same nodes. What it says of ops that differ from its own at most in
            constants and scales, as those of other repairs do, is taken if the answers about one mix confirm it.

    Raises:
        TrialError: What ``ask`` raises.
    """
    earlier_answers = {} if like is None or like.unsteady else _answers_like(blueprint, like)
    answers = _Answers(stock, ask, earlier_answers)
    answers.complete(blueprint, checks=1 if earlier_answers else _CHECKS)
    if earlier_answers and answers.unsteady:
        answers = _Answers(stock, ask)
        answers.complete(blueprint, checks=_CHECKS)

    def told(step: _Step) -> _Step:
        return replace(step, record=answered(step.record, answers.known[_key(step)]))

    def choice_of(choice: Choice) -> Choice:
        return replace(
            choice,
            integer=told(choice.integer),
            left_out=choice.left_out and told(choice.left_out),
            hybrid=choice.hybrid and told(choice.hybrid),
            int16=choice.int16 and told(choice.int16),
        )

    return replace(
        blueprint,
        gathers=gathers,
        unsteady=len(answers.unsteady),
        choices=tuple(map(choice_of, blueprint.choices)),
        conversions={own: tuple(map(told, chain)) for own, chain in blueprint.conversions.items()},
    )


def _answers_like(blueprint: Blueprint, like: Blueprint) -> dict[_Key, tuple[str, ...]]:
    """What is known of ops of another blueprint that are the same but for constants and scales."""
    theirs = {_key(step): step for step in _steps(like)}
    return {
        key: other.record.answers or (other.record.left_because or "",)
        for key, step in ((_key(step), step) for step in _steps(blueprint))
        if (other := theirs.get(key)) is not None and _sketch(step, blueprint) == _sketch(other, like)
    }


def _sketch(step: Part | Conversion, blueprint: Blueprint) -> tuple[object, ...]:
    """What two steps have in common that differ at most in constants and scales."""
    record = step.record
    tensors = (blueprint.tensors[slot if slot >= 0 else ~slot] for slot in (*record.inputs, *record.outputs))
    ends = [(tensor.dtype, tensor.shape) for tensor in tensors]
    return record.op_type, record.kind, record.stride, record.is_padded, ends


def _key(step: Part | Conversion) -> _Key:
    if isinstance(step, Conversion):
        return ("conversion", step.reads, step.writes)
    return (step.source, step.position, -1)


def _steps(blueprint: Blueprint) -> Iterator[Part | Conversion]:
    """All parts in all forms, then all conversions."""
    for choice in blueprint.choices:
        forms = (choice.integer, choice.left_out, choice.hybrid, choice.int16)
        yield from (part for part in forms if part is not None)
    for chain in blueprint.conversions.values():
        yield from chain


def _wholes(blueprint: Blueprint) -> Iterator[Plan]:
    """All integer, all hybrid, all float, all with 16-bit activations."""
    everything = range(len(blueprint.nodes))
    yield blueprint.plan(())
    yield blueprint.plan(everything)
    yield blueprint.plan(everything, fallback="float")
    if blueprint.int16_nodes:
        yield blueprint.plan((), in_int16=blueprint.int16_nodes)


def _mixes(blueprint: Blueprint) -> Iterator[Plan]:
    """Candidates whose nodes each have any form."""
    rng, places = np.random.default_rng(0), range(len(blueprint.nodes))
    for _ in range(_CHECKS):
        forms = rng.integers(4, size=len(places)).tolist()
        denied = [i for i in places if forms[i] in (1, 2)]
        wide = {i for i in blueprint.int16_nodes if forms[i] == 3}
        yield blueprint.plan(denied, in_float=[i for i in denied if forms[i] == 1], in_int16=sorted(wide))


class _Answers:
    """What compilers said of each part, so far. What they leave once counts as left: forecasts are then no better."""

    def __init__(self, stock: Stock, ask: AskCompiler, answers: Mapping[_Key, tuple[str, ...]] | None = None) -> None:
        self._stock, self._ask = stock, ask
        self.known = dict(answers or {})
        self.unsteady: set[_Key] = set()

    def complete(self, blueprint: Blueprint, *, checks: int) -> None:
        """Ask about whole builds with ops that are not known, then about what no whole build has, then about mixes."""
        for plan in _wholes(blueprint):
            if any(_key(step) not in self.known for step in plan.steps):
                self.add(plan)
        for plan in _apart(blueprint, [step for step in _steps(blueprint) if _key(step) not in self.known]):
            self.add(plan)
        for plan in itertools.islice(_mixes(blueprint), checks):
            self.add(plan)

    def add(self, plan: Plan) -> None:
        model = stitch(plan, self._stock, signatures=False)
        editing.tidy(model)
        left = self._ask(fb.serialise(model))
        for place, step in enumerate(plan.steps):
            key, said = _key(step), tuple(reasons.get(place, "") for reasons in left)
            before = self.known.setdefault(key, said)
            if list(map(bool, before)) != list(map(bool, said)):
                self.unsteady.add(key)
                self.known[key] = tuple(reason or other for reason, other in zip(before, said, strict=True))


def _apart(blueprint: Blueprint, steps: Sequence[Part | Conversion]) -> Iterator[Plan]:
    """Files with these steps, each by itself; what one writes is neither read nor written by another of its file."""
    own = [-1] * (max(blueprint.value_of, default=-1) + 1)
    for slot, value in enumerate(blueprint.value_of):
        own[value] = slot if own[value] < 0 else own[value]
    rest = list(dict.fromkeys(steps))
    while rest:
        chosen, read, written, later = list[Part | Conversion](), set[int](), set[int](), list[Part | Conversion]()
        for step in rest:
            reads, writes = _ends(step, own)
            if written.isdisjoint(reads | writes) and read.isdisjoint(writes):
                chosen.append(step)
                read |= reads
                written |= writes
            else:
                later.append(step)
        graph = Graph(
            tensors=blueprint.tensors,
            ops=tuple(step.record for step in chosen),
            inputs=tuple(sorted(read)),
            outputs=tuple(sorted(written)),
        )
        yield Plan(size_bytes=0, kinds=(), graph=graph, steps=tuple(chosen), own=own, places={})
        rest = later


def _ends(step: Part | Conversion, own: Sequence[int]) -> tuple[set[int], set[int]]:
    if isinstance(step, Conversion):
        return {step.reads}, {step.writes}
    return {own[~slot] if slot < 0 else slot for slot in step.reads}, set(step.writes)
