"""What a run folder says of the search that made it; refuses to continue one of other ingredients."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from autoselect.cases.prepare import Case
from autoselect.cases.versions import DECIDE_BYTES, versions
from autoselect.domain.pinned import NO_PINS, Pins
from autoselect.domain.recipe import Recipe
from autoselect.domain.search_space import BoundSpace, Toggle
from autoselect.domain.words import counted, listed
from autoselect.errors import RunFolderError
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import TrialRecord
from autoselect.runs.typed_command import TYPED
from autoselect.study.request import Request


def new_manifest(request: Request) -> dict[str, Any]:
    """What is kept of a new search before anything is known of its ingredients, as plain values."""
    merged = [json.loads(recipe.to_json()) for recipe in request.members]
    return {
        "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": TYPED.get(),
        "versions": versions(request.settings.quantizer),
        "hashes": {},
        "counts": {},
        "sources": request.sources,
        "metric": {"name": request.metric_name, "direction": request.direction},
        "user_code": request.user_code,
        "settings": request.kept(),
        "warnings": [],
        "notes": [],
        **({"merged": merged} if merged else {}),
    }


def to_merge(manifest: Mapping[str, Any], records: Sequence[TrialRecord]) -> tuple[Recipe, ...]:
    """Recipes of all members of the merged runs' Pareto fronts, as long as a merge has one of them left to try.

    Empty if the run is a search, or each member has a trial.
    """
    members = [Recipe.from_json(json.dumps(recipe)) for recipe in manifest.get("merged", ())]
    tried = {record.recipe.fingerprint for record in records if record.recipe is not None}
    return () if tried.issuperset(member.fingerprint for member in members) else tuple(members)


def pinned_trials(manifest: Mapping[str, Any], last: int, pins: Pins = NO_PINS) -> list[dict[str, Any]]:
    """Which trials were proposed under which pins, as the manifest keeps it.

    Args:
        manifest: As it is; what is open in it ends here.
        last: Number of the last trial that was told; -1 without any.
        pins: Of the trials that come next.
    """
    before: list[dict[str, Any]] = list(manifest.get("pinned", ()))
    ended = [{**span, "last_trial": last} if span["last_trial"] is None else span for span in before]
    kept = [span for span in ended if span["first_trial"] <= span["last_trial"]]
    if not pins:
        return kept
    named = {name: sorted(nodes) for name, nodes in pins.named.items()}
    return [*kept, {"first_trial": last + 1, "last_trial": None, **named}]


def pinned_in_words(manifest: Mapping[str, Any]) -> str:
    """The pins of the trials that come next."""
    pinned = manifest["pinned"][-1]
    words = {"keep_float": "out of integers", "keep_int": "in integers of 8 bits", "keep_int16": "in 16 bits"}
    parts = [f"{counted(len(pinned[name]), 'node')} {phrase}" for name, phrase in words.items() if pinned[name]]
    return f"Trials from {pinned['first_trial']} on were proposed under pins of the user: {listed(parts)}."


def is_settled(manifest: Mapping[str, Any]) -> bool:
    """Whether a search is settled: it was stopped no sooner than at its probes, or not at all."""
    return "search_space" in manifest


def space_hash(space: BoundSpace) -> str:
    """One hash of all dimensions: a study cannot go on in another space."""
    plain = [
        (d.name, sorted(d.nodes)) if isinstance(d, Toggle) else (d.name, d.ranking, d.at_most) for d in space.dimensions
    ]
    pins = [sorted(space.keep_float), sorted(space.keep_int)]
    if space.not_int8 or space.not_outside:
        pins += [sorted(space.not_int8), sorted(space.not_outside)]
    return hashlib.sha256(json.dumps([plain, space.alternatives, pins]).encode()).hexdigest()


def refuse_other_metric(folder: RunFolder, manifest: dict[str, Any], request: Request) -> None:
    """Refuse to continue a search with another metric.

    Raises:
        RunFolderError: If the metric is not that of the manifest.
    """
    before, now = manifest["metric"], {"name": request.metric_name, "direction": request.direction}
    if before != now:
        raise RunFolderError(
            f"{folder.root} was made with the metric {before['name']!r} ({before['direction']}), this is "
            f"{now['name']!r} ({now['direction']}). Their scores do not compare. "
            "Give that metric, or none if it was given by its name, or start a new run."
        )


def contents_that_differ(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names of the ingredients whose digests differ.

    The model is first: digests of samples cover the names of its inputs, so they differ with it.
    """
    differing = [name for name in {*before, *now} if before.get(name) != now.get(name)]
    return sorted(differing, key=lambda name: (name != "model", name))


def refuse_other_contents(folder: RunFolder, before: Mapping[str, str], now: Mapping[str, str], remedy: str) -> None:
    """Refuse a model or samples that are not those of a run.

    Args:
        folder: The run's, for the message.
        before: Digests of the model and the samples that the run was made with, by name.
        now: Digests of those that are there today, by name; names that ``before`` does not have are ignored.
        remedy: What the user may do in place of restoring the old content, as the last clause of the message.

    Raises:
        RunFolderError: If one differs or is missing, with its name.
    """
    for name in contents_that_differ(before, {key: digest for key, digest in now.items() if key in before}):
        raise RunFolderError(
            f"{folder.root} was made with another {name}: its content has changed since. "
            f"Bring the old one back, or {remedy}."
        )


def refuse_other_ingredients(folder: RunFolder, manifest: dict[str, Any], case: Case) -> None:
    """Refuse to continue a search with another model, other samples or versions that decide bytes.

    Raises:
        RunFolderError: With what differs.
    """
    refuse_other_contents(folder, manifest["hashes"], case.hashes, "start a new run in another folder")
    before, now = manifest["versions"], versions(manifest["settings"].get("quantizer", "tensorflow"))
    if before.get("builder") != now["builder"]:
        raise RunFolderError(
            f"{folder.root} was made by an older builder. Its recipes still build, but to files of other sizes, so "
            "old and new candidates do not compare. Start a new run; `autoselect report` and `autoselect pick` "
            "work on this one."
        )
    for name in DECIDE_BYTES:
        if before.get(name) != now.get(name):
            raise RunFolderError(
                f"{folder.root} was made with {name} {before.get(name, 'absent')}, this is {now.get(name, 'absent')}. "
                "Their scores do not compare. Install that version, or start a new run."
            )


def refuse_other_space(folder: RunFolder, manifest: Mapping[str, Any], request: Request, space: BoundSpace) -> None:
    """Refuse to continue a search whose choices or pins were others.

    Raises:
        RunFolderError: With the files that they come from.
    """
    if manifest["search_space"] != space_hash(space):
        settings = request.settings
        raise RunFolderError(
            f"{folder.root} was made with another search space: the file {settings.search_space!r} has changed since, "
            f"or the target {settings.target!r}, which pins nodes. Bring the old one back, or start a new run in "
            "another folder."
        )


def refuse_lost_states(folder: RunFolder, before: Sequence[str], now: Sequence[str], remarks: Sequence[str]) -> None:
    """Refuse to continue a search whose units had states that cannot be made now: its trials would mean others.

    Raises:
        RunFolderError: With the remarks.
    """
    if lost := [state for state in before if state not in now]:
        raise RunFolderError(
            f"{folder.root} has candidates with {listed(lost)} units, which cannot be made now. {' '.join(remarks)} "
            "The run is as it was. If memory or time ran out, resume it when there is more; else start a new run."
        )


def changed_code(manifest: Mapping[str, Any], request: Request) -> tuple[str, ...]:
    """A warning where the code of the user's metric or evaluator is not what it was when the run began."""
    before, now = manifest.get("user_code"), request.user_code
    if before is None or before == now:
        return ()
    return (
        f"The code of {request.metric_name} has changed since this run began, so earlier and later scores may not "
        "compare. If the change affects scores, start a new run in another folder.",
    )
