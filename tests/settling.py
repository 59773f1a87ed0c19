"""Searches in which nothing is left open, with what a test says and no more facts."""

from __future__ import annotations

from autoselect.cases.settings import make_settings
from autoselect.cases.settled import Facts, Settled, settle


def settled(**said: object) -> Settled:
    """What a search goes by, of which nothing is known but what is said."""
    return settle(make_settings(**said), Facts())
