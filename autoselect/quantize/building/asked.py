"""Asks a chip's compiler about every op of a blueprint in each of its forms; knows no compiler.

A compiler that looks at each op by itself need not see a candidate to say which of its ops it takes: the whole builds
tell it of every op in every form. What they do not contain (a conversion that only mixes have) is asked in files of its
own, where each op reads inputs of the model and writes outputs of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from autoselect.domain.graph import Graph
from autoselect.quantize.building.blueprint import Blueprint, Choice, Conversion, Part, Plan
from autoselect.quantize.building.parts import Stock
from autoselect.quantize.building.stitch import stitch
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb

AskCompiler = Callable[[bytes], Mapping[int, str]]
"""Of the ops of a model that a compiler leaves to the host, by index, why. May raise a TrialError."""

_Key = tuple[str, int, int]
_Step = TypeVar("_Step", Part, Conversion)


def asked(blueprint: Blueprint, stock: Stock, ask: AskCompiler, *, gathers: bool) -> Blueprint:
    """The blueprint with what the compiler says of each of its parts and conversions.

    Args:
        blueprint: As it was read.
        stock: What it is stitched of.
        ask: The compiler.
        gathers: Whether candidates list their ops so that those it takes stand in the fewest runs.

    Raises:
        TrialError: What ``ask`` raises.
    """
    found = dict[_Key, str]()
    for plan in _wholes(blueprint):
        _ask(plan, stock, ask, found)
    for plan in _apart(blueprint, [step for step in _steps(blueprint) if _key(step) not in found]):
        _ask(plan, stock, ask, found)

    def told(step: _Step) -> _Step:
        return replace(step, record=replace(step.record, left_because=found[_key(step)]))

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
        choices=tuple(map(choice_of, blueprint.choices)),
        conversions={own: tuple(map(told, chain)) for own, chain in blueprint.conversions.items()},
    )


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


def _ask(plan: Plan, stock: Stock, ask: AskCompiler, found: dict[_Key, str]) -> None:
    model = stitch(plan, stock, signatures=False)
    editing.tidy(model)
    left = ask(fb.serialise(model))
    for place, step in enumerate(plan.steps):
        found.setdefault(_key(step), left.get(place, ""))


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
