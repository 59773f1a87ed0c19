"""From finished runs and sweeps to the table and the curves; runs no model."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bench import FINISHED
from cases import OBJECTIVES, BenchmarkCase, Reference, all_cases, scaled_losses
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.optimize import isotonic_regression

from autoselect.domain.pareto import hypervolume, non_dominated
from autoselect.runs.run import Run, load_run

MARKS = (20, 40, 60, 100)
INFORMED = 60
"""Candidates that :func:`informed_share` may choose."""
FIRST_BUILDER = "1"
"""Of runs that do not name theirs."""
UNIT = np.ones(len(OBJECTIVES))
_ROUNDING = 1e-9

# Okabe and Ito's colours, which readers with any common colour vision tell apart; dashes tell them apart without.
_STYLES = {
    "surrogate": ("#D55E00", "-"),
    "random": ("#8C8C8C", "-"),
    "tpe": ("#0072B2", "-"),
    "nsga2": ("#56B4E9", "--"),
    "prefix": ("#009E73", "-"),
    "greedy": ("#E69F00", "--"),
    "heuristic": ("#CC79A7", ":"),
    "exhaustive": ("#000000", ":"),
}
_OTHER = ("#000000", "-.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """One run: share of the case's hypervolume at each whole number of evaluations from 1 on.

    Attributes:
        volumes: Shape (n_marks,); carried on after the run's end.
        spent: Full evaluations that the run cost in all.
        builder: Version of what made the candidates' bytes.
    """

    sampler: str
    seed: int
    builder: str
    volumes: np.ndarray
    spent: float


def finished_runs(root: Path, case: str) -> list[tuple[dict[str, Any], Run]]:
    """Every finished run of a case, with what ``bench.py`` noted of it."""
    notes = sorted(root.glob(f"{case}/*/seed_*/{FINISHED}"))
    return [(json.loads(note.read_text(encoding="utf-8")), load_run(note.parent)) for note in notes]


def complete(trials: pd.DataFrame) -> pd.DataFrame:
    """The trials that were scored on all samples."""
    return trials[trials["state"] == "complete"]


def costs(trials: pd.DataFrame, search_samples: int) -> np.ndarray:
    """What each trial cost in full evaluations: samples run over samples of the search part, nothing if reused."""
    share = trials["samples"].astype(float).div(search_samples).fillna(0.0)
    return share.where(~trials["reused"].eq(True), 0.0).to_numpy()


def curve_of(run: Run, note: Mapping[str, Any], reference: Reference, whole: float) -> Curve:
    """Hypervolume of a run's trials, in the order of their numbers, as a share of ``whole``.

    What a sampler ran before the first trial, to see what each unit does alone, counts as spent.
    """
    search_samples = note["search_samples"]
    trials = run.trials.sort_values("number").reset_index(drop=True)
    spent = note["probe_samples"] / search_samples + np.cumsum(costs(trials, search_samples))
    losses = np.full((len(trials), len(OBJECTIVES)), np.inf)
    done = (trials["state"] == "complete").to_numpy()
    losses[done] = scaled_losses(trials[done], reference)
    grid = np.arange(1, MARKS[-1] + 1)
    volumes = np.zeros(len(grid))
    front, volume = np.empty((0, len(OBJECTIVES))), 0.0
    place = 0
    for i, limit in enumerate(grid):
        until = int(np.searchsorted(spent, limit + _ROUNDING, side="right"))
        new = losses[place:until]
        new = new[np.all(new < UNIT, axis=1)]
        if len(new):
            front = np.vstack([front, new])
            front = front[non_dominated(front)]
            volume = hypervolume(front, UNIT)
        place, volumes[i] = until, volume
    return Curve(
        sampler=note["sampler"],
        seed=note["seed"],
        builder=note["versions"].get("builder", FIRST_BUILDER),
        volumes=volumes / whole,
        spent=float(spent[-1]),
    )


def reference_front(tables: Iterable[pd.DataFrame], reference: Reference) -> tuple[np.ndarray, int]:
    """The front of all candidates ever built, in units of the reference point; and how many there are."""
    together = pd.concat(list(tables)).drop_duplicates("sha256")
    losses = np.unique(scaled_losses(together, reference), axis=0)
    losses = losses[np.all(losses < UNIT, axis=1)]
    return losses[non_dominated(losses)], len(together)


def informed_share(tables: Iterable[pd.DataFrame], reference: Reference, whole: float, budget: int) -> float:
    """What a search could reach that knew how far each candidate's outputs are from float's before it scores any.

    The metric's loss is fitted as a rising function of the SQNR on all candidates; those are chosen one by one whose
    fitted losses add most to the hypervolume. What is left to 1 is what the metric's own chance decides: no model of
    the outputs sees it coming.

    Returns:
        Share of ``whole`` that the chosen candidates' true losses dominate; NaN where no SQNR is known.
    """
    rows = pd.concat(list(tables)).drop_duplicates("sha256").dropna(subset=["sqnr_db"])
    if rows.empty:
        return float("nan")
    rows = rows.sort_values("sqnr_db", ascending=False)
    true = scaled_losses(rows, reference)
    expected = true.copy()
    expected[:, 0] = isotonic_regression(true[:, 0]).x
    pool = np.flatnonzero(np.all(expected < UNIT, axis=1))
    pool = pool[non_dominated(expected[pool])]
    chosen: list[int] = []
    for _ in range(min(budget, len(pool))):
        grown = [hypervolume(expected[[*chosen, i]], UNIT) for i in pool]
        chosen.append(int(pool[int(np.argmax(grown))]))
    reached = true[chosen]
    reached = reached[np.all(reached < UNIT, axis=1)]
    return hypervolume(reached[non_dominated(reached)], UNIT) / whole if len(reached) else 0.0


def case_curves(
    case: BenchmarkCase, runs: Path, sweeps: Path, earlier: Path | None = None
) -> tuple[list[Curve], dict[str, object]]:
    """All curves of a case, and what its reference front is, for which candidates of earlier runs count as well.

    Raises:
        SystemExit: If the case has no reference point, or its runs are of other data.
    """
    if case.reference is None:
        raise SystemExit(f"{case.name} has no reference point: add what `sweep.py references` prints to cases.py.")
    found = finished_runs(runs, case.name)
    for note, _ in found:
        if note["search_samples"] != case.samples:
            raise SystemExit(f"{case.name} {note['sampler']} {note['seed']} was scored on other samples: run it again.")
    plain = [run for note, run in found if "+" not in note["sampler"]]
    if earlier is not None:
        plain += [run for note, run in finished_runs(earlier, case.name) if "+" not in note["sampler"]]
    columns = ["sha256", *OBJECTIVES, "sqnr_db"]
    tables = [complete(run.trials)[columns] for run in plain]
    swept = sweeps / f"sweep_{case.name}.csv"
    if swept.exists():
        tables.append(pd.read_csv(swept)[columns])
    front, candidates = reference_front(tables, case.reference)
    whole = hypervolume(front, UNIT)
    curves = [curve_of(run, note, case.reference, whole) for note, run in found]
    own = reference_front(tables[-1:], case.reference)[0] if swept.exists() else np.empty((0, len(OBJECTIVES)))
    figures: dict[str, object] = {"case": case.name, "candidates": candidates, "front": len(front)}
    figures |= {"hypervolume": round(whole, 5), "sweep_share": round(hypervolume(own, UNIT) / whole, 4)}
    return curves, figures | {"informed_share": round(informed_share(tables, case.reference, whole, INFORMED), 4)}


def summary_rows(case: str, curves: Sequence[Curve], whole: float) -> list[dict[str, object]]:
    """A row for each sampler and mark: median and range over seeds."""
    rows = []
    for sampler in sorted({c.sampler for c in curves}, key=_place):
        own = [c for c in curves if c.sampler == sampler]
        for mark in MARKS:
            shares = np.array([c.volumes[mark - 1] for c in own])
            row: dict[str, object] = {"case": case, "sampler": sampler, "evaluations": mark, "seeds": len(own)}
            figures = {"median": np.median(shares), "low": shares.min(), "high": shares.max()}
            row |= {f"share_{name}": round(float(value), 4) for name, value in figures.items()}
            row |= {f"hypervolume_{name}": round(float(value) * whole, 5) for name, value in figures.items()}
            row["spent_median"] = round(float(np.median([c.spent for c in own])), 1)
            row["builder"] = "/".join(sorted({c.builder for c in own}))
            rows.append(row)
    return rows


def replaced(runs: Path, results: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows and reference fronts of earlier results, and new rows for the cases and samplers that have new runs.

    New rows take the place of those of the same builder; those of other builders stay beside them. The volumes of the
    reference fronts stay as they are: the candidates that they are of need not be at hand.
    """
    before = pd.read_csv(results / "hypervolume.csv", dtype={"builder": str})
    if "builder" not in before:
        before["builder"] = FIRST_BUILDER
    figures = pd.read_csv(results / "reference_fronts.csv").to_dict("records")
    rows: list[dict[str, Any]] = []
    for about in figures:
        case, whole = all_cases({})[about["case"]], about["hypervolume"]
        if case.reference is None:
            raise SystemExit(f"{case.name} has results, but no reference point in cases.py: add the one they are of.")
        curves = [curve_of(run, note, case.reference, whole) for note, run in finished_runs(runs, case.name)]
        new = summary_rows(case.name, curves, whole)
        measured = {(row["sampler"], row["builder"]) for row in new}
        kept = before[before["case"] == case.name].to_dict("records")
        own = [*(row for row in kept if (row["sampler"], row["builder"]) not in measured), *new]
        rows += sorted(own, key=lambda row: (_place(row["sampler"]), row["builder"], row["evaluations"]))
    return rows, figures


def _place(sampler: str) -> tuple[int, str]:
    names = list(_STYLES)
    return (names.index(sampler) if sampler in names else len(names), sampler)


def markdown(rows: Sequence[dict[str, object]], figures: Sequence[dict[str, object]]) -> str:
    """The tables of the README: one a case, a row a sampler."""
    lines = []
    for case in figures:
        share = float(str(case["sweep_share"]))
        swept = f"the sweep alone reaches {100 * share:.1f} %" if share else "not swept"
        lines += [
            f"**{case['case']}**: reference front of {case['front']} out of {case['candidates']} candidates, "
            f"hypervolume {case['hypervolume']:.4f}; {swept}; "
            f"{INFORMED} candidates chosen by their SQNR reach {100 * float(str(case['informed_share'])):.1f} %",
            "",
            "| sampler | builder | seeds | " + " | ".join(f"at {mark}, %" for mark in MARKS) + " | evaluations spent |",
            "|---" * (len(MARKS) + 4) + "|",
        ]
        own = [r for r in rows if r["case"] == case["case"]]
        for sampler, builder in dict.fromkeys((r["sampler"], r["builder"]) for r in own):
            marks = [r for r in own if (r["sampler"], r["builder"]) == (sampler, builder)]
            last = marks[-1]
            cells = [sampler, builder, last["seeds"], *map(_cell, marks), last["spent_median"]]
            lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
        lines.append("")
    return "\n".join(lines)


def _cell(row: dict[str, object]) -> str:
    median, low, high = (100 * float(str(row[f"share_{name}"])) for name in ("median", "low", "high"))
    return f"{median:.1f} ({low:.1f} to {high:.1f})"


def draw(case: str, curves: Sequence[Curve], path: Path) -> None:
    """Median over seeds as a line, the range as a band, a dot where the runs end; the legend in the lines' order."""
    figure = Figure(figsize=(9.0, 5.5), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    x = np.arange(1, MARKS[-1] + 1)
    stacks = {s: np.array([c.volumes for c in curves if c.sampler == s]) for s in {c.sampler for c in curves}}
    for sampler in sorted(stacks, key=lambda s: -float(np.median(stacks[s][:, -1]))):
        colour, dashes = _STYLES.get(sampler, _OTHER)
        shares = 100 * stacks[sampler]
        axes.fill_between(x, shares.min(axis=0), shares.max(axis=0), color=colour, alpha=0.13, linewidth=0, step="post")
        axes.step(
            x, np.median(shares, axis=0), where="post", color=colour, linestyle=dashes, linewidth=2, label=sampler
        )
        end = min(float(np.median([c.spent for c in curves if c.sampler == sampler])), MARKS[-1])
        axes.plot(
            end, float(np.median(shares, axis=0)[max(int(np.ceil(end)), 1) - 1]), "o", color=colour, clip_on=False
        )
    axes.set_xlim(0, MARKS[-1])
    highest = 100 * max(float(s.max()) for s in stacks.values())
    axes.set_ylim(
        bottom=0 if min(s[:, 9:].min() for s in stacks.values()) < 0.3 else None, top=max(101, 1.02 * highest)
    )
    axes.set_xticks([0, *MARKS])
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("full evaluations (samples run / samples of the search part)")
    axes.set_ylabel("hypervolume, % of the reference front's")
    seeds = len({c.seed for c in curves})
    axes.set_title(f"{case}: median and range of {seeds} seeds; dot: median end of the runs", loc="left")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.savefig(path)


def _measured(options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows and reference fronts of all finished runs; draws a picture for each case."""
    if options.sweeps is None:
        raise SystemExit("--sweeps names the folder of the sweeps, which count for the reference fronts.")
    rows: list[dict[str, Any]] = []
    figures: list[dict[str, Any]] = []
    for case in all_cases({}).values():
        if not finished_runs(options.runs, case.name) or (options.case and case.name not in options.case):
            continue
        curves, about = case_curves(case, options.runs, options.sweeps, options.earlier)
        figures.append(about)
        rows += summary_rows(case.name, curves, float(str(about["hypervolume"])))
        draw(case.name, curves, options.output / f"{case.name}.png")
    return rows, figures


def main(arguments: Sequence[str] | None = None) -> None:
    """Write hypervolume.csv, reference_fronts.csv, tables.md and a picture for each case with finished runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True, help="--output of bench.py.")
    parser.add_argument("--sweeps", type=Path, help="--output of sweep.py; not needed with --replace.")
    parser.add_argument("--earlier", type=Path, help="Runs of other versions: their candidates are known, no more.")
    parser.add_argument("--case", action="append", default=[], help="A case; repeat it. All with runs by default.")
    parser.add_argument("--replace", action="store_true", help="Keep the other rows in --output; draw nothing.")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent / "results")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    rows, figures = replaced(options.runs, options.output) if options.replace else _measured(options)
    if not figures:
        raise SystemExit(f"{options.runs} holds no finished run of these cases.")
    pd.DataFrame(rows).to_csv(options.output / "hypervolume.csv", index=False)
    pd.DataFrame(figures).to_csv(options.output / "reference_fronts.csv", index=False)
    text = markdown(rows, figures)
    (options.output / "tables.md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
