"""Models of tools that are no search: litert-quantizer's static recipe, NNCF's models, and what these are here."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import parts
from judge import Judge, Judged
from litert_quantizer import calibrator, qtyping, quantizer, recipe_manager
from litert_quantizer.utils import qsv_utils

import autoselect
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

HERE = Path(__file__).resolve().parent
RANGES = {
    "its moving average of ranges": qsv_utils.moving_average_update,
    "all of each range": qsv_utils.min_max_update,
}
"""The first is its default."""
BY_HAND = (0, 5)
"""So many nodes, the worst by rmse/scale, are left out by hand."""
MAPPED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MEAN")
"""Op types that NNCF quantizes here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One model of another tool.

    Attributes:
        name: In the table.
        judged: Its own answers; its costs where it is a TensorFlow Lite file, else those of ``mapped``.
        evaluations: Runs over the search samples that it took, those that choose it included.
        seconds: To make it.
        limit: The drop that it was told to keep; None where none.
        mapped: The model with the same ops in int8 and with corrected biases, built and run here; None where that is
            itself.
    """

    name: str
    judged: Judged
    evaluations: float
    seconds: float
    limit: float | None = None
    mapped: Judged | None = None


def litert_models(judge: Judge, statistics: pd.DataFrame) -> Iterator[Peer]:
    """The static recipe, whole and with nodes left out by hand; they are kept beside what is judged of them."""
    worst = statistics.sort_values("rmse/scale", ascending=False, kind="stable")["tensor_name"]
    for (ranges, update), count in product(RANGES.items(), BY_HAND):
        kept = judge.folder / f"litert_{update.__name__}_{count}.tflite"
        note = kept.with_suffix(".seconds")
        if not note.exists():
            begun = time.perf_counter()
            kept.write_bytes(_litert(judge, list(worst[:count]), update))
            note.write_text(f"{time.perf_counter() - begun:.1f}", encoding="utf-8")
        left_out = f", {count} worst by rmse/scale left out" if count else ""
        yield Peer(
            name=f"litert-quantizer, static recipe, {ranges}{left_out}",
            judged=judge.file(kept.stem, kept.read_bytes()),
            evaluations=1.0,
            seconds=float(note.read_text(encoding="utf-8")),
        )


def _litert(judge: Judge, left_out: Sequence[str], update: Callable[..., Any]) -> bytes:
    case, every = judge.case, qtyping.TFLOperationName.ALL_SUPPORTED
    granularity = qtyping.QuantGranularity
    per_channel = case.options.get("per_channel", True)
    assert case.model is not None
    content = case.model.read_bytes()
    tool = quantizer.Quantizer(content)
    tool.add_static_config(".*", every, 8, 8, granularity.CHANNELWISE if per_channel else granularity.TENSORWISE)
    for end in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):
        tool.update_quantization_recipe(".*", end, algorithm_key=quantizer.AlgorithmName.NO_QUANTIZE)
    for name in left_out:
        scope = f"^{re.escape(name)};"
        tool.update_quantization_recipe(scope, every, algorithm_key=quantizer.AlgorithmName.NO_QUANTIZE)
    (spec,) = reader.input_specs(fb.parse(content))
    samples = [{spec.key: sample[0]} for sample in getattr(parts, f"{case.data}_calibration")()]
    rules = recipe_manager.RecipeManager()
    rules.load_quantization_recipe(tool.get_quantization_recipe())
    found = calibrator.Calibrator(content, num_threads=1, qsv_update_func=update)
    found.calibrate({"serving_default": samples}, rules)
    return bytes(tool.quantize(found.get_model_qsvs()).quantized_model)


def nncf_models(judge: Judge, statistics: pd.DataFrame, python: str, limits: Sequence[float]) -> Iterator[Peer]:
    """NNCF's models, each with the one that leaves the same ops out here; ``python`` is that of its environment."""
    folder = judge.folder / "nncf"
    told = [word for limit in limits for word in ("--limit", str(limit))]
    mode = ["--per-channel"] if judge.case.options.get("per_channel", True) else []
    subprocess.run([python, str(HERE / "nncf_models.py"), *mode, *told, "--output", str(folder)], check=True)
    nodes = statistics.loc[statistics["op_name"].isin(MAPPED), "tensor_name"]
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        yield _nncf_model(judge, nodes, found)


def _nncf_model(judge: Judge, nodes: pd.Series, found: dict[str, Any]) -> Peer:
    left_out = frozenset(name for name, int8 in zip(nodes, found["int8"], strict=True) if not int8)
    recipe = autoselect.Recipe(
        denylisted_nodes=left_out,
        fallback="float",
        per_channel=judge.case.options.get("per_channel", True),
        repairs=("bias",),  # NNCF corrects biases, too.
    )
    (mapped,) = judge.recipes([recipe])
    own = Judged(answers=np.array(found["heldout"]), search_answers=np.array(found["search"]), costs=mapped.costs)
    return Peer(
        name=f"NNCF, {found['model']}",
        judged=own,
        evaluations=float(found.get("evaluations", 0.0)),
        seconds=found["seconds"],
        limit=found["limit"],
        mapped=mapped,
    )
