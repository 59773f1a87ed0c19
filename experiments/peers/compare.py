"""Quantizes two models with several tools for the same limit; writes what each gives and what it took.

Tools whose packages do not go with autoselect's get environments of their own below ``--work``. What is there already
is not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
FOLDERS = ("mobilenet_v1", "search_benchmark", "real_models")
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in FOLDERS)]
import parts  # noqa: E402 - found by the path above
from cases import BenchmarkCase  # noqa: E402
from judge import Judge, Judged  # noqa: E402
from litert_recipes import RANGES, RECIPES  # noqa: E402
from one_search import CASES, LIMIT  # noqa: E402

import autoselect  # noqa: E402
from autoselect.runs.files import write_json  # noqa: E402

SEARCHES = {
    "greedy": "greedy",
    "TPE": "tpe",
    "NSGA-II": "nsga2",
    "default sampler": "surrogate",
    "default sampler, all states and repairs": "surrogate+search+int16+repairs",
}
"""What ``bench.py`` calls them, by their names in the table; the first four choose from the same candidates."""
ONCE = ("greedy", "default sampler, all states and repairs")
"""Run with one seed: the first draws nothing, the last takes longest and chooses from other candidates."""
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
ENVIRONMENTS = {"NNCF": ("nncf==3.4.0", "openvino==2026.4.1", "pillow"), "AIMET": ("aimet-onnx==2.42.0",)}
CONVERTER = ("tf2onnx==1.17.0", "onnx==1.23.2")
"""Makes the ONNX form; beside TensorFlow, which autoselect has."""
MAPPED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MEAN", "AVERAGE_POOL_2D")
"""Op types of which NNCF and AIMET say whether they are in int8, in the order of the graph."""
STAND_IN_REPAIRS: Mapping[str, tuple[str, ...]] = {"NNCF": ("bias",), "AIMET": ()}
"""NNCF corrects biases, AIMET's mixed precision does not."""
TOLD = {
    "a limit on the drop": ("max_drop", "allowed_accuracy_drop"),
    "a seed": ("seed",),
    "what crossings cost": ("target",),
    "held-out samples": ("heldout",),
}
"""What a tool's entry can be told, by the names that its parameters have for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One run of one tool; the command writes the file of ``--output``.

    Attributes:
        seed: None if the tool draws nothing or takes none.
    """

    tool: str
    way: str
    command: Sequence[str]
    seed: int | None = None

    def note(self, folder: Path) -> Path:
        """What is kept of it."""
        words = [self.tool, self.way, *([] if self.seed is None else [str(self.seed)])]
        return folder / ("-".join(words).replace(" ", "_") + ".json")


class Workplace:
    """Environments, ONNX forms and samples, each made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def python(self, name: str) -> str:
        """The Python of a tool's own environment."""
        place = self.folder / f"{name.lower()}-env"
        python = str(place / "bin" / "python")
        if not (place / "made").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
            subprocess.run([python, *PIP, *ENVIRONMENTS[name]], check=True)
            (place / "made").touch()
        return python

    def onnx(self, model: Path) -> Path:
        """The model as ONNX."""
        made, library = self.folder / f"{model.stem}.onnx", self.folder / "tf2onnx"
        if not made.exists():
            subprocess.run([sys.executable, *PIP, "--no-deps", "--target", str(library), *CONVERTER], check=True)
            command = [sys.executable, "-m", "tf2onnx.convert", "--tflite", str(model), "--output", str(made)]
            path = os.pathsep.join([str(library), os.environ.get("PYTHONPATH", "")])
            subprocess.run([*command, "--opset", "17"], check=True, env={**os.environ, "PYTHONPATH": path})
        return made

    def samples(self, case: BenchmarkCase) -> Path:
        """A folder of arrays with all parts."""
        place = self.folder / f"{case.name}-samples"
        if not (place / "calibration.npy").exists():
            place.mkdir(parents=True, exist_ok=True)
            for part, source in (("search", "search"), ("heldout", "unseen")):
                values, labels = zip(*getattr(parts, f"{case.data}_{source}")(), strict=True)
                np.save(place / f"{part}.npy", np.stack(values))
                np.save(place / f"{part}_labels.npy", np.array(labels))
            batches = [sample[0] for sample in getattr(parts, f"{case.data}_calibration")()]
            np.save(place / "calibration.npy", np.concatenate(batches))
        return place

    def ways(self, name: str, options: argparse.Namespace) -> Iterator[Way]:
        """All runs of a case."""
        case = CASES[name]
        assert case.model is not None
        given = ["--model", str(case.model), "--samples", str(self.samples(case))]
        limit = ["--max-drop", str(LIMIT)]
        script = [sys.executable, str(HERE / "litert_recipes.py"), *given]
        for recipe in RECIPES:
            for ranges in RANGES if recipe.startswith("static") else ("average",):
                way = recipe if ranges == "average" else f"{recipe}, whole ranges"
                command = [*script, "--recipe", recipe, "--ranges", ranges]
                yield Way(tool="litert-quantizer", way=way, command=command)
        if "NNCF" not in options.but:
            command = [self.python("NNCF"), str(HERE / "nncf_loop.py"), *given, *limit]
            yield Way(tool="NNCF", way="accuracy-aware loop", command=command)
        if "AIMET" not in options.but:
            given[1] = str(self.onnx(case.model))
            command = [self.python("AIMET"), str(HERE / "aimet_amp.py"), *given, *limit]
            yield Way(tool="AIMET", way="automatic mixed precision", command=command)
        script = [sys.executable, str(HERE / "one_search.py"), "--case", name, "--trials", str(options.trials)]
        for way, sampler in SEARCHES.items():
            for seed in range(1 if way in ONCE else options.seeds):
                command = [*script, "--sampler", sampler, "--seed", str(seed), "--runs", str(self.folder / "searches")]
                yield Way(tool="autoselect", way=way, seed=seed, command=command)


def performed(way: Way, folder: Path) -> dict[str, Any]:
    """Run a way if it has no note yet, and read the note: what it says, and its time with that of its children."""
    note = way.note(folder)
    if not note.exists():
        folder.mkdir(parents=True, exist_ok=True)
        output = note.with_suffix(".new.json")
        begun = time.perf_counter()
        with note.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen([*way.command, "--output", str(output)], stdout=log, stderr=log)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        said = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {}
        if process.returncode:
            lines = note.with_suffix(".log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            said["failed"] = lines[-1] if lines else f"exit code {process.returncode}"
        said |= {"cpu_seconds": usage.ru_utime + usage.ru_stime, "seconds": time.perf_counter() - begun}
        write_json(note, said)
        print(f"{note.stem}: {said['cpu_seconds']:.0f} s of processor time", flush=True)
    return dict(json.loads(note.read_text(encoding="utf-8")))


def stand_in(tool: str, nodes: Sequence[Sequence[str]], in_int8: Sequence[bool]) -> autoselect.Recipe:
    """The candidate that leaves the same nodes in float.

    Args:
        tool: NNCF or AIMET.
        nodes: Op type and name of each node, in the order of the graph.
        in_int8: Whether each node of a mapped type is in int8.
    """
    names = [name for op_type, name in nodes if op_type in MAPPED]
    left_out = frozenset(name for name, is_int8 in zip(names, in_int8, strict=True) if not is_int8)
    return autoselect.Recipe(
        denylisted_nodes=left_out, fallback="float", per_channel=False, repairs=STAND_IN_REPAIRS[tool]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One model that a way gives, by what its costs and answers are known from.

    Attributes:
        recipe: Of autoselect's candidate; of NNCF's and AIMET's model the stand-in, for its costs.
        file: The .tflite file.
        answers: Its own, on the search and the held-out samples.
    """

    way: Way
    pick: str
    said: Mapping[str, Any]
    recipe: autoselect.Recipe | None = None
    file: Path | None = None
    answers: Mapping[str, Sequence[int]] | None = None


def given_by(way: Way, said: Mapping[str, Any], nodes: Sequence[Sequence[str]], folder: Path) -> Iterator[Given]:
    """All models of a way, also one that is not there, with its reason."""
    if "failed" in said:
        yield Given(way=way, pick="", said=said)
    elif "picks" in said:
        for pick, recipe in said["picks"].items():
            yield Given(way=way, pick=pick, said=said, recipe=recipe and autoselect.Recipe.from_json(recipe))
    elif "int8" in said:
        recipe = stand_in(way.tool, nodes, said["int8"])
        yield Given(way=way, pick="", said=said, recipe=recipe, answers=said)
    else:
        yield Given(way=way, pick="", said=said, file=way.note(folder).with_suffix(".new.tflite"))


def row_of(given: Given, judge: Judge, model: Judged | None) -> dict[str, Any]:
    """Costs of a model and what it loses."""
    way, said, count = given.way, given.said, len(judge.search[1])
    row: dict[str, Any] = {"tool": way.tool, "way": way.way, "pick": given.pick, "seed": way.seed}
    row |= {key: said.get(key) for key in ("failed", "gives", "samples_run", "cpu_seconds", "seconds")}
    row["evaluations"] = said.get("samples_run", 0) / count
    row["versions"] = ", ".join(f"{name} {version}" for name, version in said.get("versions", {}).items())
    row |= {name: bool({*names} & {*said.get("parameters", ())}) for name, names in TOLD.items()}
    if model is None:
        return row
    answers = given.answers or {"search": model.search_answers, "heldout": model.answers}
    lost = said["drops"][given.pick] if given.pick else lost_on_search(judge, answers["search"])
    drop = judge.drop(np.asarray(answers["heldout"]))
    row |= {**model.costs, "search_drop": lost, "kept": lost <= LIMIT + 1e-9, "is_stand_in": given.answers is not None}
    row |= {"drop": drop.drop, "drop_low": drop.low, "drop_high": drop.high}
    return row | {"stand_in_drop": judge.drop(model.answers).drop if given.answers else None}


def lost_on_search(judge: Judge, answers: Sequence[int] | np.ndarray) -> float:
    """Share of right answers that a model has fewer than float on the search samples."""
    before, after = (np.asarray(some) == judge.search[1] for some in (judge.float.search_answers, answers))
    return float(before.mean() - after.mean())


def rows_of(name: str, options: argparse.Namespace, work: Workplace) -> Iterator[dict[str, Any]]:
    """A row for each model that a tool gives for a case."""
    case, folder = CASES[name], work.folder / CASES[name].name
    ways = list(work.ways(name, options))
    with ThreadPoolExecutor(options.jobs) as pool:
        ended = list(zip(ways, pool.map(lambda way: performed(way, folder), ways), strict=True))
    nodes = next(said["nodes"] for _, said in ended if "nodes" in said)
    given = [one for way, said in ended for one in given_by(way, said, nodes, folder)]
    judge = Judge(case, folder / "judged")
    recipes = [one.recipe for one in given if one.recipe]
    judged = iter(judge.recipes(recipes))
    for one in given:
        model = next(judged) if one.recipe else None
        if one.file:
            model = judge.file(one.way.note(folder).stem, one.file.read_bytes())
        yield {"model": name, **row_of(one, judge, model)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all ways that are not there yet, judge what they give, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", choices=CASES, default=[], help="Repeat it. All by default.")
    parser.add_argument("--but", action="append", choices=ENVIRONMENTS, default=[], help="Leave a tool out.")
    parser.add_argument("--trials", type=int, default=30, help="Of each search.")
    parser.add_argument("--seeds", type=int, default=3, help="Of the samplers that draw.")
    parser.add_argument("--jobs", type=int, default=1, help="Runs at a time.")
    parser.add_argument("--work", type=Path, default=Path("peers-work"), help="Folder of environments and searches.")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args(arguments)
    work = Workplace(options.work.resolve())
    table = pd.DataFrame([row for name in options.case or CASES for row in rows_of(name, options, work)])
    options.output.mkdir(parents=True, exist_ok=True)
    table.to_csv(options.output / "peers.csv", index=False, lineterminator="\n", float_format="%.6g")
    print(table[["model", "tool", "way", "pick", "seed", "cpu_seconds", "evaluations", "penalty", "drop"]].to_string())


if __name__ == "__main__":
    main()
