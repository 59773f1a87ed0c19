"""What optuna-dashboard shows of a run beside the trials: notes and artifacts; knows its format, not the package.

Both are attributes of the study, so a run can be looked at with the package where it was made without. The keys are
those of optuna-dashboard 0.21: https://github.com/optuna/optuna-dashboard
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoselect.domain.recipe import Recipe
from autoselect.runs.files import storage_errors, write_bytes, write_text
from autoselect.runs.records import TrialRecord

_ARTIFACTS, _NOTHING = "dashboard:artifacts:", "null"


def note_attributes(trial_id: int | None, body: str, *, version: int = 1) -> dict[str, int | str]:
    """A note in Markdown as attributes of the study; None stands for the study itself."""
    place = "dashboard:" if trial_id is None else f"dashboard:{trial_id}:"
    longest = 2045  # Characters of an attribute of a note.
    chunks = [body[start : start + longest] for start in range(0, len(body), longest)]
    return {f"{place}note_ver": version, **{f"{place}note_str:{i}": chunk for i, chunk in enumerate(chunks)}}


def study_note(before: Mapping[str, Any], body: str) -> dict[str, int | str]:
    """The study's own note, in place of the one that it had before."""
    emptied: dict[str, int | str] = {key: "" for key in before if key.startswith("dashboard:note_str:")}
    return {**emptied, **note_attributes(None, body, version=int(before.get("dashboard:note_ver", 0)) + 1)}


def attach(trial_id: int, member: str, recipe: Recipe, front: Path, artifacts: Path) -> dict[str, int | str]:
    """Keep a trial's model and recipe where the dashboard finds them; returns the attributes that say so.

    Raises:
        StorageError: If a file cannot be written.
    """
    _second_name(front / f"{member}.tflite", artifacts / member)
    write_text(artifacts / recipe.fingerprint, recipe.to_json() + "\n")
    return {
        **_artifact(trial_id, member, f"{member}.tflite", "application/octet-stream"),
        **_artifact(trial_id, recipe.fingerprint, f"{member}.recipe.json", "application/json"),
    }


def taken_back(before: Mapping[str, Any], now: Mapping[str, Any], artifacts: Path) -> dict[str, str]:
    """Remove the files of earlier members; returns the attributes that say so."""
    wanted = {key.rsplit(":", 1)[-1] for key in now}
    for path in sorted(artifacts.glob("*")):
        if path.name not in wanted:
            path.unlink()
    return {key: _NOTHING for key in before if key.startswith(_ARTIFACTS) and key not in now}


def _artifact(trial_id: int, key: str, name: str, mimetype: str) -> dict[str, str]:
    value = {"artifact_id": key, "filename": name, "mimetype": mimetype, "encoding": None}
    return {f"{_ARTIFACTS}{trial_id}:{key}": json.dumps(value)}


def _second_name(source: Path, target: Path) -> None:
    """Give a file another name, or a copy where the file system has one name a file."""
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            os.link(source, target)
            return
    write_bytes(target, source.read_bytes())


def note_of(record: TrialRecord) -> str:
    """Say in Markdown what a trial was and what came of it."""
    names_shown = 20
    lines = [f"**{record.id or 'no model'}**, proposed by `{record.origin}`", "", *_outcome(record)]
    if record.recipe is not None:
        names = sorted(record.recipe.denylisted_nodes)
        lines += ["", f"Left out of integers: {len(names)} nodes."]
        lines += [f"* `{name.replace('`', ' ')}`" for name in names[:names_shown]]
        if len(names) > names_shown:
            lines.append(f"* and {len(names) - names_shown} more, see the recipe")
    return "\n".join(lines)


def _outcome(record: TrialRecord) -> list[str]:
    scores, partial = record.scores, record.partial
    if scores is not None:
        return [
            f"* drop against float: {scores.drop:.4g}",
            f"* {scores.size_bytes} bytes, penalty {scores.penalty:.4g}",
            f"* float ops: {scores.float_ops}, segments: {scores.segments}",
            *(["* known before: another recipe gives the same bytes"] if record.reused else []),
            *([] if record.feasible else ["* beyond a limit"]),
        ]
    if partial is not None:
        return [f"* dropped after {partial.samples} of {partial.total} samples: it adds too little to the front"]
    return [f"* failed: `{' '.join((record.error or '').split()).replace('`', ' ')}`"]
