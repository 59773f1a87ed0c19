"""What a caller may hand over as a model, and how it is read, named, described and looked at."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

from autoselect.api.told import explained
from autoselect.cases.calibrate import load_float
from autoselect.cases.files import CaseFiles
from autoselect.cases.ingredients import LIVE, Ingredients
from autoselect.data.texts import read_text
from autoselect.domain.graph import Graph
from autoselect.domain.recipe import IoType, Quantizer, Recipe
from autoselect.domain.tensors import TensorSpec, in_source_order
from autoselect.domain.units import moved_from
from autoselect.errors import ModelError, RecipeError, UsageError
from autoselect.isolation.pool import open_pool
from autoselect.quantize.preparing import converter, litert
from autoselect.runs.cache import cache_directory
from autoselect.sources.converters import live
from autoselect.sources.integer_files import integer_model
from autoselect.sources.keras_models import from_keras, is_keras_model
from autoselect.sources.loading import is_converted
from autoselect.sources.sample_sizes import with_sample_sizes
from autoselect.sources.saved_models import from_converter, is_converter
from autoselect.sources.tflite_files import FloatModel, from_bytes
from autoselect.sources.wishes import NO_WISHES, Shapes, Wishes, wishes_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

Source = Any
"""A path, bytes of a file, a live model of Keras, ONNX or PyTorch, or a ``tf.lite.TFLiteConverter``."""
ModelFile = Any
"""A finished ``.tflite``, as path or bytes; or what ``Source`` lists, which is converted to float first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSource:
    """A model in a form that a worker can read; ``calibration``, ``per_channel`` and ``io_type`` are a converter's own.

    ``notes`` say what was done to a live model. Its ``wishes`` have been fulfilled; only the signature is kept, because
    samples name the signature that they belong to.
    """

    model: Path | bytes
    calibration: object | None = None
    per_channel: bool = True
    io_type: IoType | None = None
    notes: tuple[str, ...] = ()
    wishes: Wishes = NO_WISHES


def describe(source: object) -> str | None:
    """An ingredient in words: enough to load it again, or the mark of a live object."""
    if source is None:
        return None
    if isinstance(source, Path):
        return str(source.absolute())
    if isinstance(source, str):
        return source if ":" in source and not Path(source).exists() else str(Path(source).absolute())
    return LIVE


def source_bytes(model: Path | bytes) -> int:
    """Size of a source, of a SavedModel folder that of all its files; 0 if there is none."""
    if isinstance(model, bytes):
        return len(model)
    if model.is_dir() and not is_converted(model):
        return 0  # It is refused later; it may be a whole home folder.
    files = model.rglob("*") if model.is_dir() else [model]
    return sum(path.stat().st_size for path in files if path.is_file())


def load_source(source: Source, wishes: Wishes = NO_WISHES, *, calibration: object = None) -> LoadedSource:
    """Turn any source into a path or bytes; a live object is converted here, where it lives.

    Args:
        source: What ``Source`` lists.
        wishes: Which signature to take, and sizes of inputs that the source leaves free.
        calibration: Where such sizes come from if nobody wishes any.

    Raises:
        UsageError: If it is none of what ``Source`` lists, or a wish does not fit.
    """
    if isinstance(source, bytes):
        return LoadedSource(model=source, wishes=wishes)
    if isinstance(source, (str, Path)):
        return LoadedSource(model=Path(source).absolute(), wishes=wishes)
    if is_keras_model(source):
        return _load_keras(source, wishes, calibration)
    if is_converter(source):
        return _load_converter(source, wishes, calibration)
    if (content := live.saved(source, wishes, calibration)) is not None:
        return LoadedSource(model=content, wishes=wishes)
    raise UsageError(
        "Expected a path, the bytes of a .tflite, a Keras model, a TFLiteConverter, an ONNX model, a PyTorch module or "
        f"a program of torch.export, got {type(source).__name__}."
    )


def _load_keras(model: Any, wishes: Wishes, calibration: object) -> LoadedSource:
    def load(chosen: Wishes) -> FloatModel:
        float_model = from_keras(model, chosen)
        return from_bytes(float_model.content).noted(*float_model.notes)

    loaded = with_sample_sizes(load, wishes, calibration)
    return LoadedSource(model=loaded.content, notes=loaded.notes)


def _load_converter(converter: Any, wishes: Wishes, calibration: object) -> LoadedSource:
    content, options = from_converter(converter)
    samples = calibration if calibration is not None else options.representative_dataset
    loaded = with_sample_sizes(partial(from_bytes, content), wishes, samples)
    return LoadedSource(
        model=loaded.content,
        calibration=options.representative_dataset,
        per_channel=options.per_channel,
        io_type=options.io_type,
        notes=loaded.notes,
        wishes=Wishes(signature=wishes.signature),  # which of the samples are its own
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedInteger:
    """An integer model of another quantizer, if one is given or to be made.

    Attributes:
        content: Its bytes; None where none is given.
        per_channel: Of its weights; what was asked for where none is given.
        quantizer: Who makes it where none is given.
        notes: What the user should know, sentences.
    """

    content: bytes | None
    per_channel: bool
    quantizer: Quantizer = "tensorflow"
    notes: tuple[str, ...] = ()

    @property
    def is_foreign(self) -> bool:
        """Whether candidates have integer ops that TensorFlow's quantizer did not make."""
        return self.content is not None or self.quantizer != "tensorflow"


def load_integer(
    source: str | Path | bytes | None,
    *,
    signature: str | None,
    per_channel: bool,
    quantizer: str,
    repairs: Iterable[str] = (),
) -> LoadedInteger:
    """Read the integer model that candidates take their integer ops from.

    Args:
        source: A path or bytes; None where autoselect quantizes itself.
        signature: As for :func:`load_source`.
        per_channel: As asked for; a given model has what it has.
        quantizer: Who makes the integer model where none is given.
        repairs: As asked for by name.

    Raises:
        ModelError: If it cannot be taken.
        UsageError: If repairs are asked for: they would undo what the other quantizer did; or a quantizer beside the
            model, or one that is not installed.
    """
    if quantizer not in get_args(Quantizer):
        raise UsageError(f"--quantizer: expected one of {', '.join(get_args(Quantizer))}, got {quantizer!r}.")
    if source is not None and quantizer != "tensorflow":
        raise UsageError(f"--integer brings a model, and --quantizer {quantizer} makes one. Leave one of them out.")
    if source is None and quantizer == "tensorflow":
        return LoadedInteger(content=None, per_channel=per_channel)
    if named := ", ".join(repairs):
        raise UsageError(
            f"Repairs do not go with an integer model of another quantizer (--integer, --quantizer), got {named}: they "
            "would undo what it did to weights, biases and ranges. Leave the repairs out, or that option."
        )
    if source is None:
        litert.refuse_missing()
        return LoadedInteger(content=None, per_channel=per_channel, quantizer=cast("Quantizer", quantizer))
    content, has_channels = integer_model(source, signature)
    has, wants = ("channel", "tensor") if has_channels else ("tensor", "channel")
    notes = (f"The integer model's weights have one scale per {has}. The option for one per {wants} does not apply.",)
    return LoadedInteger(content=content, per_channel=has_channels, notes=() if has_channels == per_channel else notes)


def ingredients_of(loaded: LoadedSource, integer: LoadedInteger, calibration: object, **further: Any) -> Ingredients:
    """What the user brings; representative data are the given ones, else those that the source brings.

    Args:
        loaded: The source.
        integer: The integer model, or who makes it.
        calibration: Anything that ``representative_samples`` takes; None for what the source brings.
        **further: Other fields of the ingredients.

    Raises:
        UsageError: If there are none, or nothing to score on.
    """
    calibration = calibration if calibration is not None else loaded.calibration
    if calibration is None:
        raise UsageError(
            "Full-integer quantization needs representative data: pass --calibration (or calibration=...), "
            "an .npz or .npy file, or package.module:function."
        )
    return Ingredients(
        model=loaded.model,
        calibration=calibration,
        notes=(*loaded.notes, *integer.notes),
        wishes=loaded.wishes,
        integer=integer.content or integer.quantizer,
        **further,
    )


def read_recipe(path: Path) -> Recipe:
    """Read a ``.recipe.json``.

    Raises:
        UsageError: If it cannot be read.
        RecipeError: If it is no recipe.
    """
    try:
        text = read_text(path)
    except OSError as exc:
        raise UsageError(f"The recipe {path} cannot be read: {exc.strerror}.") from exc
    except UnicodeDecodeError as exc:
        raise RecipeError(f"The recipe {path} is no text: {exc}.") from exc
    return Recipe.from_json(text)


_RECURRENT = ("UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_LSTM")


@explained
def look(
    model: Source,
    *,
    signature: str | None = None,
    shapes: Shapes | None = None,
    converter_python: str | None = None,
) -> dict[str, Any]:
    """Look at a float model without running it.

    Returns:
        ``model``; ``size_bytes`` of its float ``.tflite``; ``inputs`` and ``outputs`` with ``name``, ``shape`` and
        ``dtype``; ``ops``, a count by type; ``recurrent``; ``metric`` that its outputs suggest, and ``why``.

    Raises:
        ModelError: If it cannot be read, or is quantized already.
    """
    content = float_content(model, wishes_of(signature, shapes, converter_python))
    parsed = fb.parse(content)
    inputs, outputs = reader.input_specs(parsed), in_source_order(reader.output_specs(parsed))
    graph = reader.read_graph(parsed)
    ops = Counter(op.op_type for op in graph.ops)
    metric, why = _metric(inputs, outputs, _writer_of(graph, outputs[0]))
    return {
        "model": describe(model),
        "size_bytes": len(content),
        "inputs": [_spec(spec) for spec in inputs],
        "outputs": [_spec(spec) for spec in outputs],
        "ops": dict(ops.most_common()),
        "recurrent": any(op in ops for op in _RECURRENT),
        "metric": metric,
        "why": why,
    }


def float_content(model: Source, wishes: Wishes) -> bytes:
    """The bytes of the float ``.tflite`` of any source; what needs TensorFlow is done in a worker.

    Raises:
        ModelError: If it cannot be read, or is quantized already.
    """
    loaded = load_source(model, wishes)
    with tempfile.TemporaryDirectory(prefix="autoselect-") as name:
        files = CaseFiles(root=Path(name))
        with open_pool(1, log=files.root / "worker.log", warm_up=converter.import_tensorflow) as pool:
            root = cache_directory()
            return load_float(loaded.model, files, pool, wishes=loaded.wishes, cache_root=root).content


def file_content(model: ModelFile, wishes: Wishes = NO_WISHES) -> bytes:
    """The bytes of a ``.tflite`` file, quantized or not; another kind of model, also a live one, is converted first.

    Raises:
        ModelError: If it cannot be read.
        UsageError: If it is no model.
    """
    if isinstance(model, bytes):
        return model
    return float_content(model, wishes) if needs_converter(model) else fb.read_model_file(Path(model))


def needs_converter(model: Source) -> bool:
    """Whether a model is another than a ``.tflite`` or its bytes; what is neither path nor bytes is live."""
    if isinstance(model, bytes):
        return False
    return not isinstance(model, (str, Path)) or is_converted(Path(model))


def file_name(model: ModelFile) -> str:
    """What messages and results call a file: its path, or the mark of bytes and of live models."""
    return str(model) if isinstance(model, (str, Path)) else LIVE


@contextlib.contextmanager
def naming(model: ModelFile) -> Iterator[None]:
    """Put the name of a file before what is wrong with it.

    Raises:
        ModelError: What the block raises, with the name.
    """
    try:
        yield
    except ModelError as exc:
        raise ModelError(f"{file_name(model)}: {exc}") from exc


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.key, "shape": list(spec.shape), "dtype": str(spec.dtype)}


def _writer_of(graph: Graph, output: TensorSpec) -> str:
    """Type of the op that computes an output, which others may move; empty if the model only passes it on."""
    index = next((i for i in graph.outputs if graph.tensors[i].name == output.name), -1)
    place = graph.producers().get(moved_from(graph, index))
    return "" if place is None else graph.ops[place].op_type


def _metric(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], writer: str) -> tuple[str, str]:
    """Guess a metric from the shape of the first output, and from the type of the op that writes it."""
    shape = outputs[0].shape
    if math.prod(shape) == 1 and writer == "LOGISTIC":
        return "accuracy", "the output is one number from 0 to 1, which may be the probability of a class"
    if any(shape == spec.shape for spec in inputs):
        return "mse", "the output is shaped like an input; psnr suits images"
    if len(shape) == 2 and shape[-1] > 1:
        return "accuracy", f"the output has {shape[-1]} values a sample, which may be the scores of classes"
    if len(shape) == 4 and shape[-1] > 1 and any(shape[1:3] == spec.shape[1:3] for spec in inputs):
        return "mean_iou", f"the output has {shape[-1]} values a pixel, which may be the scores of classes"
    return "mae", "the output is no row of class scores; sqnr_db needs no targets"
