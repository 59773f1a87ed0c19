"""Shapes written as they truly are: a file's own may be free, or left over from another batch.

Runs native code, so callers run it in a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from autoselect.errors import ModelError, first_line, sentence
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import interpreter_of

_SAME_ELEMENTS = frozenset(
    {"RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "RELU", "RELU6", "LOGISTIC", "TANH", "SOFTMAX", "LOG_SOFTMAX"}
    | {"GELU", "ELU", "LEAKY_RELU", "HARD_SWISH", "EXP", "LOG", "SQRT", "RSQRT", "SQUARE", "NEG", "ABS", "CAST"}
)
"""Ops whose output has as many elements as their first input."""
_NO_SCALAR = frozenset(
    {"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "AVERAGE_POOL_2D", "MAX_POOL_2D", "SOFTMAX"}
)
"""Ops whose output has an axis at least: old converters left out shapes that they did not know."""
_T = TypeVar("_T")


class Kernels:
    """One model in LiteRT's interpreter, whose inputs may have another shape than in the file."""

    def __init__(self, content: bytes, shapes: Sequence[tuple[int, ...]], *, delegates: bool = False) -> None:
        """Load a model and resize its inputs.

        Args:
            content: Bytes of a TFLite file.
            shapes: Of the inputs, in the model's order.
            delegates: Let XNNPACK take ops, as LiteRT does by default; then no tensor inside can be read.

        Raises:
            ModelError: If LiteRT refuses the model in these shapes.
        """
        try:
            self._interpreter = interpreter_of(content, preserve=not delegates, delegates=delegates)
            self.inputs = self._interpreter.get_input_details()
            for detail, shape in zip(self.inputs, shapes, strict=True):
                if tuple(detail["shape"]) != shape:
                    self._interpreter.resize_tensor_input(detail["index"], shape)
            self._interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as exc:
            raise _refused(shapes, exc) from exc
        self._shapes = shapes

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run one sample from a fresh state; its inputs in the model's order."""
        try:
            self._interpreter.reset_all_variables()
            for detail, value in zip(self.inputs, inputs, strict=True):
                self._interpreter.set_tensor(detail["index"], value)
            self._interpreter.invoke()
        except (ValueError, RuntimeError) as exc:
            raise _refused(self._shapes, exc) from exc
        return [np.array(self._interpreter.get_tensor(d["index"])) for d in self._interpreter.get_output_details()]

    def shapes(self) -> dict[int, tuple[int, ...]]:
        """Shape of each tensor of the main subgraph that holds values after a run."""
        shapes = {}
        for detail in self._interpreter.get_tensor_details():
            try:
                shapes[int(detail["index"])] = tuple(self._interpreter.get_tensor(detail["index"]).shape)
            except ValueError:  # The output of a WHILE that nobody reads has no memory.
                continue
        return shapes


def _refused(shapes: Sequence[tuple[int, ...]], exc: Exception) -> ModelError:
    sizes = ", ".join("x".join(map(str, shape)) for shape in shapes)
    return ModelError(
        f"LiteRT cannot run the model with inputs of {sizes}: {sentence(first_line(exc))} "
        "Choose other sizes with --shape, or convert the model again with fixed sizes."
    )


def settled_shapes(model: fb.Model) -> bytes:
    """Write the shapes that tensors truly have, found by running the model.

    The model runs on two random samples with plain kernels: a tensor of the same shape in both becomes static, any
    other keeps its free sizes.

    Args:
        model: Changed in place.

    Returns:
        Bytes of the model, with equal outputs. Subgraphs of control flow stay as they are.

    Raises:
        ModelError: If LiteRT cannot run the model in these shapes.
    """
    return _settle(model)[0]


def settled_bytes(content: bytes) -> bytes:
    """As :func:`settled_shapes`, of a file."""
    return settled_shapes(fb.parse(content))


def settled_if_equal(model: fb.Model) -> bytes | None:
    """Bytes of the model in the shapes that it truly has; None where its outputs would change by :func:`same_outputs`.

    The model is changed in place.

    Raises:
        ModelError: If LiteRT cannot run the model in the shapes of its inputs.
    """
    settled, inputs, outputs = _settle(model)
    return settled if same_outputs(settled, inputs, outputs) else None


def _settle(model: fb.Model) -> tuple[bytes, list[list[np.ndarray]], list[list[np.ndarray]]]:
    """The settled model, and on what inputs the original gave which outputs."""
    graph = model.subgraphs[0]
    shapes = [fb.shape_of(graph.tensors[i]) for i in graph.inputs]
    kernels = Kernels(fb.serialise(model), shapes)
    rows, runs = on_random_inputs(model, shapes, lambda row: (kernels.run(row), kernels.shapes()))
    outputs, (first, second) = [answer for answer, _ in runs], [tensor_shapes for _, tensor_shapes in runs]
    for index, tensor in enumerate(graph.tensors):
        if fb.is_constant(model, tensor) or index not in first or first[index] != second.get(index):
            continue
        tensor.shape = np.array(first[index], dtype=np.int32)
        tensor.shapeSignature = None
        tensor.hasRank = True
    return fb.serialise(model), rows, outputs


def on_random_inputs(
    model: fb.Model, shapes: Sequence[tuple[int, ...]], call: Callable[[list[np.ndarray]], _T]
) -> tuple[list[list[np.ndarray]], list[_T]]:
    """What a function says of two random inputs of a model: normal numbers, or 0 and 1 for integers and bools.

    If the function refuses these, numbers are 0 and 1 too: they may be indices, as words of a Keras embedding. Then
    all integers are 1: zero may be no index and no sample rate. At last integers rise from zero: they may say to
    which segment each row belongs. The second input has one segment more, so that sizes that depend on it differ.

    Args:
        model: Whose inputs they are.
        shapes: Of the inputs, in the model's order.
        call: Runs the model, and raises a ``ModelError`` where it does not run.

    Returns:
        The inputs, and what the function says of each.

    Raises:
        ModelError: What the function says of normal numbers, where it refuses all.
    """
    rng = np.random.default_rng(0)
    dtypes = [np.dtype(fb.TENSOR_DTYPES[model.subgraphs[0].tensors[i].type]) for i in model.subgraphs[0].inputs]

    def rows(normal: str, whole: Callable[[int, tuple[int, ...]], np.ndarray]) -> list[list[np.ndarray]]:
        def one(dtype: np.dtype[Any], shape: tuple[int, ...], number: int) -> np.ndarray:
            drawn = rng.normal(size=shape) if dtype.kind in normal else whole(number, shape)
            return drawn.astype(dtype)

        return [[one(dtype, shape, i) for dtype, shape in zip(dtypes, shapes, strict=True)] for i in range(2)]

    def zero_or_one(_: int, shape: tuple[int, ...]) -> np.ndarray:
        return rng.integers(0, 2, size=shape)

    refusals = []
    kinds = (("fc", zero_or_one), ("", zero_or_one), ("fc", lambda _, shape: np.ones(shape)), ("fc", _rising))
    for normal, whole in kinds:
        tried = rows(normal, whole)
        try:
            return tried, [call(row) for row in tried]
        except ModelError as exc:
            refusals.append(exc)
    raise refusals[0]


def _rising(number: int, shape: tuple[int, ...]) -> np.ndarray:
    """0 in the first input, 0 and then 1 along the last axis in the second; 1 there if it has one place only."""
    size = shape[-1] if shape else 1
    row = (np.arange(size) >= size // 2) * number
    return np.broadcast_to(row if shape else row[0], shape)


def resize_inputs(model: fb.Model, shapes: Mapping[int, tuple[int, ...]], *, free_batch: Collection[int] = ()) -> None:
    """Give the inputs of a model other shapes, in place; what lies behind them is stale until it is settled.

    Args:
        model: Changed in place.
        shapes: By tensor index.
        free_batch: Tensors whose first axis stays free.
    """
    for index, shape in shapes.items():
        tensor = model.subgraphs[0].tensors[index]
        tensor.shape = np.array(shape, dtype=np.int32)
        tensor.shapeSignature = np.array([-1, *shape[1:]], dtype=np.int32) if index in free_batch else None


def spell_out(model: fb.Model) -> bool:
    """Move negative sizes of shapes, which LiteRT does not take, to where the schema has free ones, in place.

    Returns:
        Whether there was one.
    """
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors or []]
    free_tensors = [tensor for tensor in tensors if min(fb.shape_of(tensor), default=0) < 0]
    for tensor in free_tensors:
        shape = fb.shape_of(tensor)
        if not fb.indices(tensor.shapeSignature):
            tensor.shapeSignature = np.array(shape, dtype=np.int32)
        tensor.shape = np.array([max(size, 1) for size in shape], dtype=np.int32)
    return bool(free_tensors)


def has_free_sizes(model: fb.Model) -> bool:
    """True where a tensor of the main subgraph has a free size."""
    rows = (tensor.shapeSignature for tensor in model.subgraphs[0].tensors)
    return any(size < 0 for row in rows if row is not None for size in row)


def is_settled(model: fb.Model) -> bool:
    """True where no tensor of the main subgraph has a free size, and no shape is plainly wrong.

    Raises:
        ModelError: If an op lacks operands that all ops of its type have.
    """
    return not has_free_sizes(model) and not any(_is_stale(model, op) for op in model.subgraphs[0].operators or [])


def _is_stale(model: fb.Model, op: fb.Operator) -> bool:
    op_type, tensors = fb.op_type(model, op), model.subgraphs[0].tensors
    if op_type not in _SAME_ELEMENTS | _NO_SCALAR:
        return False
    ends = [next(iter(fb.indices(row)), -1) for row in (op.inputs, op.outputs)]
    if min(ends) < 0:
        raise ModelError(f"The TFLite file is damaged: a {op_type} reads or writes nothing. Copy or convert it again.")
    source, result = (fb.shape_of(tensors[index]) for index in ends)
    return (op_type in _SAME_ELEMENTS and np.prod(source) != np.prod(result)) or (op_type in _NO_SCALAR and not result)


def drop_signatures(model: fb.Model) -> bool:
    """Remove shape signatures that leave nothing free, in place; True if there was one."""
    signed = [tensor for tensor in model.subgraphs[0].tensors if tensor.shapeSignature is not None]
    for tensor in signed:
        tensor.shapeSignature = None
    return bool(signed)


def same_outputs(
    settled: bytes, inputs: Sequence[Sequence[np.ndarray]], expected: Sequence[Sequence[np.ndarray]]
) -> bool:
    """True where a model in settled shapes does what it did before.

    With plain kernels its outputs equal those of the original, bit for bit. With LiteRT's default kernels it runs, and
    its outputs differ by rounding only: XNNPACK leaves ops with free shapes to the plain kernels.

    Args:
        settled: Bytes of the model.
        inputs: For each sample, in the model's order.
        expected: What the original gives on plain kernels, likewise.
    """
    shapes = [value.shape for value in inputs[0]]
    try:
        plain = Kernels(settled, shapes)
        if not all(_all(_equal, plain.run(row), out) for row, out in zip(inputs, expected, strict=True)):
            return False
        return _all(_close, Kernels(settled, shapes, delegates=True).run(inputs[0]), expected[0])
    except ModelError:
        return False


def _all(
    same: Callable[[np.ndarray, np.ndarray], bool], outputs: Sequence[np.ndarray], other: Sequence[np.ndarray]
) -> bool:
    return all(same(*pair) for pair in zip(outputs, other, strict=True))


def _equal(output: np.ndarray, other: np.ndarray) -> bool:
    return output.shape == other.shape and output.tobytes() == other.tobytes()


def _close(output: np.ndarray, other: np.ndarray) -> bool:
    if output.shape != other.shape or output.dtype.kind not in "fc":
        return output.shape == other.shape
    scale = float(np.max(np.abs(output), initial=0.0, where=np.isfinite(output)))
    # Share of the largest output that XNNPACK's outputs may differ by from the plain kernels': rounding, not an
    # error.
    return bool(np.allclose(output, other, rtol=0.0, atol=1e-3 * scale + 1e-6, equal_nan=True))
