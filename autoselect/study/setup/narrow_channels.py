"""Warns before a search of outputs whose channels have unlike ranges, some too small for the scale of all."""

from __future__ import annotations

from pathlib import Path

from autoselect.cases import channel_jobs
from autoselect.domain.findings import OWN_SCALE
from autoselect.errors import TrialError
from autoselect.isolation.door import Workers


def narrow_channels(root: Path, pool: Workers) -> tuple[str, ...]:
    """A warning for each group of channels that is but a few integer steps wide, or why that is not known."""
    try:
        found = pool.call(channel_jobs.narrow_groups, root)
    except TrialError as exc:
        return (f"The ranges of the outputs' channels could not be compared. {exc}",)
    return tuple(map(_warning, found))


def _warning(one: channel_jobs.NarrowGroup) -> str:
    return (
        f"In 8 bits, output {one.output!r} has {one.steps:.1f} integer steps for its {one.channels}: one scale serves "
        f"all channels, and the others are far larger. {OWN_SCALE}"
    )
