"""Proves of a model, before the first trial, that its candidates are what they are called.

Put together from float ops alone, the model must be the float model; from integer ops alone, the all-integer model;
and, where 16-bit nodes are asked for, from 16-bit ops alone, the 16-bit model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast, get_args

from autoselect.domain.graph import IN_INTEGERS, Graph
from autoselect.domain.layers import Node, never_integer
from autoselect.domain.recipe import IoType, Recipe
from autoselect.errors import BuildError, ScoreError, sentence
from autoselect.quantize.building.build import Builder
from autoselect.quantize.building.wholes import Wholes, runnable_int16_model
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.rewrites.for_quantizer import without_integer_kernel
from autoselect.tflite import reader
from autoselect.tflite.comparing import Sample, difference, first_unlike, in_words

PROOF_SAMPLES = 2
"""On which the outputs are compared: both claims are bit for bit, so that one sample that holds tells nearly all."""
_SCORED = "The scores of candidates are right for the files that autoselect writes."


def remarks(
    builder: Builder,
    nodes: Sequence[Node],
    wholes: Wholes,
    *,
    float_model: bytes,
    integer_model: bytes,
    samples: Sequence[Sample],
    per_channel: bool,
    is_given: bool = False,
) -> tuple[str, ...]:
    """What the user should know of what this model's candidates can be; empty where all is well.

    Raises:
        BuildError: If one of the two cannot be built.
        ScoreError: If the model of float ops cannot be run.
    """
    everything = frozenset(node.name for node in nodes)
    integer = builder.build(Recipe(per_channel=per_channel, io_type=_interface(integer_model)))
    floats = builder.build(Recipe(per_channel=per_channel, denylisted_nodes=everything, fallback="float"))
    messages = []
    if gap := _apart(floats.content, float_model, samples, delegates=False):
        messages.append(
            f"With every node left out of integers, the outputs and the float model's {gap} The scores of candidates "
            "are right, but a candidate may not reach float's."
        )
    try:
        if gap := _apart(integer.content, integer_model, samples):
            messages.append(f"With every node in integers, the outputs and those of {_maker(is_given)} {gap} {_SCORED}")
    except ScoreError as exc:
        messages.append(
            f"With every node in integers, the model cannot be run: {exc} Mixed models are tried all the same."
        )
    stuck = [op for op in floats.graph.ops if op.kind in IN_INTEGERS]
    if stuck:
        messages.append(
            f"{_counted([op.op_type for op in stuck])} cannot leave integers: the float model itself has no float form."
        )
    return (*messages, *_never_integer(wholes, nodes, is_given=is_given))


def int16_remarks(
    builder: Builder, nodes: Sequence[Node], kit: RepairKit, *, samples: Sequence[Sample], per_channel: bool
) -> tuple[str, ...]:
    """Likewise of candidates with 16-bit nodes: with all of them so, the model must be TensorFlow's 16-bit build.

    Raises:
        BuildError, ScoreError: If a candidate cannot be built or run.
    """
    plain = Recipe(per_channel=per_channel)
    blueprint = builder.blueprint(plain, int16=True)
    chosen = frozenset(nodes[i].name for i in blueprint.int16_nodes)
    others = frozenset(node.name for node in nodes) - chosen
    if not chosen:
        return (f"No node can have 16-bit activations: {next(iter(blueprint.no_int16.values()))}.",)
    made = builder.build(replace(plain, denylisted_nodes=others, fallback="float", int16_nodes=chosen))
    try:
        gap = _apart(made.content, runnable_int16_model(kit, plain).content, samples)
    except (BuildError, ScoreError) as exc:
        difference(made.content, made.content, samples)  # raises where the candidate itself cannot be run
        why = sentence(str(exc))
        return (f"Candidates with 16-bit nodes are not compared with TensorFlow's 16-bit build. {why} {_SCORED}",)
    if gap:
        what = "With every node in 16 bits that can be, the outputs and those of TensorFlow's 16-bit build"
        return (f"{what} {gap} {_SCORED}",)
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """What rewrites that change no output did to a few candidates.

    Attributes:
        models: Names of the candidates: all in integers, all in 16 bits, a mix.
        graphs: Of each, without the rewrites and with them.
        told: How outputs differ; empty where all are equal bit for bit.
    """

    models: tuple[str, ...]
    graphs: tuple[tuple[Graph, Graph], ...]
    told: str


def rewritten(
    before: Builder, after: Builder, nodes: Sequence[Node], base: Recipe, *, int16: bool, samples: Sequence[Sample]
) -> Rewritten:
    """Build a few candidates without the rewrites and with them, and compare their outputs on samples.

    Raises:
        BuildError, ScoreError: If one cannot be built or run.
    """
    wide = {nodes[i].name for i in after.blueprint(base, int16=True).int16_nodes} if int16 else set()
    mix = [node.name for node in nodes[::3]]
    recipes = {"all in integers": base, "a mix": replace(base, denylisted_nodes=frozenset(mix), fallback="float")}
    if wide:
        recipes["all in 16 bits"] = replace(base, int16_nodes=frozenset(wide))
        recipes["a mix"] = replace(recipes["a mix"], int16_nodes=frozenset(wide - set(mix)))
    pairs = [(before.build(recipe), after.build(recipe)) for recipe in recipes.values()]
    gaps = [
        f"{name}: {apart}"
        for name, (ours, theirs) in zip(recipes, pairs, strict=True)
        if (apart := _apart(ours.content, theirs.content, samples, delegates=False))
    ]
    graphs = tuple((ours.graph, theirs.graph) for ours, theirs in pairs)
    return Rewritten(models=tuple(recipes), graphs=graphs, told=" ".join(gaps))


def _apart(ours: bytes, theirs: bytes, samples: Sequence[Sample], *, delegates: bool = True) -> str:
    """How far outputs are apart and from which op on, the end of a sentence; empty where they are equal bit for bit."""
    apart = difference(ours, theirs, samples, delegates=delegates)
    if not apart:
        return ""
    op = first_unlike(ours, theirs, samples[0])
    return f"{in_words(apart)} ({len(samples)} samples){op and f', from {op} on'}."


def _maker(is_given: bool) -> str:
    return "the integer model" if is_given else "TensorFlow's quantizer"


def _interface(integer_model: bytes) -> IoType:
    """The integer model's own type of inputs and outputs, indices aside; float where they are of several."""
    ends = reader.read_interface(integer_model)
    types = {str(spec.dtype) for spec in ends.inputs + ends.outputs} & set(get_args(IoType))
    [only] = types if len(types) == 1 else {"float32"}
    return cast("IoType", only)


def _never_integer(wholes: Wholes, nodes: Sequence[Node], *, is_given: bool) -> list[str]:
    graph = reader.read_graph(wholes.in_float.model)
    refused = [] if is_given else [graph.ops[i] for i in without_integer_kernel(wholes.in_float.model)]
    stay = never_integer(graph, nodes)
    by_litert = [op.op_type for op in stay if op in refused]
    by_maker = [op.op_type for op in stay if op not in refused]
    messages = []
    if by_maker:
        become, them = _verb_and_object(by_maker)
        messages.append(
            f"{_counted(by_maker)} of {len(graph.ops)} ops never {become} integer: {_maker(is_given)} leaves {them} in "
            "float, and so does every candidate."
        )
    if by_litert:
        become, them = _verb_and_object(by_litert)
        messages.append(
            f"{_counted(by_litert)} of {len(graph.ops)} ops never {become} integer, since LiteRT has no integer kernel "
            f"for {them}: every candidate leaves {them} in float."
        )
    return messages


def _verb_and_object(types: Sequence[str]) -> tuple[str, str]:
    return ("becomes", "it") if len(types) == 1 else ("become", "them")


def _counted(types: Sequence[str]) -> str:
    """``3 (2 RFFT2D, POW)``."""
    counts = Counter(types)
    parts = [name if times == 1 else f"{times} {name}" for name, times in counts.most_common()]
    return f"{len(types)} ({', '.join(parts)})"
