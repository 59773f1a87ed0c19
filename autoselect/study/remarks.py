"""What a search remarks on the way: the user is told at once, and the manifest keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoselect.cases.events import Listener, Noted, Warned
from autoselect.cases.prepare import Case
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
