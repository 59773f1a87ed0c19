"""Ranges of activations for the quantizer: from TensorFlow's calibrator, or from plain runs where that would die.

TensorFlow's calibrator ends in a segmentation fault on a model whose ops run other subgraphs (WHILE, IF). Such a model
is run by LiteRT with all tensors preserved, and the smallest and largest value of every float activation of the main
subgraph is written where the calibrator writes it. The quantizer then takes the model; subgraphs without ranges, the
branches, it leaves as they are. On models that both can calibrate, the ranges are the same but where the calibrator
reads a tensor after an op behind it has worked in place, see :mod:`autoselect.quantize.repairing.ranges`. No op does
so to the scores that a mask is put on: they are outputs while it reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.errors import DataError, PreparationError, ScoreError
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.quantize.preparing import converter, usable_ranges
from autoselect.rewrites import names
from autoselect.rewrites.for_quantizer import masked_scores
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.ranges import Range, extremes, range_of
from autoselect.tflite.tflite_file import TfliteFile

_STEPS = 255
"""Of a range in 8 bits."""
_MOST_CLIPPED = 0.05
"""Share of an input's values: quantizers that leave out the ends of a range leave out 1 % or less."""


def calibrated_model(
    source: TfliteFile, samples: Iterable[Sequence[np.ndarray]], node_names: Sequence[str] = ()
) -> CalibratedModel:
    """Record the range of every activation, under canonical names, as the quantizer and LiteRT can use them.

    Args:
        source: A float model.
        samples: For each sample the inputs, in the model's order and shapes.
        node_names: Names for the nodes, see :func:`autoselect.rewrites.names.canonicalise`.

    Raises:
        PreparationError: If the model or the data are refused.
        BuildError: If the quantizer refuses the model.
    """
    model = calibrate(source, samples)
    key = names.canonicalise(model, node_names)
    return CalibratedModel(file=usable_ranges.mended(model), names=key)


def calibrate(source: TfliteFile, samples: Iterable[Sequence[np.ndarray]]) -> fb.Model:
    """Record the range of every activation.

    Args:
        source: A float model.
        samples: For each sample the inputs, in the model's order and shapes.

    Returns:
        The calibrated model.

    Raises:
        PreparationError: If the model or the data are refused.
    """
    if has_control_flow(source.model):
        found = found_ranges(source, samples)
        return with_found_ranges(source.copied(), found)
    scores = masked_scores(source.model)
    if not scores:
        return converter.calibrate(source, samples).taken()
    model = source.copied()
    model.subgraphs[0].outputs = np.array([*model.subgraphs[0].outputs, *scores], np.int32)
    calibrated = converter.calibrate(TfliteFile(model=model), samples).taken()
    calibrated.subgraphs[0].outputs = calibrated.subgraphs[0].outputs[: -len(scores)]
    return calibrated


def has_control_flow(model: fb.Model) -> bool:
    """True where an op of the main subgraph runs another."""
    return any(fb.op_type(model, op) in fb.CONTROL_FLOW for op in model.subgraphs[0].operators)


def found_ranges(source: TfliteFile, samples: Iterable[Sequence[np.ndarray]]) -> dict[int, Range]:
    """Smallest and largest value of the float activations of the main subgraph, by tensor index.

    Raises:
        PreparationError: If LiteRT refuses the model or the data.
    """
    graph, keys = source.model.subgraphs[0], [spec.key for spec in reader.input_specs(source.model)]
    activations = [i for i in fb.computed(graph) if graph.tensors[i].type == schema.TensorType.FLOAT32]
    try:
        return extremes(source.content, (dict(zip(keys, sample, strict=True)) for sample in samples), activations)
    except DataError:  # of the samples
        raise
    except (ScoreError, ValueError, RuntimeError) as exc:
        raise PreparationError(f"Calibrating the model failed. {exc}") from exc


def clipped_inputs(model: fb.Model, samples: Sequence[Mapping[str, np.ndarray]]) -> list[str]:
    """What to say of inputs whose samples a given integer model does not hold: they are often prepared otherwise.

    Args:
        model: The float model with the ranges of the integer model.
        samples: Inputs by key, in the model's order.
    """
    graph, told = model.subgraphs[0], []
    for name, tensor in zip(samples[0], (graph.tensors[i] for i in graph.inputs), strict=True):
        held = range_of(tensor)
        if held is None or tensor.type != schema.TensorType.FLOAT32:
            continue
        values, step = np.concatenate([sample[name].ravel() for sample in samples]), (held[1] - held[0]) / _STEPS
        share = float(np.mean((values < held[0] - step) | (values > held[1] + step)))
        if share > _MOST_CLIPPED:
            told.append(
                f"Input {name!r} of the integer model holds {held[0]:.3g} to {held[1]:.3g}, and the "
                f"calibration samples have {values.min():.3g} to {values.max():.3g}: {100 * share:.0f} % of their "
                "values are clipped. The integer model was made for inputs that are prepared otherwise."
            )
    return told


def with_found_ranges(model: fb.Model, ranges: Mapping[int, Range]) -> fb.Model:
    """The model, calibrated in place with these ranges, by index of the main subgraph's tensors."""
    for index, (low, high) in ranges.items():
        parameters = schema.QuantizationParametersT()
        parameters.min = np.array([low], dtype=np.float32)
        parameters.max = np.array([high], dtype=np.float32)
        model.subgraphs[0].tensors[index].quantization = parameters
    return model
