"""Which signature of a TFLite file is the model: its subgraph becomes the main one, with what it reaches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autoselect.errors import ModelError, UsageError
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


def choose(model: fb.Model, key: str | None) -> None:
    """Make the subgraph of a signature the main one and drop what it does not reach, in place.

    Args:
        model: Changed where the signature's subgraph is not the main one already.
        key: Of the signature; None for the only one.

    Raises:
        UsageError: If there is no such signature.
        ModelError: If there are several and none is chosen.
    """
    keys = {_key(signature): int(signature.subgraphIndex or 0) for signature in model.signatureDefs or []}
    if key is None and len(set(keys.values())) > 1:
        raise ModelError(several(tuple(keys)))
    if key is not None and key not in keys:
        raise UsageError(unknown(key, tuple(keys)))
    if not keys:
        return
    taken = key if key is not None else next(iter(keys))
    make_main(model, keys[taken])
    model.signatureDefs = [
        s
        for s in model.signatureDefs or []
        # LiteRT runs a model whose signature names no outputs, and TensorFlow's calibrator refuses it.
        if (key is None or _key(s) == key) and s.subgraphIndex == 0 and s.outputs
    ]


def several(keys: Sequence[str]) -> str:
    """The message where a source has several signatures and none is chosen."""
    return (
        f"The model has several signatures: {', '.join(keys)}. Choose the one to quantize with --signature "
        f"(signature=... in Python), for example --signature {keys[0]}."
    )


def unknown(key: str, keys: Sequence[str]) -> str:
    """The message where a source has no such signature."""
    if not keys:
        return f"--signature: the model has no signatures, got {key!r}. Leave the option out."
    return f"--signature: the model has no signature {key!r}. Its signatures: {', '.join(keys)}."


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


def _key(signature: fb.SignatureDef) -> str:
    return (signature.signatureKey or b"").decode("utf-8", "replace")


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
