"""Work that is done once: folders of files under a signature of everything that affects them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from autoselect.runs.files import storage_errors

_DONE = "complete"
MAX_ENTRIES = 40
"""Entries that the cache holds; each is one model's calibration or one data set's float outputs."""


def cache_directory() -> Path:
    """Where the cache lies: ``AUTOSELECT_CACHE_DIR``, else the user's cache folder."""
    return Path(os.environ.get("AUTOSELECT_CACHE_DIR") or platformdirs.user_cache_dir("autoselect"))


def signature(ingredients: Mapping[str, object]) -> str:
    """One key for a set of ingredients; any change in one changes it. 32 hex digits."""
    text = json.dumps(ingredients, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def fetch(kept: Path, target: Path) -> bool:
    """Copy a complete entry of the cache into ``target``; False where there is none."""
    if not (kept / _DONE).exists():
        return False
    with storage_errors(target):
        shutil.copytree(kept, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(_DONE))
    os.utime(kept)
    return True


def keep(folder: Path, kept: Path) -> None:
    """Add a folder to the cache, beside and renamed; the entries unused for longest make room.

    A cache that cannot be written (full disk, no permission) costs time later, never the run.
    """
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=".new-", dir=kept.parent))
    except OSError:
        return
    try:
        shutil.copytree(folder, beside, dirs_exist_ok=True)
        (beside / _DONE).touch()
        os.replace(beside, kept)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)
    with contextlib.suppress(OSError):  # Another run may be making room too.
        entries = sorted((e for e in kept.parent.iterdir() if (e / _DONE).exists()), key=lambda e: e.stat().st_mtime)
        for old in entries[:-MAX_ENTRIES]:
            (old / _DONE).unlink(missing_ok=True)  # first, so that a half-removed entry is never served
            shutil.rmtree(old, ignore_errors=True)
