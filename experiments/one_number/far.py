"""How far from float's the outputs of candidates are that keep the default limit: on all open cases."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

HERE = Path(__file__).resolve().parent
OTHERS = ("evidence", "search_benchmark", "streaming_denoiser")
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in OTHERS)]
import cases  # noqa: E402 - experiments are found by the path above
import denoiser  # noqa: E402
import rows  # noqa: E402

import autoselect  # noqa: E402
from autoselect.domain.picks import default_drop  # noqa: E402
from autoselect.domain.rule import Rule  # noqa: E402
from autoselect.runs.files import write_text  # noqa: E402

RESULTS = HERE / "results"
CANDIDATES = RESULTS / "candidates.csv"
ENDS = (-300, 10, 15, 20, 25, 30, 35, 40, 300)
"""Of the table's columns, dB."""
TIMES = (0.5, 1, 2, 5, 10, 20)
"""Limits, in percent of float's score."""
TRIALS = 40
OF_EVIDENCE = {"pump": "pump, accuracy", "mobilenet": "MobileNetV1, agreement", "keywords": "DS-CNN, agreement"}
"""Their candidates' answers on all samples are kept, by :mod:`rows`."""
SEARCHED = {"mobilenet_pt": "MobileNetV1 per tensor, agreement", "fsrcnn": "FSRCNN, PSNR"}
DENOISER, FACES = "streaming denoiser, SI-SNR gain", "face detector, COCO mAP"


def of_evidence(name: str) -> pd.DataFrame:
    """Candidates of a case of the experiment on evidence: closeness and drop on thousands of samples."""
    kept = rows.read(name)
    base = float(kept.float_hits.mean())
    return pd.DataFrame(
        {
            "case": OF_EVIDENCE[name],
            "sqnr_db": kept.decibels.mean(axis=1),
            "drop": base - kept.hits.mean(axis=1),
            "allowed": default_drop(rows.CASES[name].metric, base),
        }
    )


def of_search(title: str, run: autoselect.Run) -> pd.DataFrame:
    """Candidates of a search: closeness and drop on its search samples."""
    metric = run.manifest["metric"]["name"]
    scored = run.trials[run.trials["state"] == "complete"].drop_duplicates("sha256")
    allowed = default_drop(metric, run.summary["references"]["float"][metric])
    return pd.DataFrame({"case": title, "sqnr_db": scored["sqnr_db"], "drop": scored["drop"], "allowed": allowed})


def of_segmentation(runs: Path) -> pd.DataFrame:
    """Members of the fronts of run.py, by the mean of what they lose on the held-out images of the draws."""
    found = []
    for folder in sorted(runs.glob("one-number-[0-9]")):
        run = autoselect.load_run(folder)
        base = run.summary["references"]["float"]["heldout"]
        found.append(run.front[["sha256", "sqnr_db", "heldout_drop"]].assign(allowed=default_drop("", base)))
    means = pd.concat(found).groupby("sha256").mean()
    return means.rename(columns={"heldout_drop": "drop"}).assign(case="segmentation per tensor, mean IoU")


def searched(runs: Path) -> Iterator[pd.DataFrame]:
    """Searches of the cases whose candidates nobody kept."""
    common: dict[str, Any] = {"trials": TRIALS, "racing": False, "early_exit": False, "workers": 1}
    for name, title in SEARCHED.items():
        (case,) = cases.chosen_cases([name], [])
        given = {**case.sources, **case.options, "metric": case.metric}
        yield of_search(title, _run(runs / name, case.model, **given, **common))
    given = {"calibration": "denoiser:few_calibration", "evaluator": "denoiser:mean_si_snr_gain"}
    yield of_search(DENOISER, _run(runs / "denoiser", denoiser.MODEL, **given, **common))
    sys.path.insert(0, str(HERE.parent / "parts"))
    sys.modules.pop("run", None)
    import run as detecting

    with detecting.within(runs):
        if not Path("heldout.npz").exists():
            detecting.write_faces(detecting.guide("detector", "detector"))
        given = detecting.CASES["faces, COCO mAP"]
        yield of_search(FACES, _run(Path("faces"), **given, **common))


def _run(folder: Path, model: Any, **given: Any) -> autoselect.Run:
    """A search; a whole run is used again."""
    if (folder / "summary.json").exists():
        return autoselect.load_run(folder)
    return autoselect.search(model, **given, output=folder)


def table_of(candidates: pd.DataFrame) -> str:
    """By case: how many candidates of each closeness keep the limit, and how far from float the farthest one is."""
    heads = [f"{low} to {high}" for low, high in pairwise(ENDS[1:-1])]
    heads = [f"below {ENDS[1]}", *heads, f"{ENDS[-2]} or more"]
    lines = [f"| case | {' | '.join(f'{head} dB' for head in heads)} | the farthest that keeps it |"]
    lines.append("|---" * (len(heads) + 2) + "|")
    for title, some in [*candidates.groupby("case", sort=False), ("all", candidates)]:
        kept, near = some["drop"] <= some["allowed"], some["sqnr_db"]
        cells = []
        for low, high in pairwise(ENDS):
            inside = (near >= low) & (near < high)
            cells.append(f"{(kept & inside).sum()} of {inside.sum()}" if inside.any() else "")
        farthest = f"{near[kept].min():.1f} dB" if kept.any() else "none does"
        lines.append(f"| {title} | {' | '.join(cells)} | {farthest} |")
    return "\n".join(lines) + "\n"


def scaled(candidates: pd.DataFrame) -> str:
    """By limit, in multiples of the usual one: what far is, and how many candidates that are as far keep the limit."""
    lines = ["| limit, % of float's score | far is below | candidates as far | of these keep it |", "|---" * 4 + "|"]
    for times in TIMES:
        rule = Rule(allowed_drop=times, usual_drop=1.0, float_penalty=1.0, float_size_bytes=1.0)
        far = candidates[candidates["sqnr_db"] < rule.far_db]
        kept = (far["drop"] <= times * far["allowed"]).sum()
        lines.append(f"| {times:g} | {rule.far_db:.1f} dB | {len(far)} | {kept} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Collect candidates, and write their figures and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, help="Where searches are kept; by default nowhere.")
    parser.add_argument("--segmentation", type=Path, default=Path("one-number-runs"), help="The runs of run.py.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--again", action="store_true", help="The table of candidates.csv alone.")
    options = parser.parse_args(arguments)
    if not options.again:
        with contextlib.ExitStack() as stack:
            runs = options.runs or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            runs.mkdir(parents=True, exist_ok=True)
            found = [*map(of_evidence, OF_EVIDENCE), *searched(runs.resolve())]
            found.append(of_segmentation(options.segmentation))
        columns = ["case", "sqnr_db", "drop", "allowed"]
        pd.concat(found)[columns].round(6).to_csv(options.results / CANDIDATES.name, index=False)
    candidates = pd.read_csv(options.results / CANDIDATES.name)
    told = f"{table_of(candidates)}\n{scaled(candidates)}"
    write_text(options.results / "far.md", told)
    print(told)


if __name__ == "__main__":
    main()
