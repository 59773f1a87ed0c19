"""Finds the one node that a user means."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from autoselect.domain.words import some
from autoselect.errors import UsageError

_SHOWN = 8


def node_named(wanted: str, names: Sequence[str]) -> str:
    """The full name of a node: the exact name, else the only one that a glob or a part of a name fits.

    Raises:
        UsageError: If it fits no node, with the nearest names, or several, with these.
    """
    if wanted in names:
        return wanted
    found = [name for name in names if fnmatchcase(name, wanted)] or [name for name in names if wanted in name]
    if len(found) == 1:
        return found[0]
    if found:
        told = some(found, _SHOWN, "; ")
        raise UsageError(f"--node {wanted!r} fits {len(found)} nodes: {told}. Give one whole name.")
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.3)
    hint = f" Nearest: {'; '.join(near)}." if near else ""
    raise UsageError(f"--node {wanted!r} fits none of the model's {len(names)} nodes.{hint}")
