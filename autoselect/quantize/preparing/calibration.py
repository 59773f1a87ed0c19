"""Ranges of activations for the quantizer: from TensorFlow's calibrator, or from plain runs where that would die.

TensorFlow's calibrator ends in a segmentation fault on a model whose ops run other subgraphs (WHILE, IF). Such a model
is run by LiteRT with all tensors preserved, and the smallest and largest value of every float activation of the main
subgraph is written where the calibrator writes it. The quantizer then takes the model; subgraphs without ranges, the
branches, it leaves as they are. On models that both can calibrate, the ranges are the same but where the calibrator
reads a tensor after an op behind it has worked in place, see :mod:`autoselect.quantize.repairing.ranges`. No op does
so to the scores that a mask is put on: they are outputs while it reads them.

Ranges that kill TensorFlow's quantizer, or that LiteRT refuses, are then mended in the calibrated model.

* A range without an end: a LOG of zeros that a SELECT takes out again. The quantizer ends in a segmentation fault, or
  LiteRT aborts. Such a tensor loses its range, and the ops at it stay float. A mask of -inf before a SOFTMAX keeps a
  range, since the quantizer sees one that ends near the scores.
* An output that was zero in all samples: the last steps of a padded sequence. Its smallest step is far below a step of
  the sums that it is scaled from, and XNNPACK refuses the whole model (``requantization scale must be less than 256``).
  The range is widened until it takes them. Other ops than weighted ones, at which LiteRT aborts, write zeros with the
  range of what they read: a mask that hid nothing in the samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.recipe import Recipe
from autoselect.errors import DataError, PreparationError, ScoreError
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.quantize.preparing import converter
from autoselect.rewrites import names
from autoselect.rewrites.for_quantizer import NEAR_MASKS, far_ranges, masked_scores
from autoselect.rewrites.rewriting import Rewrite, rewrite, rewritten
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.operands import WEIGHTED
from autoselect.tflite.ranges import LEAST_REACH, Range, extremes, give_ranges, range_of, set_range
from autoselect.tflite.tflite_file import TfliteFile


def calibrated_model(
    source: TfliteFile, samples: Iterable[Sequence[np.ndarray]], node_names: Sequence[str]
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
    return CalibratedModel(file=_mended(model), names=key)


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
        ranges = found_ranges(source, samples)
        return with_found_ranges(source.copied(), ranges)
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
    graph, messages = model.subgraphs[0], []
    for name, tensor in zip(samples[0], (graph.tensors[i] for i in graph.inputs), strict=True):
        held = range_of(tensor)
        if held is None or tensor.type != schema.TensorType.FLOAT32:
            continue
        # A range in 8 bits has 255 steps.
        values, step = np.concatenate([sample[name].ravel() for sample in samples]), (held[1] - held[0]) / 255
        share = float(np.mean((values < held[0] - step) | (values > held[1] + step)))
        # Share of an input's values: quantizers that leave out the ends of a range leave out 1 % or less.
        if share > 0.05:
            messages.append(
                f"Input {name!r} of the integer model holds {held[0]:.3g} to {held[1]:.3g}, and the "
                f"calibration samples have {values.min():.3g} to {values.max():.3g}: {100 * share:.0f} % of their "
                "values are clipped. The integer model was made for inputs that are prepared otherwise."
            )
    return messages


def with_found_ranges(model: fb.Model, ranges: Mapping[int, Range]) -> fb.Model:
    """The model, calibrated in place with these ranges, by index of the main subgraph's tensors."""
    for index, (low, high) in ranges.items():
        parameters = schema.QuantizationParametersT()
        parameters.min = np.array([low], dtype=np.float32)
        parameters.max = np.array([high], dtype=np.float32)
        model.subgraphs[0].tensors[index].quantization = parameters
    return model


_NO_END = 2.0**100
"""A range up to there says as much as one up to infinity: even its smallest step is beyond all other values."""
_MOST_STEPS = 128.0
"""Steps of an output in one step of the sums, at most: half of what XNNPACK takes."""


def _mended(model: fb.Model) -> TfliteFile:
    """A calibrated model, under canonical names, with ranges that can be used; changed in place.

    Raises:
        BuildError: If the quantizer refuses the model.
    """
    rewrite(model, CALIBRATED)
    # What the quantizer makes of a range of zeros.
    if not any(_span(model, op) <= 2e-6 for op in _weighted(model)):
        return TfliteFile(model=model)
    # What is widened may hand its scale on to ops that are then too fine themselves.
    for _ in range(4):
        source = rewritten(TfliteFile(model=model), (NEAR_MASKS,))
        chosen = _widened(model, converter.quantize(source, denylisted=(), recipe=Recipe()).model)
        if not chosen:
            break
        give_ranges(model, chosen)
    return TfliteFile(model=model)


def _end_ranges(model: fb.Model) -> list[fb.Tensor]:
    """Take ranges without an end from tensors, in place; a mask that the quantizer sees nearer gets one with an end."""
    hidden, endless = far_ranges(TfliteFile(model=model)), list[fb.Tensor]()
    for index, tensor in enumerate(model.subgraphs[0].tensors):
        if max(map(abs, _range_of(tensor)), default=0.0) < _NO_END:  # False for what is not a number.
            continue
        endless.append(tensor)
        if index in hidden and _range_of(tensor)[1] < _NO_END:
            fb.parameters(tensor).min = np.array([-_NO_END / 2.0], dtype=np.float32)
        else:
            tensor.quantization = None
    return endless


def _range_zeros(model: fb.Model) -> list[fb.Tensor]:
    """Give what was always zero the range of what it is made of, in place."""
    tensors, changed_tensors = model.subgraphs[0].tensors, list[fb.Tensor]()
    for op in model.subgraphs[0].operators:
        zeros = [tensors[i] for i in op.outputs if (given := range_of(tensors[i])) and _reach(given) == 0.0]
        if zeros and fb.op_type(model, op) not in WEIGHTED:
            reach = max((_reach(_values(model, tensors[i])) for i in op.inputs if i >= 0), default=0.0)
            for tensor in zeros if reach else ():
                set_range(tensor, -reach, reach)
                changed_tensors.append(tensor)
    return changed_tensors


CALIBRATED = (
    Rewrite(name="endless ranges taken", deed=_end_ranges),
    Rewrite(name="zeros given a range", deed=_range_zeros),
)


def _reach(values: Iterable[float]) -> float:
    """The largest magnitude; 0 where it is as good as that."""
    reach = max(map(abs, values), default=0.0)
    return reach if LEAST_REACH <= reach < _NO_END else 0.0


def _values(model: fb.Model, tensor: fb.Tensor) -> tuple[float, ...]:
    """Smallest and largest value of a float tensor, as far as they are known."""
    if not fb.is_constant(model, tensor):
        return _range_of(tensor)
    values = fb.constant_values(model, tensor)
    return (float(values.min()), float(values.max())) if values.dtype == np.float32 and values.size else ()


def _range_of(tensor: fb.Tensor) -> tuple[float, ...]:
    """Smallest and largest value; empty where calibration gave no range."""
    return range_of(tensor) or ()


def _weighted(model: fb.Model) -> list[fb.Operator]:
    return [op for op in model.subgraphs[0].operators if fb.op_type(model, op) in WEIGHTED]


def _span(model: fb.Model, op: fb.Operator) -> float:
    given = _range_of(model.subgraphs[0].tensors[op.outputs[0]])
    return given[1] - given[0] if given else np.inf


def _widened(model: fb.Model, built: fb.Model) -> dict[int, Range]:
    """Ranges of the outputs that are too fine in an integer build, by tensor of the calibrated model."""
    wide_ranges, tensors = {}, built.subgraphs[0].tensors
    for index, places in names.op_places(built).items():
        for op in (built.subgraphs[0].operators[place] for place in places):
            kind = WEIGHTED.get(fb.op_type(built, op))
            if kind is None or len(op.inputs) <= max(1, kind.activation):
                continue
            rows = (op.inputs[kind.activation], op.inputs[1], op.outputs[0])
            steps = [max(fb.scales(tensors[i]), default=0.0) for i in rows]
            if steps[0] * steps[1] > steps[2] * _MOST_STEPS > 0.0:
                reach = steps[0] * steps[1]  # 127 levels on either side, as steps of ``reach / _MOST_STEPS`` and more.
                wide_ranges[int(model.subgraphs[0].operators[index].outputs[0])] = (-reach, reach)
    return wide_ranges
