"""NNCF's models of MobileNetV1-0.25: plain with both of its bias corrections, and its accuracy-aware loop at limits.

Runs in the environment of ``../nncf``; it does not import autoselect. What is there already is not made again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import nncf
import openvino as ov

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / name) for name in ("nncf", "real_models")]
import loaders  # noqa: E402 - found by the path above
import run as aware  # noqa: E402

MODEL = loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite"
QUANTIZED = (*aware.WEIGHTED, "ReduceMean", "AvgPool")
"""Types of ops that NNCF quantizes here; each has its op in the TensorFlow Lite file, in the same order."""
Made = tuple[ov.Model, dict[str, Any]]


def makers(
    per_channel: bool, search: aware.Part, limits: Sequence[float]
) -> Iterator[tuple[str, float | None, Callable[[], Made]]]:
    """Name of each model, the drop that it may have, and what makes it, with what is known of how."""
    advanced = aware.settings(per_channel=per_channel)
    for name, fast in (("fast bias correction", True), ("bias correction", False)):
        plain = partial(
            nncf.quantize,
            ov.Core().read_model(MODEL),
            aware.calibration(),
            fast_bias_correction=fast,
            advanced_parameters=advanced,
        )
        yield name, None, partial(aware.timed, plain)
    for limit in limits:
        loop = partial(
            aware.controlled,
            MODEL,
            aware.calibration(),
            search,
            per_channel=per_channel,
            rank_by="hits",
            max_drop=limit,
        )
        yield "accuracy-aware", limit, lambda loop=loop: loop()[:2]


def described(model: ov.Model, parts: dict[str, aware.Part]) -> dict[str, Any]:
    """Which ops are in int8, in the order of the graph, and what the model answers on each part."""
    compiled = ov.Core().compile_model(model, "CPU")
    ops = [op for op in model.get_ordered_ops() if op.get_type_name() in QUANTIZED]
    return {
        "int8": [aware.takes_int8(op) for op in ops],
        **{name: aware.scores(compiled, part.images).argmax(axis=1).tolist() for name, part in parts.items()},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Make what is missing; a ``.json`` file each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-channel", action="store_true")
    parser.add_argument("--limit", type=float, action="append", default=[], help="Of the loop; repeat it.")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    compiled = ov.Core().compile_model(ov.Core().read_model(MODEL), "CPU")
    samples = {"search": loaders.imagenet_search, "heldout": loaders.imagenet_heldout}
    parts = {name: aware.read_part(read(), compiled) for name, read in samples.items()}
    versions = {"nncf": nncf.__version__, "openvino": ov.__version__}
    for name, limit, make in makers(options.per_channel, parts["search"], options.limit):
        kept = options.output / f"{name.replace(' ', '_')}{'' if limit is None else f'_{limit}'}.json"
        if not kept.exists():
            model, said = make()
            told = {"model": name, "limit": limit, "versions": versions}
            kept.write_text(json.dumps({**told, **described(model, parts), **said}), encoding="utf-8")


if __name__ == "__main__":
    main()
