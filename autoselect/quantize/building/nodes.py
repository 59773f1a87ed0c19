"""Which ops are nodes: those that the all-integer model computes with integers; found by comparing whole builds."""

from __future__ import annotations

from autoselect.domain.layers import Node
from autoselect.errors import ModelError
from autoselect.quantize.building.parts import is_node
from autoselect.quantize.building.wholes import Wholes
from autoselect.tflite import reader


def find_nodes(wholes: Wholes) -> tuple[Node, ...]:
    """Find every node, in graph order.

    Raises:
        ModelError: If full-integer quantization turns no op into an integer op.
    """
    float_graph = reader.read_graph(wholes.in_float.model)
    integer_graph = reader.read_graph(wholes.integer.model)
    twins = {index: integer_graph.ops[place] for index, place in wholes.integer.places.items()}
    found = tuple(
        Node(
            index=index,
            name=wholes.names.nodes[index],
            op_type=op.op_type,
            macs=twins[index].macs,
        )
        for index, op in enumerate(float_graph.ops)
        if index in twins and is_node(op, twins[index])
    )
    if not found:
        raise ModelError(
            "Full-integer quantization turns no op of this model into an integer op, so there is nothing to search. "
            "Check that its ops have int8 kernels."
        )
    return found
