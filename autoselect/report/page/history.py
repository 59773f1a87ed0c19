"""How a run went: hypervolume over evaluations, time by stage, what racing saved, how to repeat it, what to mind."""

from __future__ import annotations

import shlex
from typing import Any

from autoselect.cases.declared import declared
from autoselect.cases.events import STAGES
from autoselect.domain.words import amount, counted, listed
from autoselect.report.page.nodes import THRESHOLDS
from autoselect.report.tables.frames import (
    column,
    first_pick,
    front_rows,
    number,
    records,
    reference_rows,
    volume_by_trial,
)
from autoselect.report.tables.layer_tables import ERROR, name_of
from autoselect.runs.run import Run

Row = dict[str, Any]


def hypervolumes(run: Run) -> list[tuple[int, float]]:
    """The hypervolume after each evaluation, as :func:`autoselect.report.tables.frames.volume_by_trial` tells it.

    An evaluation is a candidate that was run, on all samples or on part of them; known ones cost nothing.

    Returns:
        Pairs of evaluations so far and share 0..1, one for each evaluation; none before two candidates are scored.
    """
    volumes = volume_by_trial(run.trials, run.summary)
    evaluations = [str(row.get("reused")) != "True" and row.get("state") != "failed" for row in records(run.trials)]
    return list(enumerate(volumes[evaluations].tolist(), start=1)) if volumes.any() else []


def stages(run: Run) -> list[Row]:
    """Seconds by stage, in order, and as a share of the longest; none for a run that was killed."""
    spent = {str(k): number(v) or 0.0 for k, v in (run.summary.get("seconds") or {}).items()}
    longest = max(spent.values(), default=0.0)
    order = [name for name in STAGES if name in spent] + [name for name in spent if name not in STAGES]
    return [
        {
            "name": STAGES.get(name, name),
            "text": duration(spent[name]),
            "share": spent[name] / longest if longest else 0,
        }
        for name in order
        if spent[name] >= 0.05
    ]


def duration(seconds: float) -> str:
    """``4.2 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def savings(run: Run) -> list[tuple[str, str]]:
    """What was not run: figures with what they count."""
    total = number((run.summary.get("evaluated") or {}).get("search"))
    rows = records(run.trials)
    fresh = [row for row in rows if str(row.get("reused")) != "True"]
    dropped = [row for row in fresh if row.get("state") == "dropped"]
    reused = len(rows) - len(fresh)
    worked = sum(number(row.get("build_seconds")) or 0.0 for row in fresh)
    scoring = sum(number(row.get("score_seconds")) or 0.0 for row in fresh)
    figures = [
        (f"{len(rows):,}", "trials"),
        (f"{sum(row.get('state') == 'complete' for row in fresh):,}", "scored on all samples"),
        (f"{len(dropped):,}", "dropped early by racing"),
        (f"{reused:,}", "known already, not run again"),
    ]
    if total:
        saved = sum(max(total - (number(row.get("samples")) or 0.0), 0.0) for row in dropped)
        share = saved / (total * max(len(fresh), 1))
        figures.append((f"{saved:,.0f}", f"samples saved by racing ({100 * share:.1f} %)"))
    figures.append((duration(worked), "spent building, over all workers"))
    figures.append((duration(scoring), "spent scoring, over all workers"))
    return figures


def facts(run: Run) -> list[tuple[str, str]]:
    """What a repetition needs: names and values."""
    manifest, settings = run.manifest, run.manifest.get("settings") or {}
    pairs = [("started", str(manifest.get("created", ""))), ("seed", str(settings.get("seed", "")))]
    pairs += [(key, str(settings.get(key, ""))) for key in ("sampler", "search_space", "fallback", "io_type")]
    pairs += [(f"{part} samples", f"{count:,}") for part, count in (manifest.get("counts") or {}).items()]
    pairs += [(name, str(value)) for name, value in (manifest.get("versions") or {}).items()]
    pairs += [(f"hash of {name}", str(value)) for name, value in (manifest.get("hashes") or {}).items()]
    return [(name.replace("_", " "), value) for name, value in pairs if value]


def replay(run: Run) -> str:
    """The command that was typed, else the Python call that does the same."""
    if run.manifest.get("command"):
        return str(run.manifest["command"])
    settings = run.manifest.get("settings") or {}
    setup = settings | {key: value for key, value in (run.manifest.get("sources") or {}).items() if key not in settings}
    model = setup.pop("model", None) or "…"
    given = {key: value for key, value in setup.items() if key in declared() and value not in (None, [], ())}
    arguments = ",\n".join(f"    {key}={value!r}" for key, value in given.items())
    return f"autoselect.search(\n    {model!r},\n{arguments},\n)"


def warnings_of(run: Run) -> list[str]:
    """What the search warned of."""
    return [str(message) for message in run.summary.get("warnings") or []]


def advice(run: Run) -> list[str]:
    """What the search noted, and what to do next, each with the figure that it is given from."""
    next_steps = (_unfinished(run), _suspects(run), _noise(run), _infeasible(run))
    return [*map(str, run.manifest.get("notes") or ()), *filter(None, next_steps)]


def _unfinished(run: Run) -> str:
    if run.status != "interrupted":
        return ""
    wanted = (run.manifest.get("settings") or {}).get("trials")
    where = shlex.quote(str(run.directory))
    return (
        f"The search was stopped after {counted(len(run.trials), 'trial')} of {wanted}, before the held-out check. "
        f"Continue it: `autoselect resume {where}`"
    )


def _suspects(run: Run) -> str:
    named = 3
    rows = records(run.layer_statistics)
    limit = THRESHOLDS["suspicious"]
    errors = column(rows, ERROR)
    worst = sorted((i for i in range(len(rows)) if errors[i] > limit), key=lambda i: -errors[i])
    if not worst:
        return ""
    names = [name_of(rows[i]).split(";")[0] for i in worst[:named]]
    names += [f"{len(worst) - named} more"] if len(worst) > named else []
    return (
        f"The Quantization Debugger's guide suspects nodes whose rmse/scale is above {limit:g}; here: "
        f"{listed(names)}. `autoselect diagnose` says why and what helps."
    )


def _noise(run: Run) -> str:
    picked = next((row for row in front_rows(run.front, run.summary) if first_pick(run.picks) in row.picks), None)
    whole = next((row for row in reference_rows(run.summary) if row.label == "float"), None)
    count = number((run.summary.get("evaluated") or {}).get("heldout"))
    if picked is None or whole is None or whole.heldout is None or not count or count >= 500:
        return ""
    if picked.interval is None:
        return ""
    width = amount(picked.interval[2] - picked.interval[1], str(run.summary["metric"]))
    return f"With {count:,.0f} held-out samples the interval of a score is {width} wide; more samples narrow it."


def _infeasible(run: Run) -> str:
    if run.status != "nothing_feasible":
        return ""
    return "No model meets all limits; the front holds those that come closest. Loosen a limit, or give more trials."
