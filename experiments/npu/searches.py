"""What a search finds that knows an NPU's compiler, beside one that knows integers only; writes ``searches.json``.

Each case is searched for both targets in processes of their own, with the same seed, samples and number of trials.
What is recommended, and the whole models, are compiled for the chip, and run on the CPU and on the chip's emulation on
the same held-out samples.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cases

import autoselect
from autoselect.api.run import Run
from autoselect.compilers.emulation import EmulatedRunner
from autoselect.compilers.libraries import find_libraries
from autoselect.compilers.opening import compiler_of
from autoselect.errors import AutoselectError
from autoselect.events import Event, StageStarted
from autoselect.scoring.evaluate import call_evaluator
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.target_file import read_target
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader, wide_kernels
from autoselect.tflite.runner import Runner, Running

CHIP, OTHER = "qualcomm-sm8750", "integer-only"
RESULTS = Path(__file__).resolve().parent / "results"
WHOLE = {"fiq": "all int8", "fiq+repairs": "all int8, repaired", "int16": "all 16-bit"}
SECONDS = 600.0
"""After which the compiler counts as hung."""


# ----------------------------------------------------------------------------------------------- one search


def searched(name: str, target: str, runs: Path, settings: Mapping[str, Any]) -> tuple[Run, float]:
    """One search, and its seconds; a whole folder of an earlier one is used again."""
    folder, case = folder_of(runs, name, target), cases.CASES[name]
    clock = folder.with_suffix(".seconds")
    if clock.exists():
        return autoselect.load_run(folder), float(clock.read_text(encoding="utf-8"))
    for former in (folder, _kept(folder)):
        shutil.rmtree(former, ignore_errors=True)
    model, begun = case.model(runs / "models"), time.perf_counter()

    def keep(event: Event) -> None:
        """The files of whole models are no longer there once the search is over."""
        if isinstance(event, StageStarted) and event.stage == "write":
            _kept(folder).mkdir(parents=True)
            for path in folder.glob(".*/**/candidates/*.tflite"):
                os.link(path, _kept(folder) / path.name)

    run = autoselect.search(
        model,
        target=target,
        early_exit=False,
        seed=0,
        workers=1,
        output=folder,
        listener=keep,
        **{**case.settings, **settings},
    )
    seconds = time.perf_counter() - begun
    trials, wanted = run.trials, _wholes(run).values()
    for path in _kept(folder).glob("*"):
        if path.name[:10] not in {*wanted, *trials[trials["id"].isin(run.front["id"])]["id"]}:
            path.unlink()
    clock.write_text(f"{seconds:.1f}\n", encoding="utf-8")
    return run, seconds


def folder_of(runs: Path, name: str, target: str) -> Path:
    return runs / re.sub(r"[^a-z0-9]+", "_", name.lower()) / target


def _kept(folder: Path) -> Path:
    return folder.parent / f"{folder.name}-files"


def _wholes(run: Run) -> dict[str, str]:
    """Ids of the baselines, by name."""
    trials = run.trials[run.trials["id"].notna() & (run.trials["id"] != "")]
    return {
        name: str(rows["id"].iloc[0]) for name in WHOLE if len(rows := trials[trials["origin"] == f"baseline:{name}"])
    }


def _models(run: Run) -> Iterator[tuple[str, bytes]]:
    """What is compared, by what a table calls it; equal files once."""
    found = {"recommended": run.model_path("recommended").read_bytes()}
    for name, key in _wholes(run).items():
        for path in _kept(run.directory).glob(f"{key}*.tflite"):
            found.setdefault(WHOLE[name], path.read_bytes())
    return ((name, content) for name, content in found.items())


# ------------------------------------------------------------------------------------------------ held out


class HeldOut:
    """Scores models on the first held-out samples of a case."""

    def __init__(self, name: str, model: bytes) -> None:
        case = cases.CASES[name]
        self._evaluator = case.settings.get("evaluator")
        self.count = case.emulated
        if self._evaluator is not None:
            return
        self._metric = make_metric(case.settings["metric"])
        rows = cases.first(case.settings["heldout"], case.emulated)
        pairs = [row if isinstance(row, tuple) else (row, None) for row in rows]
        self._inputs, self._targets = [x[None] for x, _ in pairs], [y for _, y in pairs]
        runner = Runner(model)
        self._float = [runner(x) for x in self._inputs]
        self.count = len(pairs)

    def score(self, runner: Running) -> float:
        """Of one model."""
        if self._evaluator is not None:
            return float(call_evaluator(self._evaluator, runner, split="heldout").rows.mean())
        rows = zip(self._inputs, self._targets, self._float, strict=True)
        return self._metric.summarise([self._metric.observe(runner(x), y, reference) for x, y, reference in rows])


def measured(content: bytes, held: HeldOut) -> dict[str, Any]:
    """What the chip's compiler makes of a model, and what it scores on the CPU and on the emulation."""
    libraries = find_libraries("Qualcomm")
    assert libraries is not None
    row: dict[str, Any] = {"size_bytes": len(content), "ops": len(reader.read_graph(fb.parse(content)).ops)}
    row["cpu"] = held.score(Runner(wide_kernels.quick(content)))
    try:
        made, written = compiler_of(read_target(CHIP)).compiled(content, timeout_seconds=SECONDS)
        left = dict(made.host_ops)
        row |= {"partitions": made.segments, "left_ops": sum(left.values()), "left": left, "ddr_bytes": made.ddr_bytes}
        row["emulated"] = held.score(EmulatedRunner(written, libraries=libraries.folder))
    except AutoselectError as exc:
        row["failed"] = f"{type(exc).__name__}: {exc}"[:300]
    return row


def found_of(name: str, target: str, runs: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All that is kept of a search."""
    run, seconds = searched(name, target, runs, settings)
    summary = run.summary
    found = {
        "case": name,
        "target": target,
        "metric": summary["metric"],
        "allowed_drop": summary["allowed_drop"],
        "trials": len(run.trials),
        "seconds": round(seconds),
        "front": len(run.front),
        "certified": summary["recommended"]["certified"],
        "verdict": summary["verdict"],
        "warnings": summary["warnings"],
    }
    if target == CHIP:
        found["whole"] = _whole_on_chip(run)
        found["versions"] = summary["compiler"].get("versions")
    content = cases.CASES[name].model(runs / "models").read_bytes()
    held, known = HeldOut(name, content), dict[bytes, dict[str, Any]]()
    found["samples"] = held.count
    found["models"] = rows = []
    models = [*_models(run), *([("float", content)] if target == CHIP else [])]
    for label, file in models:
        begun = time.perf_counter()
        if file not in known:
            known[file] = measured(file, held)
        rows.append({"model": label, **known[file]})
        print(f"{name}, {target}, {label}: {rows[-1]}, {time.perf_counter() - begun:.0f} s", flush=True)
    return found


def _whole_on_chip(run: Run) -> dict[str, Any]:
    """How many scored candidates the chip runs as one partition with nothing left, and how many keep the limit.

    What they lose at most is known of members of the front only.
    """
    allowed, trials = run.summary["allowed_drop"], run.trials.drop_duplicates("id")
    whole = trials[(trials["partitions"] == 1) & (trials["left_ops"] == 0)]
    fronts_whole = run.front[run.front["id"].isin(whole["id"])]
    return {
        "candidates": int(trials["drop"].notna().sum()),
        "whole": int(whole["drop"].notna().sum()),
        "whole_within": int((whole["drop"] <= allowed).sum()),
        "whole_within_for_sure": int((fronts_whole["drop_bound"] <= allowed).sum()),
        "recommended_is_whole": run.picks["recommended"] in set(whole["id"]),
    }


# ------------------------------------------------------------------------------------------------ the table


def table_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """As Markdown."""
    head = ["case", "searched for", "model", "partitions", "ops left", "bytes moved", "CPU", "emulated", "held out"]
    head += ["bytes", "trials", "seconds"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        for model in row["models"]:
            scores = [f"{model[key]:.4g}" if key in model else "failed" for key in ("cpu", "emulated")]
            cut = [f"{model[key]:,}" if key in model else "" for key in ("partitions", "left_ops", "ddr_bytes")]
            ours = model["model"] == "recommended"
            spent = [str(row["trials"]), str(row["seconds"])] if ours else ["", ""]
            asked = row["target"] if model["model"] != "float" else ""
            sizes = [str(row["samples"]), f"{model['size_bytes']:,}"]
            lines.append([row["case"], asked, model["model"], *cut, *scores, *sizes, *spent])
    whole = [
        [
            "case",
            "scored",
            "one partition, nothing left",
            "of these within the limit",
            "on the front for sure",
            "recommended",
        ]
    ]
    whole += [["---"] * len(whole[0])]
    for row in rows:
        if (said := row.get("whole")) is not None:
            counts = [str(said[key]) for key in ("candidates", "whole", "whole_within", "whole_within_for_sure")]
            whole.append([row["case"], *counts, "is one" if said["recommended_is_whole"] else "is not"])
    return "\n\n".join("\n".join(f"| {' | '.join(line)} |" for line in part) for part in (lines, whole)) + "\n"


def write(found: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """Both files; one search a line."""
    keys = [f"{name} | {target}" for name in cases.CASES for target in (CHIP, OTHER)]
    rows = {key: found[key] for key in keys if key in found}
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in rows.items())
    (folder / "searches.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    (folder / "searches.md").write_text(table_of(list(rows.values())), encoding="utf-8")


def known(folder: Path) -> dict[str, Any]:
    """What earlier searches found."""
    path = folder / "searches.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def main(arguments: Sequence[str] | None = None) -> None:
    """Search the chosen cases, each for each target in a process of its own; rows of others stay."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=cases.CASES, metavar="CASE", default=list(cases.CASES))
    parser.add_argument("--target", choices=(CHIP, OTHER), help="Both by default.")
    parser.add_argument("--runs", type=Path, default=Path("npu-runs"), help="Folder of the runs; whole ones are used.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="Write the table of what was found, and nothing else.")
    parser.add_argument("--trials", type=int, help="Of each search, in place of what its case says.")
    parser.add_argument("--here", action="store_true", help="In this process.")
    options = parser.parse_args(arguments)
    targets = (options.target,) if options.target else (CHIP, OTHER)
    chosen = [] if options.table else [(name, target) for name in options.only for target in targets]
    failed = False
    for name, target in chosen:
        if options.here:
            row = found_of(name, target, options.runs, {"trials": options.trials} if options.trials else {})
            write({**known(options.output), f"{name} | {target}": row}, options.output)
            continue
        command = [sys.executable, __file__, "--only", name, "--target", target, "--here"]
        command += ["--runs", str(options.runs), "--output", str(options.output)]
        command += ["--trials", str(options.trials)] if options.trials else []
        path = os.pathsep.join([*map(str, cases.FOLDERS), os.environ.get("PYTHONPATH", "")])
        code = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode
        if code:
            print(f"{name}, {target}: exit code {code}", flush=True)
        failed = failed or bool(code)
    write(known(options.output), options.output)
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
