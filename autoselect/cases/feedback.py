"""Outputs that are fed back as inputs: which they are, and calibration samples with the states that this reaches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from autoselect.cases.files import CaseFiles
from autoselect.data.fit import Sample, names_by_key
from autoselect.data.samples import SampleStore
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError, UsageError
from autoselect.sources.wishes import Feedback
from autoselect.tflite.reader import Interface
from autoselect.tflite.runner import Runner


def fed_inputs(feedback: Feedback, ends: Interface) -> dict[str, str]:
    """Check what is fed back.

    Args:
        feedback: Input by output, as users name them.
        ends: Of the float model.

    Returns:
        Output key by input key.

    Raises:
        UsageError: If there is no such output or input, one comes twice, or they do not fit each other.
    """
    fed: dict[str, str] = {}
    for output, target in feedback.items():
        source, place = _named(output, ends.outputs, "output"), _named(target, ends.inputs, "input")
        if place.key in fed:
            raise UsageError(f"--feedback: input {target!r} comes twice. Feed one output into each input.")
        if (source.shape, source.dtype) != (place.shape, place.dtype) or place.dtype.kind != "f":
            raise UsageError(
                f"--feedback: expected a float output of the shape of input {target!r}, {place.dtype} {place.shape}; "
                f"output {output!r} is {source.dtype} {source.shape}."
            )
        fed[place.key] = source.key
    if fed and len(fed) == len(ends.inputs):
        raise UsageError("--feedback: all inputs are fed back, and none is left for samples. Leave one out.")
    return fed


def question_of(ends: Interface) -> str:
    """Ask whether outputs are fed back that look so; empty if none does.

    They have the shape of an input, alone of all inputs and outputs, beside at least one other input. If names tell of
    a state, only these are asked for.
    """
    inputs, outputs = ([s for s in specs if s.dtype.kind == "f"] for specs in (ends.inputs, ends.outputs))
    alike = {s.key: [o for o in outputs if (o.shape, o.dtype) == (s.shape, s.dtype)] for s in inputs}
    alone = [s for s in inputs if sum(other.shape == s.shape for other in inputs) == len(alike[s.key]) == 1]
    pairs = [(alike[s.key][0], s) for s in alone if len(ends.inputs) > 1]
    named = [(o, s) for o, s in pairs if any(_STATE.search(name.lower()) for name in (o.key, o.name, s.key, s.name))]
    if not (pairs := named or pairs):
        return ""
    fits = "; ".join(f"output {o.key!r} and input {s.key!r}" for o, s in pairs)
    options = " or ".join(f"--feedback {o.key}={s.key}" for o, s in pairs)
    return f"These have the same shape: {fits}. If the output is fed back at the next step, say so with {options}."


_STATE = re.compile("state|hidden|cell|memory|cache|carry|context")


def _named(name: str, specs: tuple[TensorSpec, ...], side: str) -> TensorSpec:
    fitting = next((spec for spec in specs if names_by_key([name], [spec])), None)
    if fitting is None:
        names = ", ".join(repr(spec.key) for spec in specs)
        raise UsageError(f"--feedback: the model has no {side} {name!r}. Its {side}s: {names}.")
    return fitting


def with_gaps(sample: Sample, inputs: Iterable[TensorSpec]) -> Sample:
    """A sample with NaN for the inputs that it leaves out."""
    return {s.key: sample[s.key] if s.key in sample else np.full(s.shape, np.nan, s.dtype) for s in inputs}


def feed_back(root: Path, fed: Mapping[str, str]) -> None:
    """Run the float model over the calibration samples of a case, and fill their gaps with what it feeds back.

    The samples are then mixed, always alike: the first ones would be of one sequence, and measure the layers alone.
    Those of a model that has a state of its own, too, keep their order.

    Raises:
        DataError: If no sample has a gap, or a state is no number any more.
    """
    files = CaseFiles(root=root)
    folder, runner = files.samples("calibration"), Runner(files.float_model.read_bytes())
    given = SampleStore.open(folder)
    samples = (given.inputs(i) for i in range(len(given)))
    filled = SampleStore.write(folder, ((sample, None) for sample in _stepped(runner, samples, fed)), runner.inputs)
    if filled.signature == given.signature:
        raise DataError(
            f"--feedback: every calibration sample holds {', '.join(map(repr, fed))}, so nothing is fed back. Leave it "
            "out of all samples but those that begin a sequence with it."
        )
    if runner.has_steps:
        return
    order = np.random.default_rng(0).permutation(len(filled)).tolist()
    SampleStore.write(folder, ((filled.inputs(i), None) for i in order), runner.inputs)


def _stepped(runner: Runner, samples: Iterable[Sample], fed: Mapping[str, str]) -> Iterator[Sample]:
    """Samples with the state of the step before in their gaps; zeros at first."""
    state = {spec.key: np.zeros(spec.shape, spec.dtype) for spec in runner.inputs if spec.key in fed}
    for number, sample in enumerate(samples):
        inputs = {key: state[key] if key in fed and np.isnan(value).any() else value for key, value in sample.items()}
        yield inputs
        outputs = runner.go_on(inputs)
        state = {key: outputs[output].copy() for key, output in fed.items()}
        if wrong := [key for key, value in state.items() if not np.isfinite(value).all()]:
            raise DataError(
                f"--feedback: after calibration sample {number} (counted from 0) the float model gives no numbers for "
                f"{wrong[0]!r}: its state grows without end. Check which output is fed back, and begin sequences anew."
            )
