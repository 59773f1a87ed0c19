"""Names of tensors that tell which op writes them, whatever they were called; knows no compiler."""

from __future__ import annotations

from autoselect.tflite import flatbuffer as fb


def numbered(content: bytes) -> tuple[bytes, int]:
    """The model with outputs of ops that tell their op by name, no two of them alike, and the number of its ops.

    A file may have names twice, or none at all, as tools that make it small leave it.
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
