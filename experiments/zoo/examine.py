"""One model of the zoo, from intake to search; writes what it has found after each step, as it may die."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
import core
import numpy as np
from forecasts import built, drawn, drawn_recipes, escaped, forecaster
from models import MODELS, AbsentError, Model

import autoselect
from autoselect.domain.layers import Node
from autoselect.domain.recipe import IoType, Recipe
from autoselect.errors import AutoselectError
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Outputs, Runner

REPAIRS = ("bias", "equalization", "ranges-mse", "weights-mse")
INTERFACES: tuple[IoType, ...] = ("float32", "int8")
BASES = {
    f"{'per channel' if per_channel else 'per tensor'}, {io_type}{', repairs' if repairs else ''}": Recipe(
        per_channel=per_channel, io_type=io_type, repairs=repairs
    )
    for per_channel in (True, False)
    for io_type in INTERFACES
    for repairs in ((), REPAIRS)
}
"""Both granularities, both interfaces, without and with repairs."""


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """How much of everything: recipes for each of ``BASES``, mixes, trials, samples."""

    recipes: int
    mixes: int
    trials: int
    calibration: int
    evaluation: int


Search = Callable[..., autoselect.Run]
"""A search of one model into a folder, with further options."""


class Sheet:
    """What is known of a model so far, on disk."""

    def __init__(self, path: Path) -> None:
        """Begin with nothing."""
        self._path, self._rows = path, dict[str, Any]()

    def add(self, **found: Any) -> None:
        """Write more."""
        self._rows.update(found)
        self._path.write_text(json.dumps(self._rows, indent=1) + "\n", encoding="utf-8")


def examine(name: str, amounts: Amounts, sheet: Sheet, chosen: Sequence[str]) -> None:
    """Find what the table has of a model, as far as the chosen steps tell it."""
    model = MODELS[name]
    try:
        path = model.path()
    except AbsentError as exc:
        sheet.add(skipped=str(exc))
        return
    sheet.add(died_at="intake")
    try:
        content, notes = core.intake(path, model.shapes)
    except AutoselectError as exc:
        sheet.add(intake=f"refused: {exc}", died_at=None)
        return
    sheet.add(intake=_how(path, content), notes=notes, **_counts(path, content))
    keys = [spec.key for spec in reader.input_specs(fb.parse(content))]
    given = itertools.islice(model.samples(), amounts.calibration + amounts.evaluation)
    fed = [dict(zip(keys, sample, strict=True)) for sample in given]
    calibration, evaluation = fed[: amounts.calibration], fed[amounts.calibration :]
    search = partial(searched, path, model, calibration, evaluation)
    steps: dict[str, Callable[[core.Prepared], dict[str, Any]]] = {
        "ends": ends,
        "forecasts": lambda prepared: {"forecasts": forecasts(prepared, amounts.recipes)},
        "mixes": lambda prepared: {"mixes": mixes(prepared, amounts.mixes)},
        "search": lambda _: {"scores": scores(search, amounts.trials)},
        "litert": lambda _: {"litert": litert(search)},
    }
    sheet.add(died_at="preparing")
    try:
        prepared = core.prepare(content, calibration)
    except AutoselectError as exc:
        sheet.add(prepared=f"refused: {exc}", died_at=None)
        return
    sheet.add(nodes=len(prepared.nodes), folded=len(prepared.folded), not_normalised=prepared.told)
    for step in chosen:
        sheet.add(died_at=step)
        try:
            sheet.add(**steps[step](prepared))
        except AutoselectError as exc:
            sheet.add(**{f"{step}_failed": str(exc)})
    sheet.add(died_at=None)


# --------------------------------------------------------------------------------------------- intake


def _how(path: Path, content: bytes) -> str:
    """What was done to the file to take it in."""
    if path.suffix != ".tflite":
        return f"converted from {path.suffix or 'SavedModel'}"
    before, after = fb.parse(path.read_bytes()), fb.parse(content)
    done = []
    if any(tensor.sparsity is not None for graph in before.subgraphs for tensor in graph.tensors):
        done.append("made dense")
    if "float16" in _dtypes(before) - _dtypes(after):
        done.append("float16 widened")
    if any(axis for axis in _free(before)):
        done.append("sizes fixed")
    if 0 in _free(before):
        done.append("batch kept free" if 0 in _free(after) else "batch pinned")
    if len(before.subgraphs) > 1:
        done.append(f"{len(before.subgraphs)} subgraphs")
    return ", ".join(done) or "as it is"


def _dtypes(model: fb.Model) -> set[str]:
    return {fb.TENSOR_DTYPES[tensor.type] for graph in model.subgraphs for tensor in graph.tensors}


def _free(model: fb.Model) -> set[int]:
    """Axes of inputs whose size is free."""
    graph = model.subgraphs[0]
    signatures = [graph.tensors[i].shapeSignature for i in graph.inputs]
    return {axis for s in signatures if s is not None for axis, size in enumerate(s) if size < 0}


def _counts(path: Path, content: bytes) -> dict[str, Any]:
    source = content if path.suffix != ".tflite" else path.read_bytes()
    ops = reader.read_graph(fb.parse(source)).ops
    return {"bytes": len(source), "ops": len(ops), "op_types": dict(Counter(op.op_type for op in ops).most_common())}


# ----------------------------------------------------------------------------------------------- proofs


def ends(prepared: core.Prepared) -> dict[str, Any]:
    """All float against the float model, all int8 against the quantizer's, on two samples."""
    whole = core.quantizers(prepared, (), Recipe()).content
    everything = frozenset(escaped(node.name) for node in prepared.nodes)
    left_out = prepared.builder.build(Recipe(denylisted_nodes=everything, fallback="float"))
    quantized = prepared.builder.build(Recipe())
    return {
        "all_float": _difference(left_out.content, prepared.content, prepared),
        "all_int8": _difference(quantized.content, whole, prepared),
        "out_of_reach": sorted(name for name, kind in left_out.kinds.items() if kind == "integer"),
    }


def _difference(first: bytes, second: bytes, prepared: core.Prepared, *, delegates: bool = True) -> str:
    """Empty where outputs are equal bit for bit on two samples; else the largest difference."""
    runners = [Runner(content, delegates=delegates) for content in (first, second)]
    largest = 0.0
    for sample in prepared.samples[:2]:
        ours, theirs = (list(_run(runner, sample)) for runner in runners)
        for one, other in zip(ours, theirs, strict=True):
            if one.shape != other.shape:
                return f"shapes {one.shape} and {other.shape}"
            if one.tobytes() != other.tobytes():
                largest = max(largest, float(np.max(np.abs(one.astype(float) - other.astype(float)))), 5e-324)
    return f"up to {largest:.3g}" if largest else ""


def _run(runner: Runner, sample: Mapping[str, np.ndarray]) -> Iterator[np.ndarray]:
    """Outputs in the order of the file: candidates may have other names for them."""
    outputs: Outputs = runner(sample)
    return iter(outputs.values())


def forecasts(prepared: core.Prepared, count: int) -> dict[str, Any]:
    """For each of ``BASES`` how many forecasts were exact, the first that was not, and milliseconds a candidate."""
    return {name: _forecasts(prepared, base, count) for name, base in BASES.items()}


def _forecasts(prepared: core.Prepared, base: Recipe, count: int) -> dict[str, Any]:
    try:
        forecast = forecaster(prepared, base)
    except (AutoselectError, IndexError, KeyError, ValueError) as exc:  # What breaks is the result.
        return {"exact": 0, "of": count, "first": f"{type(exc).__name__}: {exc}"}
    exact, first, seconds = 0, "", []
    for number, recipe in enumerate(drawn_recipes(prepared.nodes, base, count, seed=count)):
        try:
            told = forecast(recipe)
            begun = time.perf_counter()
            candidate = prepared.builder.build(recipe)
            seconds.append(time.perf_counter() - begun)
            found = built(candidate)
            wrong = [k for k in ("size_bytes", "kinds", "ops") if getattr(told, k) != getattr(found, k)]
        except (AutoselectError, IndexError, KeyError, ValueError) as exc:
            wrong = [f"{type(exc).__name__}: {exc}"]
        exact += not wrong
        first = first or (f"recipe {number}: {', '.join(wrong)}" if wrong else "")
    milliseconds = round(1000.0 * float(np.median(seconds)), 1) if seconds else None
    return {"exact": exact, "of": count, "first": first, "milliseconds": milliseconds}


def mixes(prepared: core.Prepared, count: int) -> dict[str, Any]:
    """How many random mixes of integer and float give the outputs that the quantizer's own give, and what differs."""
    classes: Counter[str] = Counter()
    seconds = []
    for denied in itertools.islice(drawn(prepared.nodes, count + 2, seed=1), 2, None):
        try:
            begun = time.perf_counter()
            reference = core.quantizers(prepared, denied, Recipe())
            seconds.append(time.perf_counter() - begun)
        except AutoselectError:
            classes["the quantizer refuses"] += 1
            continue
        try:
            classes[_class(prepared, denied, reference)] += 1
        except AutoselectError as exc:
            classes[f"refused: {str(exc)[:80]}"] += 1
    milliseconds = round(1000.0 * float(np.median(seconds)), 1) if seconds else None
    return {"of": count, "quantizer_milliseconds": milliseconds, "classes": dict(classes.most_common())}


def _class(prepared: core.Prepared, denied: Sequence[Node], reference: core.Reference) -> str:
    """``equal``, or why not.

    The proof is that a candidate with the same nodes in integers is equal to the quantizer's model without its detours.
    """
    mix = _mix(prepared, denied, ())
    if not _difference(mix, reference.content, prepared):
        return "equal"
    if not _difference(mix, reference.content, prepared, delegates=False):
        return "equal without XNNPACK"
    obeyed = [node for node in denied if node not in reference.integer]
    found = _difference(_mix(prepared, obeyed, reference.hybrid), reference.direct, prepared, delegates=False)
    return f"other, {found}" if found else "; ".join(reference.oddities())


def _mix(prepared: core.Prepared, denied: Sequence[Node], hybrid: Sequence[Node]) -> bytes:
    """A candidate with some of the denied nodes hybrid and the others float."""
    names = frozenset(escaped(node.name) for node in denied)
    floats = names - {escaped(node.name) for node in hybrid}
    return prepared.builder.build(Recipe(denylisted_nodes=names, float_nodes=floats)).content


# ----------------------------------------------------------------------------------------------- search


def scores(search: Search, trials: int) -> dict[str, Any]:
    """SQNR to float's outputs on held-out samples of the whole builds and of the picks."""
    with tempfile.TemporaryDirectory() as folder:
        run = search(Path(folder) / "run", trials=trials)
        references = {
            name: {"sqnr_db": _rounded(row["heldout"]), "size_bytes": row["size_bytes"]}
            for name, row in run.summary["references"].items()
        }
        front = run.front.set_index("id")
        picks = {
            pick: {
                "sqnr_db": _rounded(front.loc[member, "heldout_sqnr_db"]),
                "size_bytes": int(front.loc[member, "size_bytes"]),
                "float_ops": int(front.loc[member, "float_ops"]),
            }
            for pick, member in run.picks.items()
        }
        origins = Counter(run.trials["origin"])
        return {"references": references, "picks": picks, "origins": dict(origins), "seconds": run.summary["seconds"]}


def litert(search: Search) -> dict[str, Any]:
    """The same of the all-integer model that litert-quantizer makes, and how many ops it leaves in float."""
    with tempfile.TemporaryDirectory() as folder:
        run = search(Path(folder) / "run", trials=1, quantizer="litert")
        found = run.summary["references"]["fiq"]
        return {
            "sqnr_db": _rounded(found["heldout"]),
            "size_bytes": found["size_bytes"],
            "float_ops": int(found["float_ops"]),
        }


def searched(
    path: Path,
    model: Model,
    calibration: Sequence[Mapping[str, np.ndarray]],
    evaluation: Sequence[Mapping[str, np.ndarray]],
    output: Path,
    **options: Any,
) -> autoselect.Run:
    """A search by closeness to float."""
    return autoselect.search(
        path,
        calibration=list(calibration),
        evaluation=list(evaluation),
        metric="sqnr_db",
        output=output,
        shapes=model.shapes or None,
        workers=1,
        debug_samples=4,
        early_exit=False,
        **options,
    )


def _rounded(value: Any) -> float | None:
    return None if value is None or math.isnan(value) else round(float(value), 2)


def main() -> None:
    """Examine one model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", nargs="+", required=True)
    for field in Amounts.__dataclass_fields__:
        parser.add_argument(f"--{field}", type=int, required=True)
    options = vars(parser.parse_args())
    name, output, steps = (options.pop(key) for key in ("name", "output", "steps"))
    examine(name, Amounts(**options), Sheet(output), steps)


if __name__ == "__main__":
    main()
