"""Names of tensors that tell which op writes them, whatever they were called; knows no compiler."""

from __future__ import annotations

from autoselect.tflite import flatbuffer as fb


def numbered(content: bytes) -> tuple[bytes, int]:
    """Rename what the ops of the main subgraph write, so that each name tells the op and no two are alike.

    A ``.tflite`` may have a name twice, or none at all: tools that shrink files strip names.

    Args:
        content: The ``.tflite``.

    Returns:
        The ``.tflite`` whose op 3 writes ``op 3``, ``op 3.1`` and so on; and how many ops it has.
    """
    model = fb.parse(content)
    graph = model.subgraphs[0]
    for index, op in enumerate(graph.operators):
        for position, tensor in enumerate(op.outputs):
            graph.tensors[tensor].name = (f"op {index}.{position}" if position else f"op {index}").encode()
    return fb.serialise(model), len(graph.operators)


def number_of(name: str) -> int | None:
    """The index of the op whose first output has this name; None for other names."""
    prefix, _, number = name.partition(" ")
    return int(number) if prefix == "op" and number.isdigit() else None
