"""What a search and a diagnosis can both be told, and how what is told is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetPydanticSchema, ValidationError
from pydantic_core.core_schema import any_schema

from autoselect.cases.events import Listener, ignore
from autoselect.cases.option import DATA, SEARCH, Option
from autoselect.data.kinds import Samples
from autoselect.data.texts import first_wrong
from autoselect.domain.recipe import Quantizer
from autoselect.errors import RecipeError, UsageError
from autoselect.sources.wishes import Feedback, Shapes

data = partial(Option, panel=DATA)

_work = partial(Option, last=True)

_T = TypeVar("_T")

Given = Annotated[_T, GetPydanticSchema(lambda *_: any_schema()), Field(exclude=True)]
"""What is taken as it is and not kept in the manifest, which holds plain values: data, files, who listens."""


def checked_as(kind: Any, conversion: Callable[[Any], Any] = lambda value: value, *, first: bool = False) -> Any:
    """What a value becomes, where callers may write it in more ways; ``conversion`` refuses names that nothing has.

    With ``first`` it reads the value as it was given, which need not be of that kind yet.
    """
    validator = BeforeValidator if first else AfterValidator

    def checked(value: Any) -> Any:
        try:
            return conversion(value)
        except (RecipeError, UsageError) as exc:
            raise ValueError(str(exc)) from exc

    return GetPydanticSchema(lambda _source, handler: handler(Annotated[kind, validator(checked)]))


def text_of_path(value: object) -> object:
    """A path as text; anything else as it is."""
    return str(value) if isinstance(value, Path) else value


class SharedSettings(BaseModel):
    """A model, its samples, and how to work on them."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    # `kw_only` is for type checkers: the model is the one argument of `search` that may be given by its place.
    model: Annotated[
        Given[Any],
        Option(
            "Float .tflite, .keras, .h5, .onnx, .pt2, SavedModel.",
            "Or the bytes of a ``.tflite``, a live Keras 3 or tf-keras model, an ONNX model, a PyTorch module, a "
            "program of ``torch.export``, or a ``tf.lite.TFLiteConverter``, whose "
            "representative dataset and options are respected.",
            panel=DATA,
            live=True,
            argument=True,
        ),
    ] = Field(default=None, kw_only=False)
    calibration: Annotated[
        Given[Samples | None],
        data(
            "Required: representative samples, an .npz or .npy file or package.module:function.",
            "Arrays work, too, and what ``TFLiteConverter.representative_dataset`` takes. A converter may have one.",
            live=True,
        ),
    ] = None
    signature: Annotated[
        str | None,
        Option("Signature to use, if the model has several.", metavar="KEY", example="serving_default"),
    ] = None
    shapes: Annotated[
        Shapes | None,
        checked_as(dict[str, tuple[int, ...]] | None),
        Option(
            "Sizes of an input that the model leaves free, the batch first; by default those of the samples.",
            'By input name: ``{{"audio": (1, 16000)}}``.',
            names="--shape",
            metavar="NAME=1x16000",
            kind=Shapes,
            example=["audio=1x16000"],
        ),
    ] = None
    converter_python: Annotated[
        str | None,
        Option(
            "Python of the environment that has the converter of an .onnx or .pt2 model.",
            "onnx2tf or litert-torch are run there. By default it is ``AUTOSELECT_CONVERTER_PYTHON``, else this "
            "environment's.",
            metavar="PATH",
            example="converter/bin/python",
        ),
    ] = None
    feedback: Annotated[
        Feedback | None,
        checked_as(dict[str, str] | None),
        Option(
            "An output that is fed back as an input: the samples of {calibration} are then consecutive steps.",
            'By output name: ``{{"state_out": "state_in"}}``. Calibration feeds the state back. A sample without '
            "the state goes on with it; one that holds a state begins a sequence.",
            metavar="OUTPUT=INPUT",
            kind=Feedback,
            example=["state_out=state_in"],
        ),
    ] = None
    integer: Annotated[
        Given[str | Path | bytes | None],
        Option(
            "Integer model of another quantizer, to take integer ops from.",
            "A ``.tflite`` (path or bytes), also of quantization-aware training. Candidates take its integer ops as "
            "they are. Nothing is calibrated or repaired, and the file decides {per_channel}. The calibration samples "
            "measure the layers.",
            metavar="MODEL_int8.tflite",
            live=True,
        ),
    ] = None
    quantizer: Annotated[
        Quantizer,
        Option(
            "Who makes the integer model: TensorFlow's quantizer, or litert-quantizer's static recipe.",
            "litert-quantizer's is taken as with {integer}, without repairs, but has 16-bit units. It needs "
            "``pip install 'autoselect[litert]'``.",
        ),
    ] = "tensorflow"
    workers: Annotated[
        Annotated[int, Field(ge=1, le=64)] | None,
        _work(
            "Processes at work; by default as many as fit.",
            "They build and score. As many fit as processors and memory allow, up to 8.",
            low=1,
            example=2,
            resume="Processes that build and score; as before by default.",
            panel=SEARCH,
        ),
    ] = None
    trial_timeout: Annotated[
        float,
        Field(gt=0),
        _work(
            "Seconds after which one job of native code counts as hung.",
            "A job calibrates, or builds or scores one candidate.",
            low=1,
        ),
    ] = 900.0
    cache: Annotated[
        Given[bool],
        _work("Do not use the cache of calibrations and float outputs.", names="--no-cache", turns_off=True),
    ] = True
    listener: Annotated[
        Given[Listener], _work("Called with each event.", "See :mod:`autoselect.events`.", only="python")
    ] = ignore
    progress: Annotated[
        Given[bool | None],
        _work("Show bars, by tqdm.", "By default in notebooks. ``logging`` has all events.", only="python"),
    ] = None


Settings = TypeVar("Settings", bound=SharedSettings)


def checked_settings(kind: type[Settings], values: Mapping[str, object]) -> Settings:
    """Check settings of a kind.

    Raises:
        UsageError: If one is wrong, with its name.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as exc:
        raise UsageError(first_wrong(exc)) from exc
