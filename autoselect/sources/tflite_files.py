"""A TFLite file as one float model: one signature, float32 weights, shapes as they truly are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from ai_edge_litert import schema_py_generated as schema

from autoselect.errors import ModelError, UsageError
from autoselect.rewrites.rewriting import rewrite
from autoselect.rewrites.subgraphs import make_main, reached_subgraphs
from autoselect.rewrites.taken_in import IN_TRUE_SHAPES, TAKEN_IN
from autoselect.sources import shapes
from autoselect.sources.wishes import NO_WISHES, FreeInput, Wishes, sizes_of
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.tflite_file import TfliteFile


def choose(model: fb.Model, key: str | None) -> None:
    """Make the subgraph of a signature the main one and drop the subgraphs that it does not reach, in place.

    Without signatures the first subgraph is the main one.

    Args:
        model: Changed where the signature's subgraph is not the main one already, or does not reach all others.
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
        make_main(model, 0)
        return
    taken = key if key is not None else next(iter(keys))
    make_main(model, keys[taken])
    model.signatureDefs = [
        s
        for s in model.signatureDefs or []
        if (key is None or _key(s) == key) and s.subgraphIndex == 0 and _names_ends(model.subgraphs[0], s)
    ]


def of_signature(file: TfliteFile, key: str | None) -> TfliteFile:
    """A file, quantized or not, with the subgraph of a signature as its main one.

    A file whose signatures all are of the main subgraph is returned as it is, whatever the key.

    Raises:
        UsageError: If there are several, and no such signature.
        ModelError: If there are several and none is chosen.
    """
    if all(not entry.subgraphIndex for entry in file.model.signatureDefs or []):
        return file
    model = file.copied()
    choose(model, key)
    return TfliteFile(model=model)


def _names_ends(graph: fb.SubGraph, signature: fb.SignatureDef) -> bool:
    """Whether a signature names outputs, and no tensors inside: else LiteRT runs the model, and what is made of it not.

    TensorFlow's calibrator refuses the former.
    """
    sides = ((signature.inputs, graph.inputs), (signature.outputs, graph.outputs))
    named = [{int(entry.tensorIndex) for entry in entries or []} <= {*fb.indices(row)} for entries, row in sides]
    return bool(signature.outputs) and all(named)


def several(keys: Sequence[str]) -> str:
    """The message where a source has several signatures and none is chosen."""
    return (
        f"The model has several signatures: {', '.join(keys)}. Choose one with --signature "
        f"(signature=... in Python), for example --signature {keys[0]}."
    )


def unknown(key: str, keys: Sequence[str]) -> str:
    """The message where a source has no such signature."""
    if not keys:
        return f"--signature: the model has no signatures, got {key!r}. Leave the option out."
    return f"--signature: the model has no signature {key!r}. Its signatures: {', '.join(keys)}."


def signature_keys(model: fb.Model) -> tuple[str, ...]:
    """The keys of all signatures of a file."""
    return tuple(map(_key, model.signatureDefs or []))


def _key(signature: fb.SignatureDef) -> str:
    return (signature.signatureKey or b"").decode("utf-8", "replace")


_FLEX = "Flex"
"""How the names of TensorFlow's own ops begin."""
_QUANTIZED_TYPES = frozenset(
    code for code, dtype in fb.TENSOR_DTYPES.items() if dtype in reader.QUANTIZED_DTYPES | {"int2", "uint4"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatModel:
    """A source made ready.

    Attributes:
        content: Bytes of a float TFLite model whose shapes are true.
        notes: Sentences on what was done to the source, each to be said once.
    """

    content: bytes
    notes: tuple[str, ...] = ()

    def noted(self, *notes: str) -> FloatModel:
        """This model with more notes, which go first."""
        return replace(self, notes=(*notes, *self.notes))


def from_bytes(content: bytes, wishes: Wishes = NO_WISHES) -> FloatModel:
    """Check that a TFLite model is float, and bring it into the form that all else works on.

    If shapes have to be settled, the model is run: call it in a worker then, see :func:`is_ready`.

    Raises:
        ModelError: If it cannot be taken; the message says what was found.
        UsageError: If a wish does not fit.
    """
    model = fb.parse(content)
    _refuse_damaged(model, len(content))
    was_odd = shapes.spell_out(model)
    first, held, signed = model.subgraphs[0], len(model.subgraphs), len(model.signatureDefs or [])
    choose(model, wishes.signature)
    is_cut = len(model.subgraphs) < held or len(model.signatureDefs or []) < signed
    _refuse_quantized(model)
    _refuse_flex(model)
    done = rewrite(model, TAKEN_IN)
    _refuse_empty(model)
    _refuse_unfed(model, len(content))
    loops = _control_flow(model)
    is_changed = was_odd or is_cut or bool(done.found or loops) or model.subgraphs[0] is not first
    settled, shape_notes = _settled(model, wishes)
    if settled is not None:
        model, is_changed = fb.parse(settled), True
    fitted = rewrite(model, IN_TRUE_SHAPES)
    if fitted.found:
        settled, is_changed = None, True
    return FloatModel(
        content=(settled or fb.serialise(model)) if is_changed else content,
        notes=(*done.notes, *loops, *shape_notes, *fitted.notes),
    )


def is_ready(content: bytes) -> bool:
    """True where a TFLite file is taken without running it; True for a damaged one too."""
    try:
        model = fb.parse(content)
        return not shapes.spell_out(model) and shapes.is_settled(model)
    except ModelError:
        return True


def free_inputs(model: fb.Model) -> tuple[FreeInput, ...]:
    """The inputs of a parsed model, with their free sizes."""
    tensors = [model.subgraphs[0].tensors[i] for i in model.subgraphs[0].inputs]
    return tuple(
        FreeInput(key=spec.key, name=spec.name, sizes=_sizes(tensor))
        for spec, tensor in zip(reader.input_specs(model), tensors, strict=True)
    )


def _sizes(tensor: fb.Tensor) -> tuple[int | None, ...]:
    row = fb.indices(tensor.shapeSignature) or fb.shape_of(tensor)  # Some writers leave an empty signature.
    return tuple(None if size < 0 else size for size in row)


def _refuse_damaged(model: fb.Model, size: int) -> None:
    """Every subgraph that is run must be there and not run itself, and every value be written before it is read.

    Native code follows both without looking.
    """
    places = range(len(model.subgraphs))
    reached = [int(signature.subgraphIndex or 0) for signature in model.signatureDefs or []]
    runs = {
        place: {index for op in graph.operators or [] for index in reached_subgraphs(op)}
        for place, graph in enumerate(model.subgraphs)
    }
    if not all(index in places for index in [*reached, *(index for callees in runs.values() for index in callees)]):
        raise ModelError(_told(size, "it runs subgraphs that it does not hold"))
    try:
        tuple(TopologicalSorter(runs).static_order())
    except CycleError:
        raise ModelError(_told(size, "a subgraph of it runs itself")) from None
    if not all(_is_in_order(graph) for graph in model.subgraphs):
        raise ModelError(_told(size, "an op reads what only a later one writes"))


def _told(size: int, what: str) -> str:
    return f"The TFLite file is damaged ({size} bytes read): {what}. Copy or convert it again."


def _is_in_order(graph: fb.SubGraph) -> bool:
    ops = graph.operators or []
    unwritten = {i for op in ops for i in fb.indices(op.outputs)}
    for op in ops:
        if not unwritten.isdisjoint(fb.indices(op.inputs)):
            return False
        unwritten -= set(fb.indices(op.outputs))
    return True


def _refuse_unfed(model: fb.Model, size: int) -> None:
    if not all(_has_values(model, graph) for graph in model.subgraphs):
        raise ModelError(_told(size, "an op reads what nothing writes, or writes over a constant"))


def _has_values(model: fb.Model, graph: fb.SubGraph) -> bool:
    """Whether all that ops read has values when it is read, and no op writes what the file holds."""
    ops, tensors = graph.operators or [], graph.tensors or []
    written = {i for op in ops for i in fb.indices(op.outputs)}
    read = {i for op in ops for i in fb.indices(op.inputs) if i >= 0} - written - {*fb.indices(graph.inputs)}
    unwritten = [tensors[i] for i in read if not fb.is_constant(model, tensors[i])]
    # A state begins as zeros, and what has no elements needs no values.
    return all(tensor.isVariable or 0 in fb.shape_of(tensor) for tensor in unwritten) and not any(
        fb.is_constant(model, tensors[i]) for i in written
    )


def _refuse_quantized(model: fb.Model) -> None:
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    quantized = [fb.tensor_name(tensor) for tensor in tensors if tensor.type in _QUANTIZED_TYPES and _is_scaled(tensor)]
    if not quantized:
        return
    finding = f"{len(quantized)} of its tensors are integers with a scale, the first is {quantized[0].split(';')[0]!r}"
    if any(tensor.type == schema.TensorType.FLOAT16 for tensor in tensors):
        raise ModelError(
            f"The model has float16 weights and a part that is quantized already: {finding}. autoselect widens float16 "
            "weights, but it starts from a model that is float throughout: convert it without `optimizations`."
        )
    raise ModelError(
        f"The model is quantized already: {finding}. autoselect starts from the float model: convert it without "
        "`optimizations`. If another quantizer made this file, pass the float model that it was made from, and this "
        "file with --integer."
    )


def _is_scaled(tensor: fb.Tensor) -> bool:
    """Whether a tensor's integers stand for real numbers; the scales of blocks are in tensors of their own."""
    return bool(fb.scales(tensor)) or getattr(tensor.quantization, "details", None) is not None


def _refuse_flex(model: fb.Model) -> None:
    types = {fb.op_type(model, op) for graph in model.subgraphs for op in graph.operators or []}
    if flex := sorted(op_type for op_type in types if op_type.startswith(_FLEX)):
        raise ModelError(
            f"The model has ops of TensorFlow itself: {', '.join(flex)}. LiteRT runs them only with the Flex delegate, "
            "which autoselect does not have, and accelerators never do. Convert the model with builtin ops only "
            "(`target_spec.supported_ops` without `SELECT_TF_OPS`), or without that part."
        )


def _refuse_empty(model: fb.Model) -> None:
    graph = model.subgraphs[0]
    if not graph.operators:
        raise ModelError("The model has no ops, so there is nothing to quantize.")
    for side in ("inputs", "outputs"):
        if not fb.indices(getattr(graph, side)):
            raise ModelError(f"The model has no {side}, so it cannot be calibrated. Convert the whole model.")


def _control_flow(model: fb.Model) -> list[str]:
    """What to say of ops that run other subgraphs."""
    graph = model.subgraphs[0]
    running = (fb.op_type(model, op) for op in graph.operators if any(True for _ in reached_subgraphs(op)))
    types = ", ".join(sorted({*running} - {"CALL_ONCE"}))  # Which is no branch: it sets variables before the first run.
    if not types:
        return []
    return [
        f"The model has control flow ({types}): the ops inside its branches stay as they are, all others are searched."
    ]


def _settled(model: fb.Model, wishes: Wishes) -> tuple[bytes | None, list[str]]:
    """Fix the inputs' sizes and write true shapes behind them; None where all shapes are true already."""
    inputs = free_inputs(model)
    sizes = sizes_of(inputs, wishes.shapes)
    if shapes.is_settled(model):
        return (fb.serialise(model) if shapes.drop_signatures(model) else None), []
    is_stale = not shapes.has_free_sizes(model)
    before = editing.copied(model)
    fixed = {int(index): sizes[spec.key] for index, spec in zip(model.subgraphs[0].inputs, inputs, strict=True)}
    shapes.resize_inputs(model, fixed)
    settled = shapes.settled_if_equal(model)
    if settled is not None:
        return settled, [_STALE] if is_stale else []
    free = [index for index, spec in zip(fixed, inputs, strict=True) if spec.sizes[:1] == (None,)]
    shapes.resize_inputs(before, fixed, free_batch=free)
    return fb.serialise(before), [_LEFT_FREE] if free else []


_STALE = "Shapes in the file did not fit its ops: they were replaced by the shapes that the model has when it runs."
_LEFT_FREE = "The batch stays free: the model's outputs change if it is fixed to 1."
