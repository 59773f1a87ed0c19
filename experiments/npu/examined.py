"""One model: what is forecast of random recipes beside what the compiler says of what is built; writes what it found.

A process of its own, started by ``agreement.py``; it writes after each step, as it may die.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "zoo"))
import core
import npu_models
import numpy as np
from forecasts import escaped
from models import AbsentError

from autoselect.cases.chip_jobs import MIXES, mixes
from autoselect.cases.compiling import UNKEPT, look_at
from autoselect.compilers.litert_plugin import PluginCompiler
from autoselect.domain.graph import Graph, count_listed, peak_activation_bytes, with_answers
from autoselect.domain.layers import Node
from autoselect.domain.recipe import IoType, Recipe
from autoselect.domain.states import states_of
from autoselect.domain.targets import as_seen, spilled_bytes
from autoselect.domain.verdicts import Place, Verdict, judge, may_spill
from autoselect.errors import AutoselectError, TargetRefusal
from autoselect.quantize.building.blueprint import Blueprint
from autoselect.quantize.building.build import Builder, Candidate
from autoselect.scoring.target_file import read_target
from autoselect.scoring.target_penalty import on_target
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Runner

FORMS = ("int8", "int16", "hybrid", "float")
KINDS = ("integer", "int16", "hybrid", "float")
"""The same in the words of the product."""
SECONDS = 600.0
"""After which the compiler counts as hung."""
INTERFACES: tuple[IoType, ...] = ("float32", "float32", "int8")
"""In turn."""
OLD = "integer-only"
"""The target whose penalty is compared; it knows no chip."""
KEPT_MISSES = 20
COSTS = (
    "recipe",
    "forecast",
    "stated",
    OLD,
    "ddr_forecast",
    "ddr",
    "spill",
    "fill",
    "write_total",
    "read_total",
    "partitions",
    "left",
)
"""Columns of the figures of each compiled recipe: costs in the target's unit, points, bytes, counts."""


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """How much: random recipes, those of them that are compiled, those whose outputs are compared, calibration."""

    recipes: int
    compiled: int
    compared: int
    calibration: int


PARTS = ("forecasts", "orders", "costs", "spills")
"""What can be examined apart; a sheet keeps what an earlier run found of the others."""


class Sheet:
    """What is known of a model so far, on disk; one key a line."""

    def __init__(self, path: Path) -> None:
        self._path, self._rows = path, dict[str, Any]()
        if path.exists():
            self._rows = json.loads(path.read_text(encoding="utf-8"))

    def add(self, **found: Any) -> None:
        self._rows.update(found)
        lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in self._rows.items())
        self._path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


# ---------------------------------------------------------------------------------------------- recipes


def recipes(nodes: Sequence[Node], count: int) -> list[Recipe]:
    """All nodes in one form, for each form; then random mixes."""
    return [*(_recipe(nodes, [form] * len(nodes), "float32") for form in range(4)), *_mixes(nodes, count)]


def _mixes(nodes: Sequence[Node], count: int) -> Iterator[Recipe]:
    """Most nodes in one form, with a share of others from a hundredth to all; then forms at random shares; in turn."""
    rng = np.random.default_rng(0)
    for number in range(count):
        base, share = rng.integers(4), 10.0 ** rng.uniform(-2.0, 0.0) if number % 2 == 0 else 1.0
        drawn = rng.choice(4, len(nodes), p=rng.dirichlet(np.ones(4)))
        forms = np.where(rng.random(len(nodes)) < share, drawn, base)
        yield _recipe(nodes, forms.tolist(), INTERFACES[number % len(INTERFACES)])


def _recipe(nodes: Sequence[Node], forms: Sequence[int], io_type: IoType) -> Recipe:
    _, wide, hybrid, floats = (
        frozenset(escaped(node.name) for node, form in zip(nodes, forms, strict=True) if form == wanted)
        for wanted in range(4)
    )
    return Recipe(int16_nodes=wide, denylisted_nodes=hybrid | floats, float_nodes=floats, io_type=io_type)


# --------------------------------------------------------------------------------------------- forecasts


class Asked:
    """A target with its compiler, and a model's builders for it; says what is forecast of a recipe."""

    def __init__(self, prepared: core.Prepared, soc: str) -> None:
        self.target = read_target(f"qualcomm-{soc.lower()}")
        self.compiler = PluginCompiler(self.target)
        self._answers, self.nodes = dict[str, Mapping[int, str]](), prepared.nodes
        self.seconds_asked = 0.0
        # A builder remembers by who is asked: each needs one of its own.
        self.builder, self.natural = (
            Builder(prepared.calibrated, prepared.nodes, prepared.kit, self._asker(), gathers=gathers)
            for gathers in (True, False)
        )
        self._blueprints = dict[tuple[bool, IoType], Blueprint]()

    def look(self, wholes: Sequence[Recipe]) -> None:
        """Know of the chip what a search knows once it has compiled the whole models."""
        models = [(built.content, built.graph) for built in map(self.builder.build, wholes)]
        self.target = as_seen(self.target, [look_at(models, self.target, UNKEPT)])

    @property
    def asks(self) -> int:
        """How many files the compiler has seen for the forecasts."""
        return len(self._answers)

    @property
    def unsteady(self) -> list[int]:
        """Parts of which the compiler said otherwise in one model than in another, for each interface."""
        return [blueprint.unsteady for blueprint in self._blueprints.values()]

    def _asker(self) -> Callable[[bytes], Sequence[Mapping[int, str]]]:
        def ask(content: bytes) -> Sequence[Mapping[int, str]]:
            key = hashlib.sha256(content).hexdigest()
            if key not in self._answers:
                begun = time.perf_counter()
                self._answers[key] = self.compiler.partition(content, timeout_seconds=SECONDS).left
                self.seconds_asked += time.perf_counter() - begun
            return [self._answers[key]]

        return ask

    def graph(self, recipe: Recipe, *, gathers: bool = True) -> Graph:
        """What is planned."""
        key = gathers, recipe.io_type
        if key not in self._blueprints:
            builder = self.builder if gathers else self.natural
            self._blueprints[key] = builder.blueprint(Recipe(io_type=recipe.io_type), int16=True)
        denied, floats, wide = (
            [i for i, node in enumerate(self.nodes) if escaped(node.name) in names]
            for names in (recipe.denylisted_nodes, recipe.float_nodes, recipe.int16_nodes)
        )
        return self._blueprints[key].plan(denied, recipe.fallback, floats, wide).graph


def left_of(verdict: Verdict) -> set[int]:
    return {i for i, p in enumerate(verdict.placements) if p.place is not Place.ACCELERATOR}


def runs_of(count: int, left: set[int]) -> list[tuple[int, ...]]:
    """The ops of each run that is taken."""
    found: list[list[int]] = [[]]
    for index in range(count):
        if index in left:
            found.append([])
        else:
            found[-1].append(index)
    return [tuple(run) for run in found if run]


def agreement(asked: Asked, drawn: Sequence[Recipe]) -> dict[str, Any]:
    """How many recipes were forecast exactly, what was wrong with the others, and partitions in both orders."""
    exact, misses, seconds = Counter[str](), list[dict[str, Any]](), Counter[str]()
    partitions = Counter[str]()
    for recipe in (drawn[0], drawn[len(INTERFACES) + 3]):  # Ask before the clock runs.
        asked.graph(recipe)
    for number, recipe in enumerate(drawn):
        begun = time.perf_counter()
        try:
            graph = asked.graph(recipe)
            forecast = judge(graph, asked.target)
            seconds["forecast"] += time.perf_counter() - begun
            begun = time.perf_counter()
            candidate = asked.builder.build(recipe)
            seconds["build"] += time.perf_counter() - begun
            begun = time.perf_counter()
            said = asked.compiler.partition(candidate.content, timeout_seconds=SECONDS)
            seconds["partition"] += time.perf_counter() - begun
        except TargetRefusal:
            raise
        except AutoselectError as exc:
            misses.append({"recipe": number, "failed": f"{type(exc).__name__}: {exc}"[:300]})
            continue
        found = reader.read_graph(fb.parse(candidate.content))
        real = judge(with_answers(found, said.left), asked.target)
        equal = {
            "ops": [op.op_type for op in graph.ops] == [op.op_type for op in found.ops],
            "left": left_of(forecast) == set(said.left),
            "partitions": runs_of(len(graph.ops), left_of(forecast)) == list(said.pieces)
            and forecast.segments == len(said.pieces),
            "crossing_bytes": forecast.crossing_bytes == real.crossing_bytes,
        }
        exact.update(key for key, is_equal in equal.items() if is_equal)
        exact["all"] += all(equal.values())
        partitions["gathered"] += len(said.pieces)
        natural = [op.left_because == "" for op in asked.graph(recipe, gathers=False).ops]
        partitions["natural"] += count_listed(natural)
        partitions["fewer"] += count_listed(natural) > len(said.pieces)
        partitions["more"] += count_listed(natural) < len(said.pieces)
        partitions["left"] += len(said.left)
        partitions["ops"] += len(graph.ops)
        if not all(equal.values()):
            misses.append(_miss(number, recipe, equal, graph, forecast, said.left, len(said.pieces)))
    count = max(len(drawn), 1)
    return {
        "of": len(drawn),
        "unsteady": max(asked.unsteady),
        "exact": {key: exact[key] for key in ("all", "ops", "left", "partitions", "crossing_bytes")},
        "missed": len(misses),
        "misses": misses[:KEPT_MISSES],
        "partitions": dict(partitions),
        "asks": asked.asks,
        "seconds_asked": round(asked.seconds_asked, 2),
        "milliseconds": {key: round(1000.0 * spent / count, 1) for key, spent in seconds.items()},
    }


def _miss(
    number: int,
    recipe: Recipe,
    equal: Mapping[str, bool],
    graph: Graph,
    forecast: Verdict,
    left: Mapping[int, str],
    pieces: int,
) -> dict[str, Any]:
    """What is wrong: for each op what the whole build said of it, and what the mix said; empty where it is taken."""
    apart = sorted(left_of(forecast) ^ set(left)) if equal["ops"] else []
    return {
        "recipe": number,
        "io_type": recipe.io_type,
        "wrong": [key for key, is_equal in equal.items() if not is_equal],
        "partitions": [forecast.segments, pieces],
        "apart": len(apart),
        "ops": [
            {
                "op": graph.ops[i].op_type,
                "kind": graph.ops[i].kind.value,
                "name": graph.tensors[graph.ops[i].outputs[0]].name,
                "whole": graph.ops[i].left_because,
                "mix": left.get(i, ""),
            }
            for i in apart[:5]
        ],
    }


# ------------------------------------------------------------------------------------------------- costs


def costs(asked: Asked, drawn: Sequence[Recipe], count: int) -> dict[str, Any]:
    """Of random recipes what is forecast of their cost, and what is stated of the compiled model."""
    old, rows, failed, spent = read_target(OLD), list[list[float]](), list[str](), 0.0
    asked.look(drawn[:4])
    for number, recipe in list(enumerate(drawn))[4 : 4 + count]:
        graph = asked.graph(recipe)
        forecast = judge(graph, asked.target)
        content = asked.builder.build(recipe).content
        begun = time.perf_counter()
        try:
            found = asked.compiler.compile(content, timeout_seconds=SECONDS)
        except AutoselectError as exc:
            failed.append(f"recipe {number}: {exc}"[:300])
            continue
        finally:
            spent += time.perf_counter() - begun
        moved = [found.moved.get(kind, 0) for kind in COSTS[6:10]]
        penalties = [on_target(graph, asked.target).penalty, found.cost, on_target(graph, old).penalty]
        figures = [round(figure, 4) for figure in penalties]
        rows.append(
            [number, *figures, forecast.ddr_bytes, found.ddr_bytes, *moved, found.segments, len(left_of(forecast))]
        )
    return {
        "columns": COSTS,
        "rows": rows,
        "failed": failed,
        "milliseconds": round(1000.0 * spent / max(count, 1), 1),
    }


# ----------------------------------------------------------------------------------------------- spilling


def spilling(asked: Asked, prepared: core.Prepared, wholes: Sequence[Recipe], count: int) -> dict[str, Any]:
    """What a search of all four forms sees at its start, and which of more mixes of the same kind spill."""
    graph, target = reader.read_graph(fb.parse(prepared.calibrated.content)), asked.target
    assert target.memory is not None
    found: dict[str, Any] = {"may_spill": may_spill(graph, target), "compiles_each": False, "wholes": [], "mixes": []}
    found["live_bytes"] = 4 * peak_activation_bytes(graph, lambda tensor: target.memory.blocked(tensor.shape))
    if not found["may_spill"]:
        return found
    builds, names = list(map(asked.builder.build, wholes)), [escaped(node.name) for node in asked.nodes]
    left_of = {form: judge(built.graph, target).left_ops for form, built in zip(KINDS, builds, strict=True)}
    states = states_of("search", int16=True)
    drawn = list(map(asked.builder.build, mixes(Recipe(), left_of, states, names, seed=0, count=count)))
    for key, models in (("wholes", builds), ("mixes", drawn)):
        for built in models:
            begun = time.perf_counter()
            try:
                made = asked.compiler.compile(built.content, timeout_seconds=SECONDS)
                found[key].append(int(spilled_bytes(asdict(made)) > 0))
            except AutoselectError:
                found[key].append(None)
            found["seconds"] = round(found.get("seconds", 0.0) + time.perf_counter() - begun, 1)
    found["forms"] = sorted(left_of, key=left_of.__getitem__)[:2]
    found["compiles_each"] = any(found["wholes"]) or any(found["mixes"][:MIXES])
    return found


# ------------------------------------------------------------------------------------------------- order


def orders(asked: Asked, prepared: core.Prepared, drawn: Sequence[Recipe], count: int) -> dict[str, Any]:
    """Whether outputs are the same bits in both orders, on two samples, and the natural order's partitions as told."""
    of, apart, told_right = 0, list[int](), 0
    for number, recipe in list(enumerate(drawn))[4:]:
        if of == count:
            break
        ops = [[op.op_type for op in asked.graph(recipe, gathers=gathers).ops] for gathers in (True, False)]
        if ops[0] == ops[1]:
            continue
        of += 1
        gathered, natural = (builder.build(recipe) for builder in (asked.builder, asked.natural))
        apart += [] if _same_bits(gathered, natural, prepared) else [number]
        said = asked.compiler.partition(natural.content, timeout_seconds=SECONDS)
        told_right += len(said.pieces) == judge(asked.graph(recipe, gathers=False), asked.target).segments
    return {"of": of, "equal": of - len(apart), "apart": apart, "natural_exact": told_right}


def _same_bits(first: Candidate, second: Candidate, prepared: core.Prepared) -> bool:
    runners = [Runner(candidate.content) for candidate in (first, second)]
    for sample in prepared.samples[:2]:
        ours, theirs = (runner.listed(sample) for runner in runners)
        if any(one.tobytes() != other.tobytes() for one, other in zip(ours, theirs, strict=True)):
            return False
    return True


# ------------------------------------------------------------------------------------------------ a model


def examine_first(
    asked: Asked, prepared: core.Prepared, drawn: Sequence[Recipe], parts: Sequence[str], amounts: Amounts, sheet: Sheet
) -> None:
    """Find what is asked for one chip only."""
    of_part: Mapping[str, Callable[[], dict[str, Any]]] = {
        "orders": lambda: orders(asked, prepared, drawn, amounts.compared),
        "costs": lambda: costs(asked, drawn, amounts.compiled),
        "spills": lambda: spilling(asked, prepared, drawn[:4], amounts.compiled),
    }
    for part, find in of_part.items():
        if part in parts:
            sheet.add(died_at=part)
            sheet.add(**{part: find()})


def examine(name: str, socs: Sequence[str], parts: Sequence[str], amounts: Amounts, sheet: Sheet) -> None:
    """Find what the table has of a model."""
    model = npu_models.MODELS[name]
    sheet.add(name=name, died_at="intake")
    try:
        content, notes = core.intake(model.path(), model.shapes)
        keys = [spec.key for spec in reader.input_specs(fb.parse(content))]
        sheet.add(notes=notes, bytes=len(content), died_at="preparing")
        prepared = core.prepare(content, model.samples(keys, amounts.calibration))
    except AbsentError as exc:
        sheet.add(skipped=str(exc), died_at=None)
        return
    except AutoselectError as exc:
        sheet.add(refused=str(exc), died_at=None)
        return
    ops = reader.read_graph(fb.parse(prepared.calibrated.content)).ops
    sheet.add(ops=len(ops), nodes=len(prepared.nodes), not_normalised=prepared.told)
    drawn, found = recipes(prepared.nodes, amounts.recipes), dict[str, Any]()
    for place, soc in enumerate(socs if "forecasts" in parts else socs[:1]):
        sheet.add(died_at=f"{soc}")
        asked = Asked(prepared, soc)
        try:
            if "forecasts" in parts:
                found[soc] = agreement(asked, drawn)
                sheet.add(socs=found)
            if place == 0:
                sheet.add(int16_nodes=len(asked.builder.blueprint(Recipe(), int16=True).int16_nodes))
                examine_first(asked, prepared, drawn, parts, amounts, sheet)
        except TargetRefusal as exc:
            found[soc] = {"refusal": str(exc)}
            sheet.add(socs=found)
        except AutoselectError as exc:
            found.setdefault(soc, {"failure": str(exc)})
            sheet.add(socs=found, **{f"failed at {soc}": str(exc)})
    sheet.add(died_at=None)


def main() -> None:
    """Examine one model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=npu_models.MODELS)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--socs", nargs="+", required=True)
    parser.add_argument("--parts", nargs="+", choices=PARTS, required=True)
    for field in Amounts.__dataclass_fields__:
        parser.add_argument(f"--{field}", type=int, required=True)
    options = vars(parser.parse_args())
    name, output, socs, parts = (options.pop(key) for key in ("name", "output", "socs", "parts"))
    examine(name, socs, parts, Amounts(**options), Sheet(output))


if __name__ == "__main__":
    main()
