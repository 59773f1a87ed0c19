"""The files of a front's members: built again where they are missing, copied, removed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from autoselect.cases import build_jobs
from autoselect.cases.files import CaseFiles
from autoselect.errors import TrialError
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.runs.files import write_bytes, write_text
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import TrialRecord

_MEMBER_FILE = re.compile(r"([0-9a-f]{10})\.(?:tflite|recipe\.json|(?:litert|ai-edge)-quantizer\.json|build\.py)")


DIFFERENT = (
    "It came out different from the one that was scored. Another kind of processor computes other last digits, which "
    "repairs round by."
)
"""Why the bytes of a candidate are not those that were scored."""


def restore(records: Sequence[TrialRecord], case_root: Path, pool: Workers) -> dict[str, str]:
    """Build again the candidates whose files an earlier process did not keep.

    Returns:
        Why a candidate could not be built again, or why its bytes are not those that were scored, by its id.
    """
    files = CaseFiles(root=case_root)
    running = [
        (record, pool.submit(build_jobs.build, case_root, record.recipe.to_json()))
        for record in records
        if record.scores and record.recipe and not files.candidate(record.scores.sha256).exists()
    ]
    failures = dict[str, str]()
    for record, future in running:
        try:
            built = result_of(future)
        except TrialError as exc:
            failures[record.id] = str(exc)
            continue
        if record.scores and built.sha256 != record.scores.sha256:
            failures[record.id] = DIFFERENT
    return failures


def materialise(front: Sequence[TrialRecord], folder: RunFolder, case_root: Path) -> None:
    """Write each member's model and recipe."""
    files = CaseFiles(root=case_root)
    for record in front:
        if record.scores is None or record.recipe is None:
            continue
        source, target = files.candidate(record.scores.sha256), folder.front / f"{record.id}.tflite"
        if source.exists():
            write_bytes(target, source.read_bytes())
        write_text(folder.front / f"{record.id}.recipe.json", record.recipe.to_json() + "\n")


def remove_former_members(front: Sequence[TrialRecord], folder: RunFolder) -> None:
    """Remove the files of earlier members, known by their names; all other files are the user's."""
    members = {r.id for r in front}
    for path in sorted(folder.front.glob("*")):
        match = _MEMBER_FILE.fullmatch(path.name)
        if match and match.group(1) not in members:
            path.unlink(missing_ok=True)


def remove_work(root: Path) -> None:
    """Remove samples and candidates; a run needs them only while it goes on."""
    shutil.rmtree(root, ignore_errors=True)
