"""NNCF's accuracy-aware loop on MobileNetV1-0.25, weights per tensor, on the images that autoselect searches on.

Runs in an environment of its own (nncf, openvino, numpy, pillow); it does not import autoselect.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nncf
import numpy as np
import openvino as ov
from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, QuantizationParameters

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

WEIGHTED = ("Convolution", "GroupConvolution", "MatMul")
PASSED_THROUGH = ("Reshape", "Transpose", "Pad", "Squeeze", "Unsqueeze")
"""Ops that move values without computing: an input quantized before one of these is quantized."""

COLUMNS = (
    "model",
    "search_top1",
    "heldout_top1",
    "search_agreement",
    "heldout_agreement",
    "weighted_int8",
    "weighted_ops",
    "reverted",
    "revertible",
    "met_limit",
    "seconds",
    "cpu_seconds",
    "evaluations",
)


@dataclass(frozen=True, kw_only=True)
class Part:
    """Images, their labels, and what the float model answers."""

    images: np.ndarray
    labels: np.ndarray
    answers: np.ndarray


def scores(compiled: Any, images: Iterable[np.ndarray]) -> np.ndarray:
    """Class scores, shape (n_images, n_classes); one image at a time, as the loop's own evaluation."""
    return np.concatenate([compiled(image[None])[0] for image in images])


def read_part(samples: Iterable[tuple[np.ndarray, int]], compiled: Any) -> Part:
    """Read a part and let the float model answer it."""
    pairs = list(samples)
    images = np.stack([image for image, _ in pairs])
    labels = np.array([label for _, label in pairs])
    return Part(images=images, labels=labels, answers=scores(compiled, images).argmax(axis=1))


@dataclass(kw_only=True)
class Validation:
    """What the loop calls: top-1, with one value an image to rank by; counts the images that the loop runs."""

    rank_by: str
    images_run: int = 0

    def __call__(self, compiled: Any, data: Iterable[Any]) -> tuple[float, list[Any]]:
        """Score ``data``: pairs of an image and its label."""
        pairs = list(data)
        self.images_run += len(pairs)
        found = scores(compiled, (image for image, _ in pairs))
        hits = found.argmax(axis=1) == np.array([label for _, label in pairs])
        each = [float(hit) for hit in hits] if self.rank_by == "hits" else [[row] for row in found]
        return float(hits.mean()), each

    def image_of(self, pair: tuple[np.ndarray, int]) -> np.ndarray:
        """What the loop feeds the model with when it compares outputs itself."""
        self.images_run += 1
        return pair[0][None]


class Reverted(logging.Handler):
    """Reads from the loop's log how many operations it gave back to float."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(record.getMessage())

    def counts(self) -> tuple[int, int]:
        """Reverted and revertible operations; the loop names the first only if it ends well.

        Raises:
            SystemExit: If the log does not say it.
        """
        text = "\n".join(self.lines)
        total = re.search(r"Total number of quantized operations in the model: (\d+)", text)
        if total is None and "Accuracy drop: " in text:
            return 0, 0  # The plain model keeps the limit, so that nothing was ranked.
        if total is None:
            raise SystemExit(f"NNCF's log no longer says how many operations it quantized:\n{text}")
        found = re.search(r"(\d+) out of \d+ were reverted back", text)
        if found is None:
            return (0 if self.met_limit() else int(total[1])), int(total[1])
        return int(found[1]), int(total[1])

    def met_limit(self) -> bool:
        """Whether the loop's last model loses no more than allowed."""
        return not any("could not achieve the required accuracy drop" in line for line in self.lines)


def int8_count(model: ov.Model) -> tuple[int, int]:
    """How many convolutions and dense layers take a quantized input, and how many there are."""
    weighted = [op for op in model.get_ordered_ops() if op.get_type_name() in WEIGHTED]
    return sum(map(takes_int8, weighted)), len(weighted)


def takes_int8(op: Any) -> bool:
    """Whether the op that computes the first input quantizes it."""
    before = op.input_value(0).get_node()
    while before.get_type_name() in PASSED_THROUGH:
        before = before.input_value(0).get_node()
    return bool(before.get_type_name() == "FakeQuantize")


def measured(name: str, model: ov.Model, core: ov.Core, parts: dict[str, Part]) -> dict[str, Any]:
    """Accuracy and agreement on both parts, and the int8 count."""
    compiled = core.compile_model(model, "CPU")
    row: dict[str, Any] = dict.fromkeys(COLUMNS, "")
    row["model"] = name
    for part, data in parts.items():
        answers = scores(compiled, data.images).argmax(axis=1)
        row[f"{part}_top1"] = round(float((answers == data.labels).mean()), 4)
        row[f"{part}_agreement"] = round(float((answers == data.answers).mean()), 4)
    row["weighted_int8"], row["weighted_ops"] = int8_count(model)
    return row


def timed(make: Callable[[], ov.Model]) -> tuple[ov.Model, dict[str, float]]:
    """A model and what it took: wall time, and processor time, which other work on the machine stretches less."""
    start, cpu_start = time.perf_counter(), time.process_time()
    model = make()
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    return model, {"seconds": round(wall, 1), "cpu_seconds": round(cpu, 1)}


def settings(*, per_channel: bool) -> AdvancedQuantizationParameters:
    """NNCF's defaults but for the scales of weights."""
    return AdvancedQuantizationParameters(weights_quantization_params=QuantizationParameters(per_channel=per_channel))


def controlled(
    path: Path, calibrated_with: nncf.Dataset, search: Part, *, per_channel: bool, rank_by: str, max_drop: float
) -> tuple[ov.Model, dict[str, Any], list[str]]:
    """The model of the accuracy-aware loop, what the loop says of it, and the loop's log."""
    pairs = list(zip(search.images, search.labels, strict=True))
    validation, log = Validation(rank_by=rank_by), Reverted()
    logging.getLogger("nncf").addHandler(log)
    model, times = timed(
        lambda: nncf.quantize_with_accuracy_control(
            ov.Core().read_model(path),
            calibration_dataset=calibrated_with,
            validation_dataset=nncf.Dataset(pairs, validation.image_of),
            validation_fn=validation,
            max_drop=max_drop,
            advanced_quantization_parameters=settings(per_channel=per_channel),
        )
    )
    logging.getLogger("nncf").removeHandler(log)
    reverted, revertible = log.counts()
    said = {"reverted": reverted, "revertible": revertible, "met_limit": log.met_limit()}
    ran = {"evaluations": round(validation.images_run / len(pairs), 2), "images_run": validation.images_run}
    return model, {**times, **ran, **said}, log.lines


def calibration() -> nncf.Dataset:
    """What all models are calibrated with."""
    return nncf.Dataset([image for (image,) in loaders.imagenet_calibration()])


def rows_of(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Float, NNCF's plain post-training quantization, and its accuracy-aware loop."""
    core = ov.Core()
    path = loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite"
    model = core.read_model(path)
    compiled = core.compile_model(model, "CPU")
    parts = {
        "search": read_part(loaders.imagenet_search(), compiled),
        "heldout": read_part(loaders.imagenet_heldout(), compiled),
    }
    advanced = settings(per_channel=options.per_channel)
    plain, plain_times = timed(
        lambda: nncf.quantize(core.read_model(path), calibration(), advanced_parameters=advanced)
    )
    told = {"per_channel": options.per_channel, "rank_by": options.rank_by, "max_drop": options.max_drop}
    aware, said, lines = controlled(path, calibration(), parts["search"], **told)
    (options.output / f"nncf_{options.name}.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = [measured(n, m, core, parts) for n, m in (("float", model), ("plain", plain), ("accuracy-aware", aware))]
    found[1] |= plain_times
    found[2] |= said
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, and write the table and the versions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-drop", type=float, default=0.01, help="Allowed loss of top-1 on the search images.")
    parser.add_argument("--rank-by", choices=("hits", "logits"), default="hits", help="What ranks the operations.")
    parser.add_argument("--per-channel", action="store_true", help="One scale an output channel of the weights.")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent / "results")
    options = parser.parse_args(arguments)
    options.name = f"{'per_channel' if options.per_channel else 'per_tensor'}_{options.rank_by}"
    options.output.mkdir(parents=True, exist_ok=True)
    rows = rows_of(options)
    with (options.output / f"nncf_{options.name}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    versions = {name: importlib.metadata.version(name) for name in ("nncf", "openvino", "numpy", "pillow")}
    print(json.dumps({"rows": rows, "versions": versions}, indent=1))


if __name__ == "__main__":
    main()
