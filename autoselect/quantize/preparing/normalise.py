"""Brings a float model into the form in which the quantizer leaves it: what it folds or merges is folded already.

The quantizer merges and folds ops of a file as it comes from a converter: an op that is merged into the next has no
twin in the quantized model, so no name would deny it. Run once on the *uncalibrated* model with every op denied, it
gives a float model whose ops match those of all later builds one to one, by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.recipe import Recipe
from autoselect.errors import BuildError
from autoselect.quantize.preparing import converter
from autoselect.rewrites import casts, names
from autoselect.rewrites.fixed_shapes import fold
from autoselect.rewrites.respelling import DILATED, NORMALISED, NORMALISED_ALIKE, RESPELLED
from autoselect.rewrites.rewriting import Done, rewrite, rewritten
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.tflite_file import TfliteFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalised:
    """A normalised float model.

    Attributes:
        file: The model.
        node_names: For each op the name that the op of the model before has which writes the same.
        folded: Names of the ops before that have no twin.
        respelled: For each op before that is written as another type its own type and the other.
    """

    file: TfliteFile
    node_names: tuple[str, ...]
    folded: tuple[str, ...]
    respelled: tuple[tuple[str, str], ...] = ()

    @property
    def content(self) -> bytes:
        """Bytes of the model."""
        return self.file.content


def as_it_is(content: bytes, *, exact_rewrites: bool = False) -> Normalised:
    """The model without any change, but what constants and fixed shapes tell is folded where that is wanted."""
    model = fb.parse(content)
    nodes = names.node_names(model)
    left = fold(model) if exact_rewrites else range(len(nodes))
    if len(left) == len(nodes):
        return Normalised(file=TfliteFile(content), node_names=nodes, folded=())
    editing.drop_unused_tensors(model)
    editing.tidy(model)
    gone = sorted({*range(len(nodes))} - {*left})
    return Normalised(
        file=TfliteFile(model=model),
        node_names=tuple(nodes[place] for place in left),
        folded=tuple(nodes[place] for place in gone),
    )


def normalise(content: bytes, *, exact_rewrites: bool = True) -> Normalised:
    """Write ops so that they have an integer form, and fold and merge what the quantizer would.

    Args:
        content: Bytes of a float TFLite model.
        exact_rewrites: Fold what constants and fixed shapes tell, too, where the quantizer would not, and write
            convolutions between SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND as dilated ones.

    Returns:
        A float model. An op of it writes what the op of ``content`` that writes a tensor of the same name does.
        Whether its outputs are those of ``content`` is for :func:`autoselect.tflite.comparing.difference` to tell.

    Raises:
        BuildError: If the quantizer refuses the model.
    """
    source = fb.parse(content)
    done = rewrite(source, NORMALISED if exact_rewrites else NORMALISED_ALIKE)
    nodes = names.node_names(source)
    left = fold(source) if exact_rewrites else range(len(nodes))
    types = [fb.op_type(source, op) for op in source.subgraphs[0].operators]
    key = names.canonicalise(source, [nodes[place] for place in left])
    denylisted = [names.canonical_name(index) for index in range(len(types))]
    given = rewritten(TfliteFile(model=source), (casts.CASTS_LEFT_OUT,))
    model = converter.quantize(given, denylisted=denylisted, recipe=Recipe()).taken()
    casts.put_back(model, source)
    names.hide_unused_outputs(model, key)
    indices = [names.op_index(model, op) for op in model.subgraphs[0].operators]
    twins = {left[index] for index in indices if index is not None and index < len(left)}
    places = names.op_places(model)
    alike = {i: at for i, at in places.items() if all(_is_twin(model, at_, types[i], key.op_inputs[i]) for at_ in at)}
    _restore_weights(model, source, places)
    names.restore(model, key)
    names.restore_constants(model, key, alike)
    editing.share_equal_constants(model)
    editing.tidy(model)
    _keep_signatures(model, source, key)
    return Normalised(
        file=TfliteFile(model=model),
        node_names=_node_names(indices, key.nodes),
        folded=(*_gone(done), *(name for place, name in enumerate(nodes) if place not in twins)),
        respelled=tuple(done.found.get(RESPELLED.name, ())),
    )


def _gone(done: Done) -> tuple[str, ...]:
    """What is written no more by the ops that stand for others."""
    return tuple(name for rewrite in (casts.CASTS_FIRST, DILATED) for name in done.found.get(rewrite.name, ()))


def _node_names(indices: Sequence[int | None], before: Sequence[str]) -> tuple[str, ...]:
    """Names of ops. If one op became several, the last one has its name, since that writes what the one op wrote."""
    last = {index: place for place, index in enumerate(indices)}
    node_names = []
    for place, index in enumerate(indices):
        name = before[index] if index is not None and index < len(before) else ""
        node_names.append(name if name and last[index] == place else f"{name}#{place}")
    return tuple(node_names)


def _restore_weights(model: fb.Model, source: fb.Model, places: Mapping[int, Sequence[int]]) -> None:
    """Give ops their float constants back, in place: the quantizer makes a TRANSPOSE_CONV hybrid, denied or not.

    Raises:
        BuildError: If an op is not float whose constants are not at hand.
    """
    graph, float_graph = model.subgraphs[0], source.subgraphs[0]
    for index, at in places.items():
        for op in (graph.operators[place] for place in at):
            twins = _operands(source, index, fb.op_type(model, op))
            op.inputs = np.array(op.inputs)
            for position, tensor in enumerate(map(int, op.inputs[: len(twins)])):
                if (
                    tensor >= 0
                    and fb.scales(graph.tensors[tensor])
                    and fb.is_constant(source, float_graph.tensors[twins[position]])
                ):
                    graph.tensors.append(_float_twin(model, graph.tensors[tensor], source, int(twins[position])))
                    op.inputs[position] = len(graph.tensors) - 1
    editing.drop_unused_tensors(model)
    if any(fb.scales(tensor) for tensor in graph.tensors):
        raise BuildError("the quantizer quantizes weights of it though every op is denied.")


def _operands(source: fb.Model, index: int, op_type: str) -> tuple[int, ...]:
    """The operands of an op, or of the one before that it was merged into: an ADD with a TRANSPOSE_CONV's bias."""
    graph = source.subgraphs[0]
    op = graph.operators[index]
    if fb.op_type(source, op) == op_type:
        return fb.indices(op.inputs)
    before = [
        maker
        for maker in graph.operators
        if fb.op_type(source, maker) == op_type and not set(fb.indices(maker.outputs)).isdisjoint(fb.indices(op.inputs))
    ]
    return fb.indices(before[0].inputs) if len(before) == 1 else ()


def _float_twin(model: fb.Model, tensor: fb.Tensor, source: fb.Model, index: int) -> fb.Tensor:
    twin: fb.Tensor = schema.TensorT()
    twin.name, twin.shape, twin.type = tensor.name, tensor.shape, schema.TensorType.FLOAT32
    twin.quantization = schema.QuantizationParametersT()
    twin.buffer = editing.add_buffer(model, fb.constant_values(source, source.subgraphs[0].tensors[index]))
    return twin


def _keep_signatures(model: fb.Model, source: fb.Model, key: names.NameMap) -> None:
    """Give a model the signatures of its source, in place: the quantizer loses them where it is given other outputs.

    Without a signature the tensors give inputs and outputs their names. If the quantizer makes one tensor of an output
    and an input, or of two outputs, that tensor has two names: a new signature then keeps both.
    """
    old, new = source.subgraphs[0], model.subgraphs[0]
    place = dict(zip(map(int, (*old.inputs, *old.outputs)), map(int, (*new.inputs, *new.outputs)), strict=False))
    signatures = [deepcopy(s) for s in source.signatureDefs or [] if (s.subgraphIndex or 0) == 0]
    for signature in signatures:
        for entry in (*(signature.inputs or []), *(signature.outputs or [])):
            entry.tensorIndex = place[int(entry.tensorIndex)]
    are_distinct = len({*key.inputs, *key.outputs} - {""}) == len(place)
    if not signatures and are_distinct and len({*map(int, (*new.inputs, *new.outputs))}) < len(place):
        signatures = [editing.new_signature("serving_default", model, key.inputs, key.outputs)]
    model.signatureDefs = signatures or None


def _is_twin(model: fb.Model, place: int, op_type: str, inputs: tuple[str, ...]) -> bool:
    """Whether an op has the operands of the one that it is called after, so that these can have their names."""
    op = model.subgraphs[0].operators[place]
    return fb.op_type(model, op) == op_type and len(op.inputs) == len(inputs)
