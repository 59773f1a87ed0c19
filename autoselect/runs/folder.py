"""The layout of a run folder and who may use it."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from autoselect.domain.recipe import split_repair
from autoselect.errors import FolderInUse, RunFolderError, StorageError, UsageError, sentence
from autoselect.runs.files import storage_errors, write_json

MANIFEST_VERSION = 1


class RunFolder:
    """Paths of one run; every file in it is written whole."""

    def __init__(self, root: Path) -> None:
        """Name the folder; nothing is created."""
        self.root = root
        self.manifest = root / "manifest.json"
        self.summary = root / "summary.json"
        self.study = root / "study.journal"
        self.trials = root / "trials.csv"
        self.front_table = root / "front.csv"
        self.front = root / "front"
        self.model_explorer = root / "model_explorer"
        self.artifacts = root / "artifacts"
        """Models and recipes of the front under the names that optuna-dashboard asks for."""
        self.layer_statistics = root / "layer_statistics.csv"
        self.weight_levels = root / "weight_levels.csv"
        """What fewer levels of each node's weights save and do; only if the search may choose them."""
        self.sensitivity = root / "sensitivity.csv"
        self.cures = root / "cures.csv"
        self.islands = root / "islands.csv"
        self.probes = root / "probes.jsonl"
        """What each unit did alone, a line for each; read by a search that goes on."""
        self.limits = root / "limits.csv"
        self.chip = root / "chip.csv"
        self.heldout_classes = root / "heldout_classes.csv"
        self.heldout_samples = root / "heldout_samples.csv"
        self.picture = root / "pareto.png"
        self.report = root / "report.html"
        self.log = root / "worker.log"
        self.kept = root / "kept"
        """The calibrated model and what the search knew of its units: candidates can be forecast and built from it."""
        self.work = root / ".autoselect-work"
        """Samples, calibrated model and candidates while the run goes on; removed at its end."""
        self.tried = self.work / "tried.jsonl"
        """Replies of the models on which repairs are judged; their files are beside it."""
        self.lock = root / ".autoselect-lock"

    def calibrated(self, repairs: Sequence[str]) -> Path:
        """The calibrated float model after these repairs, its ops under names that the quantizer cannot change.

        Ranges of single nodes are in the file's name as a checksum.
        """
        whole = [name for name in repairs if split_repair(name)[1] is None]
        of_nodes = [name for name in repairs if name not in whole]
        digest = [f"nodes-{hashlib.sha256(' '.join(of_nodes).encode()).hexdigest()[:8]}"] if of_nodes else []
        return self.root / ("-".join(["calibrated", *whole, *digest]) + ".tflite")

    def refuse_taken(self) -> None:
        """Refuse a folder that no new run can have.

        Raises:
            UsageError: If no folder can have this name.
            RunFolderError: If it holds a run or anything else.
            StorageError: If this user may not look into it.
        """
        if "\0" in str(self.root):
            raise UsageError(f"output: {str(self.root)!r} has a null character, which no name can have.")
        with storage_errors(self.root):
            if self.manifest.exists():
                raise RunFolderError(
                    f"{self.root} holds another run. Continue it with {self.resuming}, or choose another --output."
                )
            leftovers = {self.log, self.work, self.lock}  # of a search that never began
            if self.root.exists():
                taken = "is a file" if not self.root.is_dir() else {*self.root.iterdir()} - leftovers and "is not empty"
                if taken:
                    raise RunFolderError(f"{self.root} {taken}. Choose a new or an empty folder for --output.")

    @property
    def resuming(self) -> str:
        """The command that goes on with the run, for a message."""
        return f"`autoselect resume {shlex.quote(str(self.root))}`"

    def create(self) -> None:
        """Make the folder for a new run.

        Raises:
            RunFolderError: If it holds a run or anything else.
            StorageError: If it cannot be made.
        """
        self.refuse_taken()
        with storage_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Refuse a second process in the same folder; the lock ends with the process, however it ends."""
        lock = FileLock(str(self.lock))
        with storage_errors(self.lock):
            try:
                lock.acquire(timeout=0)
            except Timeout:  # an OSError too
                raise FolderInUse(
                    f"Another process is working in {self.root}. Wait for it, or stop it first."
                ) from None
        try:
            yield
        finally:
            lock.release()

    def is_in_use(self) -> bool:
        """Whether another process works in the folder, as far as this user may know."""
        if not self.lock.exists():
            return False
        try:
            with self.locked():
                return False
        except FolderInUse:
            return True
        except StorageError:
            return False

    def discard(self) -> None:
        """Take back what a search left that never began; a log that says something stays."""
        shutil.rmtree(self.work, ignore_errors=True)
        with contextlib.suppress(OSError):
            for path in (self.manifest, self.layer_statistics):
                path.unlink(missing_ok=True)
            if self.log.exists() and self.log.stat().st_size == 0:
                self.log.unlink()
            self.lock.unlink(missing_ok=True)
            self.root.rmdir()

    def refuse_damaged_summary(self) -> None:
        """Refuse a ``summary.json`` that is there and cannot be read.

        Raises:
            RunFolderError: If it is so.
        """
        if self.summary.exists():
            try:
                read_json(self.summary, missing="")
            except RunFolderError as exc:
                raise RunFolderError(
                    f"{sentence(str(exc))} Copy the run folder once more, or let it be written anew: {self.resuming}."
                ) from exc

    def read_manifest(self, *tables: str) -> dict[str, Any]:
        """Read the manifest of an existing run, which must have these tables.

        Raises:
            RunFolderError: If there is none, it is damaged or of another version, or a link leads out of the folder.
        """
        manifest = read_json(
            self.manifest,
            missing=f"{self.root} holds no run: it has no manifest.json.",
        )
        if manifest.get("manifest_version") != MANIFEST_VERSION:
            raise RunFolderError(
                f"{self.manifest} is of version {manifest.get('manifest_version')}; this autoselect reads "
                f"version {MANIFEST_VERSION}. Use the autoselect that made the run."
            )
        if missing := [key for key in tables if not isinstance(manifest.get(key), dict)]:
            raise RunFolderError(f"{self.manifest} is damaged: it has no table {missing[0]!r}.")
        try:
            self._refuse_links()
        except PermissionError as exc:
            raise RunFolderError(f"{self.root} cannot be read: {exc.strerror}.") from exc
        return manifest

    def _refuse_links(self) -> None:
        """A search writes and removes files here: behind a link they would be somebody else's.

        A lock of the journal that a killed process left may be a link to the journal: it is removed, never followed.
        """
        locks = set(self.root.glob(f"{self.study.name}.lock*"))
        for path in [*self.root.iterdir(), *(self.front.iterdir() if self.front.is_dir() else ())]:
            if not path.is_symlink() and not path.is_file() and not path.is_dir():
                raise RunFolderError(f"{path} is neither a file nor a folder, and a run folder holds nothing else.")
            if path.is_symlink() and path not in locks:
                raise RunFolderError(
                    f"{path} is a link to {path.resolve()}, and a run folder holds none: what it leads to could be "
                    "overwritten. Put the file or folder itself there, or do not use this run folder."
                )

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest."""
        write_json(self.manifest, {**manifest, "manifest_version": MANIFEST_VERSION})


def free_folder(name: str) -> Path:
    """A folder of this name in the current directory, numbered if the name is taken: ``name``, ``name-2``, ...

    What a search left that was refused, its log, takes no name: so the corrected command writes where it would have.
    """
    path, number = Path(name), 1
    while _is_taken(path):
        number += 1
        path = Path(f"{name}-{number}")
    return path


def _is_taken(path: Path) -> bool:
    """Whether there is something; a folder that this user may not look into is somebody else's."""
    try:
        return path.exists() and (not path.is_dir() or bool({*path.iterdir()} - {RunFolder(path).log}))
    except PermissionError:
        return True


def nodes_of(layer_statistics: Path) -> list[str]:
    """Names of the nodes in a ``layer_statistics.csv``; none if there is no such file."""
    if not layer_statistics.exists():
        return []
    with layer_statistics.open(encoding="utf-8", newline="") as table:
        return [row["tensor_name"] for row in csv.DictReader(table)]


def read_json(path: Path, *, missing: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        RunFolderError: If the file is missing (with the message given) or damaged.
    """
    if path.exists() and not path.is_file():  # Reading a named pipe would not end.
        raise RunFolderError(f"{path} is no file.")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise RunFolderError(missing) from None
    except (OSError, ValueError, RecursionError) as exc:
        raise RunFolderError(f"{path} is damaged: {exc}.") from exc
    if not isinstance(value, dict):
        raise RunFolderError(f"{path} is damaged: it holds no JSON object.")
    return value
