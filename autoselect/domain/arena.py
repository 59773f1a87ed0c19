"""How much memory a model's activations need at once."""

from __future__ import annotations

from autoselect.domain.graph import Graph


def peak_activation_bytes(graph: Graph) -> int:
    """Most bytes of activations that are alive at once.

    A tensor lives from the op that writes it to the last that reads it, model inputs from the start and outputs to the
    end. An op's inputs and outputs are alive together: nothing is computed in place. This is the least arena that any
    allocation can reach, not what one allocator reaches.
    """
    last = {t: len(graph.ops) for t in graph.outputs}
    for i, op in enumerate(graph.ops):
        for tensor in op.inputs:
            last[tensor] = max(last.get(tensor, i), i)
    alive = set(graph.inputs)
    size = sum(graph.tensors[t].size_bytes for t in alive)
    peak = size
    for i, op in enumerate(graph.ops):
        born = set(op.outputs) - alive
        alive |= born
        size += sum(graph.tensors[t].size_bytes for t in born)
        peak = max(peak, size)
        dead = {t for t in alive if last.get(t, i) <= i}
        alive -= dead
        size -= sum(graph.tensors[t].size_bytes for t in dead)
    return peak
