"""Runs a TFLite model on LiteRT's interpreter, the kernels that users deploy."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from autoselect.domain.tensors import TensorSpec, in_source_order
from autoselect.errors import ScoreError
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Time of one inference, milliseconds: median and quartiles of so many repetitions."""

    median: float
    low: float
    high: float
    runs: int


def latency_of(content: bytes, sample: Mapping[str, np.ndarray], *, threads: int) -> Latency:
    """Time one model on one sample, with LiteRT's default delegates.

    Raises:
        ScoreError: If the interpreter refuses the model.
    """
    runner = Runner(content, num_threads=threads)

    def seconds() -> float:
        before = runner.inference_seconds
        runner(sample)
        return runner.inference_seconds - before

    return repeated(seconds)


def repeated(seconds: Callable[[], float]) -> Latency:
    """Run until half a second is measured, 5 to 50 times, after three runs that do not count; ``seconds`` runs once."""
    for _ in range(3):
        seconds()
    times: list[float] = []
    while len(times) < 5 or (len(times) < 50 and sum(times) < 0.5):
        times.append(seconds())
    low, median, high = (1e3 * float(value) for value in np.percentile(times, [25, 50, 75]))
    return Latency(median=median, low=low, high=high, runs=len(times))


Outputs = dict[str, np.ndarray]

_FAILED_OP = re.compile(r"Node number (\d+) \(")
_DIVIDED_BY_0 = re.compile(r"div\.cc:\d+ .* was not true.*Node number (\d+) \(DIV\)")
_UNPARTED = re.compile(r"(?<=\w)Node number ")


class Running(Protocol):
    """A model that is ready to be run a sample at a time, on whatever runs it; see :class:`Runner`."""

    @property
    def inference_seconds(self) -> float:
        """Time spent in what runs it."""

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> Outputs:
        """Run one sample from a fresh state."""

    def go_on(self, inputs: Mapping[str, np.ndarray]) -> Outputs:
        """Run one calibration sample; if the model has steps, go on from the state that the sample before it left."""

    def reset(self) -> None:
        """Begin again with a fresh state."""


class Runner:
    """One model, ready to be run a sample at a time; a call leaves no state to the next.

    Integer inputs and outputs are quantized from and dequantized to float32, so that a caller sees the
    same float values for every candidate. Inputs are matched by name.

    Attributes:
        inputs: The model's inputs.
        outputs: The model's outputs.
        inference_seconds: Time spent in the interpreter so far, nothing else.
        told: Called after each run with its inputs by key, as they were given, and its outputs; None for nobody.
    """

    told: Callable[[Mapping[str, np.ndarray], Outputs], None] | None = None

    def __init__(
        self,
        content: bytes,
        *,
        num_threads: int = 1,
        preserve_all_tensors: bool = False,
        readable: Collection[int] = (),
        delegates: bool | None = None,
        stands_for: bytes | None = None,
    ) -> None:
        """Load the model.

        Args:
            content: Bytes of a TFLite file.
            num_threads: Threads of the interpreter.
            preserve_all_tensors: Keep intermediate tensors readable (slower).
            readable: Intermediate tensors that are kept readable, by index: the model runs with them as outputs, so
                that delegates may compute them.
            delegates: Let LiteRT hand ops to XNNPACK, as it does by default. Tensors inside of what a delegate took are
                not readable, so None means no delegates where all tensors are to be preserved.
            stands_for: The file whose ops errors name; None for this one.

        Raises:
            ScoreError: If the interpreter refuses the model.
        """
        interface = reader.read_interface(content)
        self.inference_seconds = 0.0
        self.inputs, self.outputs = interface.inputs, interface.outputs
        self._interface, self._is_fresh = interface, True
        delegates = not preserve_all_tensors if delegates is None else delegates
        content = _with_outputs(content, readable) if readable else content
        self._named = stands_for or (content if delegates else None)
        self._open = partial(interpreter_of, content, num_threads, preserve=preserve_all_tensors, delegates=delegates)
        self._interpreter = self._opened()
        self._feeds = list(zip(self.inputs, self._interpreter.get_input_details(), strict=True))
        details = dict(zip(self.outputs, self._interpreter.get_output_details(), strict=not readable))
        self._fetches = [(spec, details[spec]) for spec in in_source_order(self.outputs)]

    def _opened(self) -> Any:
        try:
            interpreter = self._open()
            interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as exc:
            raise ScoreError(f"The LiteRT interpreter refuses the model: {str(exc).strip()}") from exc
        return interpreter

    def __call__(self, inputs: Mapping[str, np.ndarray] | np.ndarray) -> Outputs:
        """Run one sample from a fresh state.

        Args:
            inputs: Arrays by input key or tensor name, in the model's shape (batch 1); a bare array for a
                model of one input.

        Returns:
            Float32 arrays by output key (integer outputs dequantized), in the order of the source's outputs.

        Raises:
            ScoreError: As :meth:`step`.
        """
        self.reset()
        return self.step(inputs)

    def go_on(self, inputs: Mapping[str, np.ndarray]) -> Outputs:
        """Run one calibration sample; if the model has steps, go on from the state that the sample before it left.

        A model without steps begins with a fresh state. The samples of a model that assigns variables are steps of a
        sequence: with a fresh state all would begin alike. TensorFlow's calibrator keeps the variables, too.

        Raises:
            ScoreError: As :meth:`step`.
        """
        return self.step(inputs) if self.has_steps else self(inputs)

    @property
    def has_steps(self) -> bool:
        """Whether :meth:`go_on` keeps state from sample to sample: what is in resources (variables, tables)."""
        return self._interface.has_resources

    def listed(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs for one sample, in the order of the file."""
        outputs = self(inputs)
        return [outputs[spec.key] for spec in self.outputs]

    def step(self, inputs: Mapping[str, np.ndarray] | np.ndarray) -> Outputs:
        """Run one sample without resetting variables, as a streaming model does.

        Raises:
            ScoreError: If an input is missing or has another shape, or a kernel fails: an integer DIV by what was
                rounded to zero.
        """
        if not isinstance(inputs, Mapping):
            inputs = {self.inputs[0].key: inputs}
        given = dict(zip((spec.key for spec in self.inputs), inputs_of(inputs, self.inputs), strict=True))
        for spec, detail in self._feeds:
            value = quantized(given[spec.key], detail)
            if value.shape != tuple(detail["shape"]):
                raise ScoreError(
                    f"Input {spec.key!r} needs the shape {tuple(map(int, detail['shape']))}, got {value.shape}. "
                    "Give one sample with its batch axis, such as x[None]."
                )
            self._interpreter.set_tensor(detail["index"], value)
        start, self._is_fresh = time.perf_counter(), False
        try:
            self._interpreter.invoke()
        except RuntimeError as exc:
            why = f"The LiteRT interpreter fails on a sample: {_why(str(exc))}"
            raise ScoreError(why, op=self._failed_op(str(exc), inputs)) from exc
        self.inference_seconds += time.perf_counter() - start
        outputs = {
            spec.key: dequantized(_output(self._interpreter, detail["index"]), detail) for spec, detail in self._fetches
        }
        if self.told is not None:
            self.told(given, outputs)
        return outputs

    def _failed_op(self, message: str, inputs: Mapping[str, np.ndarray]) -> int | None:
        """The place of the op that fails; what delegates took, or stands in for ops, is run again as it is shipped."""
        if self._named is not None:
            return (failing_op(self._named, [inputs]) or (None,))[0]
        places = _FAILED_OP.findall(message)
        return int(places[-1]) if places else None

    def watch(
        self, samples: Iterable[Mapping[str, np.ndarray]], tensors: Collection[int], *, each_fresh: bool = False
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Run samples by :meth:`go_on`; after each give the index and the value of each of ``tensors``, all readable.

        If ``each_fresh``, every sample begins with the initial state, as a scored sample does. Tensors without a value
        are left out: outputs of a WHILE that nobody reads, and tensors without elements.
        """
        for sample in samples:
            (self if each_fresh else self.go_on)(sample)
            for index in tensors:
                try:
                    value = self.tensor(index)
                except ValueError:  # It has no memory.
                    continue
                if value.size:
                    yield index, value

    def reset(self) -> None:
        """Set every variable (recurrent state) back to what it is at first."""
        if self._is_fresh:
            return
        if self._interface.has_resources:  # which LiteRT itself does not reset
            self._interpreter, self._is_fresh = self._opened(), True
        elif self._interface.is_stateful:
            self._interpreter.reset_all_variables()

    def tensor(self, index: int) -> np.ndarray:
        """Value of a tensor after a run; it must be readable."""
        return np.asarray(self._interpreter.get_tensor(index))

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of a tensor after a run; it must be readable."""
        view: np.ndarray = self._interpreter.tensor(index)()
        return view.shape


def _with_outputs(content: bytes, tensors: Collection[int]) -> bytes:
    """A model that also gives those tensors as outputs, after its own, that ops of its main subgraph write."""
    model = fb.parse(content)
    graph = model.subgraphs[0]
    outputs, written = fb.indices(graph.outputs), fb.computed(graph) - {*fb.indices(graph.inputs)}
    graph.outputs = np.array([*outputs, *sorted(written & {*tensors} - {*outputs})], np.int32)
    return fb.serialise(model)


def _output(interpreter: Any, index: int) -> np.ndarray:
    """What an output holds after a run; LiteRT itself gives none that has no elements."""
    try:
        return np.asarray(interpreter.get_tensor(index))
    except ValueError:
        [detail] = [detail for detail in interpreter.get_output_details() if detail["index"] == index][:1]
        if 0 not in detail["shape"]:
            raise
        return np.zeros(detail["shape"], detail["dtype"])


def failing_op(content: bytes, samples: Iterable[Mapping[str, np.ndarray]]) -> tuple[int, str] | None:
    """The place, in the main graph, of the op whose kernel fails on one of the samples, and the error; None if none."""
    runner = Runner(content, delegates=False)
    try:
        for sample in samples:
            runner(sample)
    except ScoreError as exc:
        return None if exc.op is None else (exc.op, str(exc))
    return None


def _why(message: str) -> str:
    """What LiteRT says of a failure; the lines before the last are what NumericVerify ops had to say."""
    last = message.strip().splitlines()[-1]
    if match := _DIVIDED_BY_0.search(last):
        return f"op {match[1]} (DIV) divides by integers, and one that it divides by was rounded to 0."
    return _UNPARTED.sub(". Node number ", last)


def inputs_of(inputs: Mapping[str, np.ndarray], specs: Sequence[TensorSpec]) -> list[np.ndarray]:
    """The arrays of a model's inputs, in the order of ``specs``.

    An array is found by the key or the tensor name of its input. If no name is known, since another file of the same
    model names all inputs otherwise, arrays go by position.

    Raises:
        ScoreError: If an input is missing.
    """
    matches = [next((inputs[name] for name in (spec.key, spec.name) if name in inputs), None) for spec in specs]
    arrays, values = [value for value in matches if value is not None], list(inputs.values())
    if len(arrays) == len(specs):
        return arrays
    # Beside a name that is known, an unknown one is a slip: by place it would get the values of another input.
    if not arrays and [np.shape(value) for value in values] == [spec.shape for spec in specs]:
        return values
    lacking = next(spec for spec, value in zip(specs, matches, strict=True) if value is None)
    came = ", ".join(map(repr, inputs)) or "none"
    raise ScoreError(f"The model needs an input {lacking.key!r} of shape {lacking.shape}, got {came}. Rename it.")


def interpreter_of(content: bytes, num_threads: int = 1, *, preserve: bool, delegates: bool) -> Any:
    """LiteRT's interpreter of a model, before its tensors have memory; raises what LiteRT raises."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.AUTO if delegates else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    with warnings.catch_warnings():
        # It says that preserving tensors is for debugging and costs memory: both are so.
        warnings.filterwarnings("ignore", message=".*experimental_preserve_all_tensors")
        return Interpreter(
            model_content=content,
            num_threads=num_threads,
            experimental_op_resolver_type=resolver,
            experimental_preserve_all_tensors=preserve,
        )


def quantized(value: np.ndarray, detail: Mapping[str, Any]) -> np.ndarray:
    """A value in a tensor's type: real numbers become levels where the tensor has a scale; integers stay as they are.

    Args:
        value: Of any shape.
        detail: Of the tensor as the interpreter gives it: its ``name``, ``dtype`` and ``quantization_parameters``.

    Raises:
        ScoreError: If numbers of integers without a scale are not whole, or too large for them.
    """
    dtype = np.dtype(detail["dtype"])
    scales = detail["quantization_parameters"]["scales"]
    if dtype.kind not in "iu":
        return np.asarray(value, dtype=dtype, order="C")
    if len(scales) == 0 or np.asarray(value).dtype.kind in "iu":
        return _whole(np.asarray(value), dtype, detail["name"])
    info = np.iinfo(dtype)
    levels = np.rint(value / scales[0]) + detail["quantization_parameters"]["zero_points"][0]
    return np.asarray(np.clip(levels, info.min, info.max), dtype=dtype)


def _whole(value: np.ndarray, dtype: np.dtype[Any], name: str) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        integers = np.asarray(value, dtype=dtype, order="C")
    if integers is not value and not np.array_equal(integers, value):
        ends = np.iinfo(dtype)
        raise ScoreError(
            f"Input {name!r} takes whole numbers from {ends.min} to {ends.max}, got {value.dtype} values from "
            f"{value.min():.3g} to {value.max():.3g}. Bring them as the float model takes them."
        )
    return integers


def dequantized(value: np.ndarray, detail: Mapping[str, Any]) -> np.ndarray:
    """The float32 numbers that a tensor's levels stand for; what has no scale stays as it is; ``detail`` as above."""
    scales = detail["quantization_parameters"]["scales"]
    if value.dtype.kind not in "iu" or len(scales) == 0:
        return value
    zero_point = np.int32(detail["quantization_parameters"]["zero_points"][0])
    return np.asarray((value.astype(np.int32) - zero_point) * np.float32(scales[0]), dtype=np.float32)
