"""Mean inputs of weighted ops, measured in a float model: all that bias correction has to know of the samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.quantize.repairing import mean_outputs
from autoselect.quantize.repairing.weighted_ops import is_weighted
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.operands import WEIGHTED
from autoselect.tflite.runner import Runner
from autoselect.tflite.tflite_file import TfliteFile

Means = Mapping[int, np.ndarray]
"""For each weighted op of the float model, by index, the taps of its input, see :mod:`~.mean_outputs`."""


def taps_of(model: fb.Model, op: fb.Operator, mean: np.ndarray) -> np.ndarray:
    """The taps of a weighted op from the mean of its input over samples, in the input's shape."""
    tensors = model.subgraphs[0].tensors
    name = fb.op_type(model, op)
    weights = fb.shape_of(tensors[op.inputs[1]])
    if name == "FULLY_CONNECTED":
        return mean_outputs.dense_taps(mean, weights[-1])
    return mean_outputs.kernel_taps(mean, geometry_of(model, op), transposed=name == "TRANSPOSE_CONV")


def geometry_of(model: fb.Model, op: fb.Operator) -> mean_outputs.Geometry:
    """How the kernel of a convolution moves over its input."""
    tensors, options = model.subgraphs[0].tensors, op.builtinOptions
    weights, output = (fb.shape_of(tensors[i]) for i in (op.inputs[1], op.outputs[0]))
    return mean_outputs.Geometry(
        kernel=(weights[1], weights[2]),
        strides=(int(options.strideH), int(options.strideW)),
        dilations=(int(getattr(options, "dilationHFactor", 1)), int(getattr(options, "dilationWFactor", 1))),
        same=options.padding == schema.Padding.SAME,
        output=(output[1], output[2]),
    )


def measure_means(source: TfliteFile, samples: Iterable[Mapping[str, np.ndarray]]) -> dict[int, np.ndarray]:
    """Run a float model once over samples and take the taps of every weighted op of its main subgraph.

    Returns:
        Taps by op index; NaN and infinities of the model's tensors are in them. There are none for an op whose tensors
        have other shapes than the file says, or whose input has one shape on one sample and another on the next.

    Raises:
        ScoreError: If the interpreter refuses the model.
    """
    model = source.model
    ops = model.subgraphs[0].operators
    chosen = {i: op for i, op in enumerate(ops) if is_weighted(model, op)}
    inputs = {i: int(op.inputs[WEIGHTED[fb.op_type(model, op)].activation]) for i, op in chosen.items()}
    runner = Runner(source.content, readable={*inputs.values(), *(int(op.outputs[0]) for op in chosen.values())})
    means = mean_tensors(runner, samples, set(inputs.values()))
    return {
        i: taps_of(model, op, means[inputs[i]])
        for i, op in chosen.items()
        if inputs[i] in means and has_shapes(model, runner, (inputs[i], int(op.outputs[0])))
    }


def has_shapes(model: fb.Model, runner: Runner, tensors: Iterable[int]) -> bool:
    """Whether tensors came out in the shapes that the file gives them; it may leave some to the runtime."""
    return all(runner.shape(i) == fb.shape_of(model.subgraphs[0].tensors[i]) for i in tensors)


def mean_tensors(
    runner: Runner, samples: Iterable[Mapping[str, np.ndarray]], tensors: Iterable[int]
) -> dict[int, np.ndarray]:
    """Mean of tensors over samples, float64, in their shapes; the taps of a mean are the mean of the taps.

    A tensor whose shape depends on the sample has none.
    """
    sums: dict[int, np.ndarray] = {}
    count, left = 0, set(tensors)
    for sample in samples:
        runner.go_on(sample)
        count += 1
        for index in sorted(left):
            value = runner.tensor(index)
            if index not in sums:
                sums[index] = value.astype(np.float64)
            elif sums[index].shape == value.shape:
                sums[index] += value
            else:
                left.remove(index)
    return {index: total / count for index, total in sums.items() if index in left}
