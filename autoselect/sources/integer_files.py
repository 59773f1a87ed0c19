"""An integer model that another quantizer made: what the file itself says, before it meets its float model."""

from __future__ import annotations

from pathlib import Path

from autoselect.domain.graph import IN_INTEGERS, Op, OpKind
from autoselect.errors import ModelError
from autoselect.sources import shapes, tflite_files
from autoselect.tflite import analysis, reader
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.tflite_file import TfliteFile

_WEIGHT_DTYPES = frozenset({"int8", "uint8", "int4"})


def integer_model(source: str | Path | bytes, signature: str | None) -> tuple[bytes, bool]:
    """Read an integer model.

    Args:
        source: A ``.tflite`` file or its bytes.
        signature: Key of the signature to take, where the file has several.

    Returns:
        Its bytes, and whether weights have one scale for each channel.

    Raises:
        ModelError: If it cannot be read, or computes nothing with integers.
    """
    try:
        content = source if isinstance(source, bytes) else fb.read_model_file(Path(source))
        file = TfliteFile(content)
        analysis.analyse(file)  # Refuses a file whose ops and tensors do not fit together.
        file = tflite_files.of_signature(file, signature)
        content, model = file.content, file.model
    except ModelError as exc:
        raise ModelError(f"The integer model cannot be taken (--integer). {exc}") from exc
    ops = reader.read_graph(model).ops
    if not any(op.kind in IN_INTEGERS and op.op_type not in fb.CONVERSIONS for op in ops):
        raise ModelError(
            f"The integer model has no integer op (--integer): {_kinds(ops)} Expected is a model with int8 weights and "
            "int8 activations. Leave the option out to have autoselect quantize the float model."
        )
    tensors = (tensor for tensor in model.subgraphs[0].tensors if fb.is_constant(model, tensor))
    weights = (tensor for tensor in tensors if fb.TENSOR_DTYPES[tensor.type] in _WEIGHT_DTYPES)
    return content, any(len(fb.scales(tensor)) > 1 for tensor in weights)


def settled(file: TfliteFile, float_model: fb.Model) -> TfliteFile:
    """The integer model with true shapes for inputs of the float model's, in the same order.

    Runs native code where shapes are free or stale: call it in a worker.

    Raises:
        ModelError: If LiteRT cannot run the model in these shapes.
    """
    if shapes.is_settled(file.model):
        return file
    model = file.copied()
    graph, float_graph = model.subgraphs[0], float_model.subgraphs[0]
    pairs = zip(map(int, graph.inputs), map(int, float_graph.inputs), strict=True)
    fixed = {index: fb.shape_of(float_graph.tensors[twin]) for index, twin in pairs}
    shapes.resize_inputs(model, fixed)
    return TfliteFile(shapes.settled_shapes(model))


def _kinds(ops: tuple[Op, ...]) -> str:
    if any(op.kind is OpKind.HYBRID for op in ops):
        return "only its weights are quantized (dynamic range)."
    return "it is a float model."
