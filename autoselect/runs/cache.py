"""Work that is done once: folders of files under a signature of everything that affects them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import platformdirs
from filelock import FileLock

from autoselect.errors import StorageError
from autoselect.runs.files import copy_folder, storage_errors

_DONE = "complete"
MAX_ENTRIES = 40
"""Entries that the cache holds; each is one model, its calibration or float outputs of its samples."""


_UNDER_WAY = ".new-"


def cache_directory() -> Path:
    """Where the cache lies: ``AUTOSELECT_CACHE_DIR``, else the user's cache folder.

    Raises:
        StorageError: If the user has no home.
    """
    try:
        return Path(os.environ.get("AUTOSELECT_CACHE_DIR") or platformdirs.user_cache_dir("autoselect"))
    except RuntimeError as exc:
        raise StorageError(
            "The cache lies in the user's home, and this user has none. Name a folder in AUTOSELECT_CACHE_DIR, or keep "
            "nothing with --no-cache (cache=False), where the command has it."
        ) from exc


def why_unkept() -> str | None:
    """Why nothing can be added to the cache; None if it can."""
    root = cache_directory()
    try:
        root.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=root).close()
    except OSError as exc:
        why = f"{root} cannot be written ({exc.strerror or exc})"
        return f"Nothing is kept for later searches: {why}. AUTOSELECT_CACHE_DIR may name another folder."
    return None


def signature(ingredients: Mapping[str, object]) -> str:
    """One key for a set of ingredients; any change in one changes it. 32 hex digits."""
    text = json.dumps(ingredients, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def digest_of(source: Path | bytes) -> object:
    """A JSON value that is equal for equal content of bytes, a file, or a folder with all files in it, by SHA-256.

    The names of a folder's files count as content. None if the path does not exist.
    """
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    if source.is_dir():
        return _digests(source)
    return _digest(source) if source.exists() else None


def fetch(kept: Path, target: Path) -> bool:
    """Copy a complete entry of the cache into ``target``.

    Returns:
        False where there is none, this user may not read it, or a disk has changed its bytes.

    Raises:
        StorageError: If the target cannot be written.
    """
    done = kept / _DONE
    if not _may_read(done):
        return False
    with _alone(kept.parent):
        with contextlib.suppress(OSError):  # A cache may be read-only.
            os.utime(kept)
        try:
            with storage_errors(target):
                copy_folder(kept, target, leave_out=_DONE)
        except StorageError:
            if _may_read(done) and all(map(_may_read, kept.rglob("*"))):
                raise
            shutil.rmtree(target, ignore_errors=True)  # The entry was removed by then, or is somebody else's.
            return False
        if _digests(target) != _said(done):
            for folder in (target, kept):
                shutil.rmtree(folder, ignore_errors=True)
            return False
    return True


def _may_read(path: Path) -> bool:
    """Whether a file or folder is there for this user."""
    return os.access(path, os.R_OK)


def _digests(folder: Path) -> dict[str, str]:
    """A hash of each file, by its path in the folder."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != _DONE)
    return {str(path.relative_to(folder)): _digest(path) for path in sorted(files)}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _said(done: Path) -> object:
    """The hashes that were kept with an entry; None where they cannot be read."""
    try:
        return json.loads(done.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def keep(folder: Path, kept: Path) -> None:
    """Add a folder to the cache, beside and renamed; the entries unused for longest make room.

    A cache that cannot be written (full disk, no permission) costs time later, never the run.
    """
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=_UNDER_WAY, dir=kept.parent))
    except OSError:
        return
    try:
        copy_folder(folder, beside)
        shutil.copymode(folder, beside)  # What mkdtemp makes is for nobody else, and others may share the cache.
        (beside / _DONE).write_text(json.dumps(_digests(beside)), encoding="utf-8")
        with _alone(kept.parent) as is_alone:
            if is_alone and not (kept / _DONE).exists():
                shutil.rmtree(kept, ignore_errors=True)  # Half an entry, which a killed process left.
            os.replace(beside, kept)
            if is_alone:
                _make_room(kept.parent)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)


def _make_room(root: Path) -> None:
    entries = sorted((e for e in root.iterdir() if (e / _DONE).exists()), key=lambda e: e.stat().st_mtime)
    for old in entries[:-MAX_ENTRIES]:
        (old / _DONE).unlink(missing_ok=True)  # first, so that a half-removed entry is never served
        shutil.rmtree(old, ignore_errors=True)
    for left in root.glob(f"{_UNDER_WAY}*"):
        # An entry that has been under way for longer is of a process that was killed.
        if left.stat().st_mtime < time.time() - 86_400.0:
            shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[bool]:
    """Keep other processes out of the cache, so that none evicts what another copies.

    Yields:
        False where that cannot be had: the cache is read-only, or another process takes too long.
    """
    lock = FileLock(str(root / ".lock"))
    try:
        # Another process may copy an entry; after a minute a run goes on without it.
        lock.acquire(timeout=60.0)
    except OSError:  # filelock's Timeout is one too.
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
