"""A model of another framework as a float TFLite model: converted, proved equal on samples, and kept in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from autoselect.data.representative import representative_samples
from autoselect.domain.tensors import TensorSpec
from autoselect.domain.words import listed
from autoselect.errors import ModelError, StorageError, TrialError, UsageError
from autoselect.isolation.door import Workers
from autoselect.runs import cache
from autoselect.runs.files import storage_errors, write_bytes, write_json
from autoselect.sources.converters.converter import LOG, Converter, Description
from autoselect.sources.converters.kinds import Kind
from autoselect.sources.converters.proof import Layout, Proof, prove
from autoselect.sources.tflite_files import FloatModel, from_bytes
from autoselect.sources.wishes import Wishes, sizes_of

_SAMPLES = 4
"""On which source and converted model are compared."""
_KEPT = "-kat"
"""Has onnx2tf leave the layout of inputs as it is."""
_GOOD_DB, _LEAST_DB = 80.0, 40.0
"""An SQNR below the first has the next way tried; below the second the model is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Samples to compare on.

    Attributes:
        calibration: Anything that ``representative_samples`` takes; None, or what can be read once only, for drawn
            ones.
        optional: Inputs that samples may leave out.
    """

    calibration: object
    optional: Collection[str] = ()


def converted_model(
    source: Path | bytes,
    kind: Kind,
    pool: Workers,
    *,
    wishes: Wishes,
    samples: Given,
    cache_root: Path | None,
    timeout_seconds: float,
) -> FloatModel:
    """Convert a model, prove it, and bring it into the form that all else works on.

    Args:
        source: The model, or its bytes.
        kind: Of the source.
        pool: Where the converted model is run.
        wishes: Sizes that the source leaves free, and the Python that converts.
        samples: To compare on.
        cache_root: Folder of the cache; None does without.
        timeout_seconds: For each step of the converter, and for each proof.

    Raises:
        FreeSizes: If sizes beside the batch stay free.
        ModelError: If it cannot be read or converted, or computes something else then.
        UsageError: If a wish does not fit, or there is no converter.
    """
    if wishes.signature is not None:
        raise UsageError("--signature: only SavedModels and .tflite files have signatures. Leave it out.")
    with tempfile.TemporaryDirectory(prefix="autoselect-converter-") as name:
        folder = Path(name)
        if isinstance(source, bytes):
            source_path = folder / f"source.{'pt2' if kind == 'torch' else kind}"
            write_bytes(source_path, source)
        else:
            source_path = source.absolute()
        converter = Converter(
            kind=kind,
            source=source_path,
            python=wishes.converter_python,
            folder=folder / "work",
            timeout_seconds=timeout_seconds,
        )
        try:
            return _converted(converter, pool, wishes, samples, cache_root)
        except (ModelError, TrialError) as exc:
            raise _with_kept_log(exc, converter.folder / LOG, cache_root) from exc


def _with_kept_log(exc: Exception, log: Path, cache_root: Path | None) -> Exception:
    """The error, whose message names the log at a place that outlives the conversion."""
    if str(log) not in str(exc) or not log.exists():
        return exc
    content = log.read_bytes()
    folders = [] if cache_root is None else [cache_root / "converter-logs"]
    for folder in (*folders, Path(tempfile.gettempdir())):
        kept = folder / f"autoselect-converter-{hashlib.sha256(content).hexdigest()[:12]}.log"
        with contextlib.suppress(StorageError):  # Why the conversion failed matters more than where its log is.
            write_bytes(kept, content)
            return ModelError(str(exc).replace(str(log), str(kept)))
    return exc


def _converted(
    converter: Converter,
    pool: Workers,
    wishes: Wishes,
    given: Given,
    cache_root: Path | None,
) -> FloatModel:
    described = converter.describe()
    sizes = sizes_of(described.inputs, wishes.shapes)
    samples, are_drawn = _samples(described.specs(sizes), given)
    what = {
        # The number is raised whenever what is kept of a conversion, or how it is made, changes.
        "what": "converted model, format 1",
        "source": described.digest,
        "sizes": sizes,
        "versions": described.versions,
        "ways": described.ways,
        "samples": [hashlib.sha256(value.tobytes()).hexdigest() for sample in samples for value in sample.values()],
    }
    out = converter.folder / "kept"
    kept = None if cache_root is None else cache_root / cache.signature(what)
    if kept is None or not cache.fetch(kept, out):
        proof, way = _best(converter, described, samples, pool)
        with storage_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        write_bytes(out / "float.tflite", (converter.folder / "best.tflite").read_bytes())
        write_json(out / "proof.json", {"proof": asdict(proof), "way": way, "told": _told(converter, proof, way)})
        write_bytes(out / LOG, (converter.folder / LOG).read_bytes())
        if kept is not None:
            cache.keep(out, kept)
    sentences = json.loads((out / "proof.json").read_text(encoding="utf-8"))["told"]
    if are_drawn:
        sentences[0] += " The inputs were drawn at random: with calibration samples it is proved on those."
    return pool.call(_ready, out / "float.tflite", timeout_seconds=converter.timeout_seconds).noted(*sentences)


def _ready(path: Path) -> FloatModel:
    """The converted file made ready; for a worker, since its shapes may have to be settled."""
    return from_bytes(path.read_bytes())


def _samples(specs: tuple[TensorSpec, ...], given: Given) -> tuple[list[dict[str, np.ndarray]], bool]:
    """The first calibration samples in the source's layout, or drawn ones; and whether they are drawn."""
    if given.calibration is not None and not isinstance(given.calibration, Iterator):
        gaps = {spec.key: np.zeros(spec.shape, spec.dtype) for spec in specs if spec.key in given.optional}
        samples = representative_samples(given.calibration, specs, optional=given.optional)
        return [{**gaps, **sample} for sample in itertools.islice(samples, _SAMPLES)], False
    rng = np.random.default_rng(0)
    return [{spec.key: _drawn(rng, spec) for spec in specs} for _ in range(_SAMPLES)], True


def _drawn(rng: np.random.Generator, spec: TensorSpec) -> np.ndarray:
    if spec.dtype.kind == "f":
        return rng.normal(size=spec.shape).astype(spec.dtype)
    return rng.integers(0, 2, spec.shape).astype(spec.dtype)


def _best(
    converter: Converter, described: Description, samples: list[dict[str, np.ndarray]], pool: Workers
) -> tuple[Proof, str]:
    """Try one way after the other until one is good; the best is kept as ``best.tflite``.

    Raises:
        ModelError: If none is near enough.
    """
    source_names = converter.run(described, samples)
    ends = tuple(free_input.key for free_input in described.inputs), described.outputs
    failed: dict[str, str] = {}
    best: tuple[Proof, str] | None = None
    ways = list(described.ways)
    for number, options in enumerate(ways):
        way = "".join(f" {option}" for option in options)
        conversion = converter.convert(options, converter.folder / f"way{number}")
        if isinstance(conversion, str):
            failed[way] = conversion
            continue
        try:
            job = (converter.folder, conversion, source_names, ends)
            proof = pool.call(prove, *job, timeout_seconds=converter.timeout_seconds)
        except (ModelError, TrialError) as exc:
            failed[way] = str(exc)
            continue
        if best is None or proof.least_db > min(best[0].least_db, _GOOD_DB):
            best = proof, way
            write_bytes(converter.folder / "best.tflite", conversion.read_bytes())
        if proof.least_db >= _GOOD_DB and proof.idle and _KEPT not in options:
            # The tool's own names have no colons.
            ways.insert(number + 1, (*options, _KEPT, *(name.replace(":", "__") for name in proof.idle)))
        elif proof.least_db >= _GOOD_DB:
            break
    if best is None:
        converter.refuse_all(described, failed)
    if best[0].least_db < _LEAST_DB:
        raise ModelError(_differs(converter, *best))
    return best


def _differs(converter: Converter, proof: Proof, way: str) -> str:
    where = ""
    if proof.parts_at is not None:
        where = " The two part at node {!r} ({}): none of its values is in the converted model.".format(*proof.parts_at)
    return (
        f"The converted model computes something else than {converter.source.name}: SQNR of its outputs "
        f"{_db(proof.least_db)}, expected at least {_LEAST_DB:.0f} dB ({converter.tool}{way}).{where} Convert it by "
        "another tool, or export it otherwise, and pass the float .tflite. The converter's log: "
        f"{converter.folder / LOG}"
    )


def _db(value: float) -> str:
    return "equal bit for bit" if value == math.inf else "not comparable" if value == -math.inf else f"{value:.1f} dB"


def _told(converter: Converter, proof: Proof, way: str) -> list[str]:
    """What there is to say of a conversion, sentences."""
    sentences = [
        f"Converted by {converter.tool}{way}. SQNR against the source on {_SAMPLES} samples: "
        f"{listed([f'{_db(value)} at {name!r}' for name, value in proof.sqnr_db.items()])}."
    ]
    if proof.least_db < _GOOD_DB:
        sentences.append(
            f"This is less than the {_GOOD_DB:.0f} dB of an equal conversion: check the float model's accuracy."
        )
    sentences += _turned("Input", proof.inputs, "Samples in the source's layout are turned by themselves.")
    sentences += _turned("Output", proof.outputs, "Targets and evaluators see the model's layout.")
    sentences.append(f"{proof.named} of {proof.ops} ops have the name of the source's node.")
    return sentences


def _turned(side: str, layouts: Mapping[str, Layout], what: str) -> list[str]:
    by_way: dict[tuple[int, ...], list[str]] = {}
    for name, way in layouts.items():
        if way is not None:
            by_way.setdefault(way, []).append(repr(name))
    return [f"{side} {listed(names)}: {_ordered(way)} in the converted model. {what}" for way, names in by_way.items()]


def _ordered(way: tuple[int, ...]) -> str:
    if way == (0, *range(2, len(way)), 1):
        return "the channels are last"
    return f"the axes are in the order {listed([str(axis) for axis in way])}, counted from 0,"
