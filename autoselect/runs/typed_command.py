"""The command that the user typed, which a run records; there is none where a function was called from Python."""

from __future__ import annotations

from contextvars import ContextVar

TYPED: ContextVar[str | None] = ContextVar("typed command", default=None)
"""Quoted for a shell; set for as long as a command runs."""
