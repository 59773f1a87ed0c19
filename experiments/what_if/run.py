"""Asks three runs about random candidates, then builds and scores these: are answers exact, and are guesses honest?"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "real_models"), str(HERE.parent / "streaming_denoiser")]
import denoiser  # noqa: E402 - found by the path above
import loaders  # noqa: E402

import autoselect  # noqa: E402
from autoselect import embedded  # noqa: E402
from autoselect.runs.files import write_text  # noqa: E402

RESULTS = HERE / "results"
CASES: Mapping[str, Mapping[str, Any]] = {
    "pump monitor (demo)": {
        "model": embedded.model_path(),
        "calibration": "autoselect.embedded:calibration",
        "evaluation": "autoselect.embedded:search_samples",
        "heldout": "autoselect.embedded:heldout_samples",
    },
    "MobileNetV1-0.25": {
        "model": loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite",
        "calibration": "loaders:imagenet_calibration",
        "evaluation": "loaders:imagenet_search",
        "heldout": "loaders:imagenet_heldout",
    },
    "streaming denoiser": {
        "model": denoiser.MODEL,
        "calibration": "denoiser:calibration",
        "evaluator": "denoiser:si_snr_gain",
    },
}
STATES = ("deny", "in_float", "int16", "int8")
SMALL = 8
"""Most changes are of so few nodes: a person moves some, and looks."""


def searched(name: str, folder: Path, seed: int) -> autoselect.Run:
    """The run of a case; a folder of an earlier one is used where it is whole."""
    path = folder / f"{name.replace(' ', '_')}-{seed}"
    if not (path / "summary.json").exists():
        shutil.rmtree(path, ignore_errors=True)
        autoselect.search(**CASES[name], trials=60, seed=seed, workers=2, output=path, early_exit=False, progress=False)
    return autoselect.load_run(path)


def questions(run: autoselect.Run, count: int, rng: np.random.Generator) -> Iterator[tuple[Any, float]]:
    """Answers to random questions, with the processor time of each in seconds.

    Parts of a random model get random states, with repairs that the run tried. Three in four are of few parts, the
    others of any number. In turns, parts are units, which a search moves together, and single nodes.
    """
    nodes = [[name] for name in run.what_if("int8").nodes]
    table = pd.read_csv(run.directory / "sensitivity.csv")
    units = [rows["tensor_name"].tolist() for _, rows in table.groupby("unit")]
    starts = ["int8", "int16", "float", *run.front["id"]]
    wide = {name for name, kind in run.what_if("int16").nodes.items() if kind == "int16"}
    repairs = [run.what_if(str(id_)).recipe.repairs for id_ in run.front["id"]]
    for number in range(count):
        parts = nodes if number % 2 else units
        most = len(parts) if number // 2 % 4 == 0 else SMALL
        chosen = [parts[i] for i in rng.permutation(len(parts))[: rng.integers(1, most + 1)]]
        changes: dict[str, list[str]] = {state: [] for state in STATES}
        for part, state in zip(chosen, rng.choice(STATES, len(chosen)).tolist(), strict=True):
            changes[state] += part if state != "int16" or wide.issuperset(part) else []
        own = repairs[int(rng.integers(len(repairs)))]
        start, begun = str(rng.choice(starts)), time.process_time()  # Other processes may be at work.
        found = run.what_if(start, **changes, repairs=own)
        yield found, time.process_time() - begun


def compared(found: Any) -> dict[str, Any]:
    """An answer beside the file that is built of it."""
    begun = time.perf_counter()
    content = found.build()
    told = autoselect.inspect(content, target=found.target)
    counts = {kind: count for kind, count in found.kinds.items() if kind != "folded"}
    return {
        "size": len(content) == found.size_bytes,
        "segments": told.fragmentation["segments"] == found.segments,
        "penalty": abs(told.fragmentation["penalty"] - found.penalty) < 1e-9,
        "kinds": told.ops_by_kind.get("float", 0) + told.ops_by_kind.get("hybrid", 0) == found.float_ops
        and told.ops_by_kind.get("hybrid", 0) == counts.get("hybrid", 0),
        "build_seconds": time.perf_counter() - begun,
    }


def guessed(found: Any) -> dict[str, Any]:
    """A guess beside the score."""
    scored = found.score()
    width = found.drop_high - found.drop_low
    return {
        "drop": found.drop,
        "low": found.drop_low,
        "high": found.drop_high,
        "scored": scored.drop,
        "inside": found.drop_low <= scored.drop <= found.drop_high,
        "above": scored.drop > found.drop_high,
        "width": width,
        "chance_within": found.chance_within,
        "kept": scored.drop <= found.allowed_drop,
        "limit": found.allowed_drop,
    }


def measured(name: str, folder: Path, seed: int, count: int, scores: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both tables of a case: forecasts, and guesses of candidates that the run did not score.

    Half as many candidates as of whole units are scored that part units.
    """
    run, rng = searched(name, folder, seed), np.random.default_rng(seed)
    exact, honest, left = [], [], {False: scores, True: scores // 2}
    begun = time.perf_counter()
    run.what_if()
    first = time.perf_counter() - begun
    for found, seconds in questions(run, count, rng):
        exact.append({"case": name, "answer_seconds": seconds, "first": first, **compared(found)})
        is_guess = found.trial is None and found.drop is not None and found.drop_low < found.drop_high
        if is_guess and left[found.approximate]:
            left[found.approximate] -= 1
            honest.append({"case": name, "seed": seed, "parts_units": found.approximate, **guessed(found)})
    return pd.DataFrame(exact), pd.DataFrame(honest)


def table_of(exact: pd.DataFrame, honest: pd.DataFrame) -> str:
    """Both as Markdown."""
    lines = [
        "| case | asked | exact size | kinds | segments | penalty | first answer, s "
        "| answer, ms of processor time (median, 95 %) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, rows in exact.groupby("case", sort=False):
        right = " | ".join(str(int(rows[column].sum())) for column in ("size", "kinds", "segments", "penalty"))
        median, most = (1000 * rows["answer_seconds"].quantile(share) for share in (0.5, 0.95))
        first = rows["first"].median()
        lines.append(f"| {name} | {len(rows)} | {right} | {first:.1f} | {median:.0f}, {most:.0f} |")
    lines += [
        "",
        "| case | moved | scored | inside the interval | above it | median width, limits | median miss, limits "
        "| kept the limit: expected, found |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for parts, moved in ((False, "units"), (True, "single nodes")):
        some = honest[honest["parts_units"] == parts]
        if some.empty:
            continue
        for name, rows in [*some.groupby("case", sort=False), ("all", some)]:
            limit = rows["limit"]
            miss = ((rows["scored"] - rows["drop"]).abs() / limit).median()
            lines.append(
                f"| {name} | {moved} | {len(rows)} | {100 * rows['inside'].mean():.1f} % | "
                f"{100 * rows['above'].mean():.1f} % | {(rows['width'] / limit).median():.2f} | {miss:.2f} | "
                f"{100 * rows['chance_within'].mean():.0f} %, {100 * rows['kept'].mean():.0f} % |"
            )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all cases and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", choices=[*CASES], default=[], help="Repeat it. All by default.")
    parser.add_argument("--seed", type=int, action="append", default=[], help="Repeat it: one search each. Default: 0.")
    parser.add_argument("--count", type=int, default=200, help="Questions for each search.")
    parser.add_argument("--scores", type=int, default=60, help="How many of these candidates are scored.")
    parser.add_argument("--runs", type=Path, default=Path("what-if-runs"), help="Run folders; whole ones are used.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    cases, seeds = options.case or [*CASES], options.seed or [0]
    with autoselect.keep_workers(1):
        found = [measured(name, options.runs, seed, options.count, options.scores) for name in cases for seed in seeds]
    exact, honest = (pd.concat(tables) for tables in zip(*found, strict=True))
    versions = searched(cases[0], options.runs, seeds[0]).manifest["versions"]
    told = ", ".join(f"{key} {value}" for key, value in versions.items())
    table = f"{table_of(exact, honest)}\nSeeds {', '.join(map(str, seeds))}; {told}.\n"
    print(table)
    options.results.mkdir(parents=True, exist_ok=True)
    write_text(options.results / "table.md", table)
    honest.round(6).to_csv(options.results / "guesses.csv", index=False)
    if not exact[["size", "kinds", "segments", "penalty"]].all(axis=None):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
