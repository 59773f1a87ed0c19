"""What a search remarks on the way: the user is told at once, and the manifest keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoselect.cases import chip_jobs
from autoselect.cases.events import Listener, Noted, Warned
from autoselect.cases.prepare import Case
from autoselect.domain.targets import Target
from autoselect.errors import TrialError
from autoselect.isolation.door import Workers
from autoselect.runs.folder import RunFolder


def note(message: str, folder: RunFolder, listener: Listener) -> None:
    """Tell the user and the manifest what is no warning."""
    _keep(folder, "notes", [message])
    listener(Noted(message=message))


def warned(case: Case, remarks: Sequence[str], listener: Listener) -> Case:
    """The case with further warnings, which the user is told, too."""
    for message in remarks:
        listener(Warned(message=message))
    return replace(case, warnings=(*case.warnings, *remarks))


def remarked(case: Case, folder: RunFolder, remarks: Sequence[str], listener: Listener) -> Case:
    """The case with further warnings, of which the user and the manifest are told."""
    _keep(folder, "warnings", remarks)
    return warned(case, remarks, listener)


def _keep(folder: RunFolder, key: str, messages: Sequence[str]) -> None:
    """Add messages to a list of the manifest, each once."""
    manifest = folder.read_manifest()
    folder.write_manifest({**manifest, key: list(dict.fromkeys([*manifest[key], *messages]))})


def left_by_compiler(
    sha256: str, compiled: Mapping[str, Any], model: str, target: Target, root: Path, pool: Workers
) -> list[str]:
    """What is said of ops that a compiler leaves to the CPU against the profile; nothing if that cannot be told.

    Args:
        sha256: The candidate.
        compiled: What the compiler made of it; empty if it was not compiled.
        model: What to call the model.
        target: Of the run.
        root: The case.
        pool: Where the model is read.
    """
    try:
        return pool.call(chip_jobs.left_against_table_of, root, sha256, compiled, target, model)
    except TrialError:  # The same file could not be read for what its host does, which is told.
        return []
