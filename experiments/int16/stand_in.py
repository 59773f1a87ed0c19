"""Compares what stands in for LiteRT's 16-bit convolutions with them, on models of random nodes in 16 bits."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import loaders
import numpy as np
import pandas as pd

import autoselect
from autoselect.tflite import wide_kernels
from autoselect.tflite.runner import Outputs, Runner

RESULTS = Path(__file__).resolve().parent / "results"
WITHOUT_DELEGATES = 20
"""Samples on which LiteRT's delegates are compared with its own kernels, which are slower still."""
ZOO = loaders.IMAGENET.parent / "zoo"
Samples = Callable[[], Iterator[list[np.ndarray]]]


def noise(shape: tuple[int, ...]) -> Samples:
    """Sixty samples from 0 to 1, always the same."""
    rng = np.random.default_rng(0)
    drawn = rng.uniform(size=(60, *shape)).astype(np.float32)
    return lambda: ([sample] for sample in drawn)


def images() -> Iterator[list[np.ndarray]]:
    """Those that a search of MobileNetV1 may see."""
    return ([image[None]] for image, _ in loaders.imagenet_search())


CASES: dict[str, tuple[Path, Samples, Samples]] = {
    "MobileNetV1-0.25": (
        loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite",
        loaders.imagenet_calibration,
        images,
    ),
    "FSRCNN x2": (loaders.FSRCNN / "fsrcnn_x2_float.tflite", loaders.fsrcnn_calibration, loaders.fsrcnn_calibration),
    "face landmarks": (ZOO / "face_landmark.tflite", noise((1, 192, 192, 3)), noise((1, 192, 192, 3))),
    "speech embedding": (ZOO / "embedding_model.tflite", noise((1, 76, 32, 1)), noise((1, 76, 32, 1))),
}


def recipes(nodes: Sequence[str], seed: int) -> Iterator[tuple[str, autoselect.Recipe]]:
    """All nodes in 16 bits, and halves of them, with a fifth of the others in float."""
    yield "all 16-bit", autoselect.Recipe(int16_nodes=frozenset(nodes))
    rng = np.random.default_rng(seed)
    for number in range(2):
        drawn = rng.uniform(size=len(nodes))
        wide = frozenset(name for name, value in zip(nodes, drawn, strict=True) if value < 0.5)
        exact = frozenset(name for name, value in zip(nodes, drawn, strict=True) if value > 0.9)
        mixed = autoselect.Recipe(int16_nodes=wide, denylisted_nodes=exact, float_nodes=exact)
        yield f"mix {number + 1}", mixed


def compared(content: bytes, reference: bytes, samples: Iterator[list[np.ndarray]]) -> dict[str, Any]:
    """How far the outputs are from those of the kernels and of float, and what is slower."""
    kernels, stand_in, exact = Runner(content), Runner(wide_kernels.stand_in(content)), Runner(reference)
    plain, same = Runner(content, delegates=False), []
    shares: dict[str, list[float]] = {}
    for sample in samples:
        inputs = {spec.key: value for spec, value in zip(exact.inputs, sample, strict=True)}
        shipped = {key: value.copy() for key, value in kernels(inputs).items()}
        other, truth = stand_in(inputs), exact(inputs)
        first = next(iter(truth))
        same.append(np.argmax(shipped[first]) == np.argmax(other[first]))
        pairs = {"stand_in": (other, shipped), "to_float": (shipped, truth), "stood_in_to_float": (other, truth)}
        if len(same) <= WITHOUT_DELEGATES:
            pairs["delegates"] = (plain(inputs), shipped)
        for name, pair in pairs.items():
            shares.setdefault(name, []).append(_share(*pair))
    decibels = {f"{name}_db": -10 * np.log10(max(float(np.mean(row)), 1e-20)) for name, row in shares.items()}
    faster = kernels.inference_seconds / stand_in.inference_seconds
    return {"samples": len(same), "same": float(np.mean(same)), **decibels, "faster": faster}


def _share(ours: Outputs, theirs: Outputs) -> float:
    """Power of the error over that of the signal, a mean over the outputs."""
    shares = [
        np.sum((ours[k].astype(float) - v) ** 2) / max(np.sum(v.astype(float) ** 2), 1e-20) for k, v in theirs.items()
    ]
    return float(np.mean(shares))


def rows_of(name: str, count: int) -> Iterator[dict[str, Any]]:
    """A row for each model of a case."""
    path, calibration, samples = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "model.tflite"
        common: dict[str, Any] = {"model": path, "calibration": calibration, "output": out}
        plain = autoselect.build(recipe=autoselect.Recipe(), **common)
        for label, recipe in recipes(list(plain.kinds), seed=0):
            autoselect.build(recipe=recipe, **common)
            content = out.read_bytes()
            found = compared(content, path.read_bytes(), islice(samples(), count))
            yield {"case": name, "model": label, "million_macs": wide_kernels.slow_macs(content) / 1e6, **found}


def table_of(rows: pd.DataFrame) -> str:
    """As Markdown."""
    lines = [
        "| case | model | MMACs | samples | same answer | stand-in to kernels, dB | delegates to none, dB "
        "| kernels, stand-in to float, dB | faster |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows.itertuples():
        lines.append(
            f"| {row.case} | {row.model} | {row.million_macs:.1f} | {row.samples} | {100 * row.same:.1f} % | "
            f"{row.stand_in_db:.1f} | {row.delegates_db:.1f} | {row.to_float_db:.1f}, {row.stood_in_to_float_db:.1f} | "
            f"{row.faster:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200, help="Most samples of a model.")
    parser.add_argument("--case", action="append", choices=CASES, default=[], help="Repeat it. All by default.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    rows = pd.DataFrame([row for name in options.case or CASES for row in rows_of(name, options.samples)])
    rows.round(4).to_csv(options.results / "stand_in.csv", index=False, lineterminator="\n")
    (options.results / "stand_in.md").write_text(table_of(rows), encoding="utf-8")
    print(table_of(rows))


if __name__ == "__main__":
    main()
