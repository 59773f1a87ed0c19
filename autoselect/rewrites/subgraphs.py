"""Subgraphs that ops run: which, and a model with only those that one of them reaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb

_OPTIONS = ("builtinOptions", "builtinOptions2")
_ONE = (
    "thenSubgraphIndex",
    "elseSubgraphIndex",
    "condSubgraphIndex",
    "bodySubgraphIndex",
    "initSubgraphIndex",
    "comparatorSubgraphIndex",
    "updateComputationSubgraphIndex",
    "decompositionSubgraphIndex",
    "subgraph",
)
"""Fields of the schema's options that name one subgraph: of IF, WHILE, CALL_ONCE, CALL and the StableHLO ops."""
_SEVERAL = ("branchSubgraphIndices",)


def reached_subgraphs(op: fb.Operator) -> Iterator[int]:
    """Indices of the subgraphs that an op runs."""
    for _, _, held in _fields(op):
        yield from held if isinstance(held, list) else [held]


def _fields(op: fb.Operator) -> Iterator[tuple[Any, str, int | list[int]]]:
    """The options of an op that name subgraphs, with the field's name and what it holds: an index, or several."""
    for options in (getattr(op, name) for name in _OPTIONS):
        for name in _ONE:
            if (index := getattr(options, name, None)) is not None and index >= 0:
                yield options, name, int(index)
        for name in _SEVERAL:
            if (indices := getattr(options, name, None)) is not None:
                yield options, name, [int(i) for i in indices]


def make_main(model: fb.Model, main: int) -> None:
    """Make a subgraph the main one and drop what it does not reach, in place."""
    order = [main]
    for index in order:  # grows while it is read
        ops = model.subgraphs[index].operators or []
        order += sorted({i for op in ops for i in reached_subgraphs(op)} - set(order))
    if order == list(range(len(model.subgraphs))):
        return
    place = {old: new for new, old in enumerate(order)}
    model.subgraphs = [model.subgraphs[old] for old in order]
    for graph in model.subgraphs:
        for op in graph.operators or []:
            for options, name, held in _fields(op):
                setattr(options, name, [place[i] for i in held] if isinstance(held, list) else place[held])
    model.signatureDefs = [s for s in model.signatureDefs or [] if (s.subgraphIndex or 0) in place]
    for signature in model.signatureDefs:
        signature.subgraphIndex = place[signature.subgraphIndex or 0]
    editing.tidy(model)
