"""What each repair is worth on real models: held-out score, agreement with float, size, float ops, cost.

Each row is written when it is measured, and what is in the file is not measured again.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders
import numpy as np

from autoselect.domain.graph import Graph, OpKind
from autoselect.domain.recipe import Recipe
from autoselect.quantize.building.build import Builder
from autoselect.quantize.building.parts import find_nodes
from autoselect.quantize.building.wholes import make_wholes
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.quantize.preparing import converter
from autoselect.quantize.preparing.normalise import normalise
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.rewrites import names
from autoselect.sources import loading
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Runner
from autoselect.tflite.tflite_file import TfliteFile

REPAIRS: dict[str, tuple[str, ...]] = {
    "fiq": (),
    "fiq + bias": ("bias",),
    "fiq + bias-sequential": ("bias-sequential",),
    "fiq + ranges-observed": ("ranges-observed",),
    "fiq + ranges-percentile": ("ranges-percentile",),
    "fiq + ranges-moving-average": ("ranges-moving-average",),
    "fiq + ranges-mse": ("ranges-mse",),
    "fiq + equalization": ("equalization",),
    "fiq + weights-mse": ("weights-mse",),
    "fiq + bias, equalization": ("bias", "equalization"),
    "fiq + bias, equalization, ranges-mse": ("bias", "equalization", "ranges-mse"),
    "fiq + bias-sequential, equalization, ranges-mse": ("bias-sequential", "equalization", "ranges-mse"),
    "fiq + bias, equalization, ranges-mse, weights-mse": ("bias", "equalization", "ranges-mse", "weights-mse"),
}
"""Rows of the table."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model with its data."""

    name: str
    model: Path
    calibration: Callable[[], Iterable[list[np.ndarray]]]
    heldout: Callable[[], Iterable[tuple[np.ndarray, Any]]]
    per_channel: bool = True
    is_image: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line: ``cpu_seconds`` is what the repairs took beyond calibration, the first time."""

    case: str
    model: str
    score: float
    agreement: float
    sqnr_db: float
    size_bytes: int
    float_ops: int
    cpu_seconds: float


def second_half(source: Callable[[], Iterable[Any]]) -> Callable[[], Iterable[Any]]:
    """Every second sample: the others are there to search on."""
    return lambda: (pair for i, pair in enumerate(source()) if i % 2)


def cases(deep_conv_lstm: Path | None, mobilenet_v3: Path | None) -> list[Case]:
    """All cases whose models are there."""
    imagenet = {
        "model": loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite",
        "calibration": loaders.imagenet_calibration,
        "heldout": loaders.imagenet_heldout,
    }
    fsrcnn = {
        "model": loaders.FSRCNN / "fsrcnn_x2_float.tflite",
        "calibration": loaders.fsrcnn_calibration,
        "heldout": second_half(loaders.fsrcnn_evaluation),
        "is_image": True,
    }
    found = [
        Case(name="MobileNetV1-0.25", **imagenet),
        Case(name="MobileNetV1-0.25 per tensor", per_channel=False, **imagenet),
        Case(name="FSRCNN x2", **fsrcnn),
        Case(name="FSRCNN x2 per tensor", per_channel=False, **fsrcnn),
        Case(
            name="DS-CNN",
            model=loaders.KWS / "kws_dscnn_float.tflite",
            calibration=loaders.kws_calibration,
            heldout=second_half(loaders.kws_evaluation),
        ),
    ]
    if deep_conv_lstm is not None:
        data = {"calibration": loaders.har_calibration, "heldout": second_half(loaders.har_evaluation)}
        found.append(Case(name="DeepConvLSTM", model=deep_conv_lstm, **data))
    if mobilenet_v3 is not None:
        data = {"calibration": loaders.cifar_calibration, "heldout": second_half(loaders.cifar_evaluation)}
        found.append(Case(name="MobileNetV3-Small", model=mobilenet_v3, **data))
    return found


def outputs(content: bytes, samples: Iterable[np.ndarray]) -> np.ndarray:
    """First output of a model, shape (n_samples, n_values)."""
    runner = Runner(content)
    return np.stack([np.ravel(next(iter(runner(sample[None]).values()))) for sample in samples])


def float_op_count(graph: Graph) -> int:
    """Ops that compute in float, conversions left out."""
    return sum(op.kind in (OpKind.FLOAT, OpKind.HYBRID) for op in graph.ops)


def measure(case: Case, known: set[str], repairs: Mapping[str, tuple[str, ...]] = REPAIRS) -> Iterator[Row]:
    """The rows of one case whose models are not known yet."""
    if known >= {"float", *repairs}:
        return
    content = loading.float_model(case.model).content
    calibration = list(case.calibration())
    normalised = normalise(content)
    model = converter.calibrate(normalised.file, calibration).taken()
    name_map = names.canonicalise(model, normalised.node_names)
    prepared = CalibratedModel(file=TfliteFile(model=model), names=name_map)
    nodes = find_nodes(make_wholes(RepairKit(prepared), Recipe(per_channel=case.per_channel)))
    keys = [spec.key for spec in reader.input_specs(model)]
    fed = [dict(zip(keys, sample, strict=True)) for sample in calibration]
    pairs = list(case.heldout())
    expected = outputs(content, (x for x, _ in pairs))

    def row(name: str, content: bytes, cpu_seconds: float) -> Row:
        found = outputs(content, (x for x, _ in pairs))
        return Row(
            case=case.name,
            model=name,
            score=_score(case, found, [y for _, y in pairs]),
            agreement=np.nan if case.is_image else float((found.argmax(axis=1) == expected.argmax(axis=1)).mean()),
            sqnr_db=_closeness(found, expected),
            size_bytes=len(content),
            float_ops=float_op_count(reader.read_graph(fb.parse(content))),
            cpu_seconds=cpu_seconds,
        )

    if "float" not in known:
        yield row("float", content, 0.0)
    for name in [name for name in repairs if name not in known]:
        # A kit of its own for each row, so that it pays for all that it needs.
        builder = Builder(prepared, nodes, RepairKit(prepared, lambda: iter(fed)))
        plain = _seconds(lambda b=builder: b.build(Recipe(per_channel=case.per_channel)))[1]
        recipe = Recipe(per_channel=case.per_channel, repairs=repairs[name])
        built, took = _seconds(lambda b=builder, r=recipe: b.build(r))
        yield row(name, built.content, max(took - plain, 0.0) if recipe.repairs else 0.0)


def _seconds(call: Callable[[], Any]) -> tuple[Any, float]:
    """Of the processor, which other work on the machine does not lengthen."""
    start = time.process_time()
    found = call()
    return found, time.process_time() - start


def _score(case: Case, found: np.ndarray, targets: Sequence[Any]) -> float:
    """Top-1, or PSNR of values in 0..1."""
    if case.is_image:
        errors = [np.mean((row - np.ravel(target)) ** 2) for row, target in zip(found, targets, strict=True)]
        return float(np.mean(-10.0 * np.log10(errors)))
    return float((found.argmax(axis=1) == np.array(targets)).mean())


def _closeness(found: np.ndarray, expected: np.ndarray) -> float:
    """Mean signal to noise ratio of the outputs, dB; samples without error are left out."""
    noise, signal = np.sum((found - expected) ** 2, axis=1), np.sum(expected**2, axis=1)
    known = noise > 0.0
    return float(np.mean(10.0 * np.log10(signal[known] / noise[known]))) if known.any() else np.inf


def line(row: Row) -> str:
    """For the terminal."""
    agreement = "" if np.isnan(row.agreement) else f"{row.agreement:.4f}"
    figures = f"{row.score:.4f} | {agreement} | {row.sqnr_db:.1f} | {row.size_bytes} | {row.float_ops}"
    return f"| {row.case} | {row.model} | {figures} | {row.cpu_seconds:.2f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all cases and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deepconvlstm", type=Path, help="Made by experiments/deepconvlstm/train.py.")
    parser.add_argument("--mobilenet-v3", type=Path, help="Made by experiments/mobilenet_v3/train.py.")
    parser.add_argument("--case", default="", help="Cases whose name has this in it.")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent / "results" / "repairs.csv")
    options = parser.parse_args(arguments)
    known = known_rows(options.output)
    for case in cases(options.deepconvlstm, options.mobilenet_v3):
        if options.case in case.name:
            for row in measure(case, {name for where, name in known if where == case.name}):
                print(line(row), flush=True)
                append(row, options.output)


def known_rows(path: Path) -> set[tuple[str, str]]:
    """Case and model of each row of an earlier run."""
    if not path.exists():
        return set()
    with path.open(encoding="utf-8", newline="") as file:
        return {(row["case"], row["model"]) for row in csv.DictReader(file)}


def append(row: Row, path: Path) -> None:
    """Write one more row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(Row.__dataclass_fields__), lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(asdict(row))


if __name__ == "__main__":
    main()
