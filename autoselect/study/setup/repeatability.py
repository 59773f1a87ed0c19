"""Sees to it that scores which decide are those of what is shipped; knows models by their hash, not what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autoselect.cases import build_jobs, divergence, repeat_jobs
from autoselect.cases.events import Listener, StageStarted, StepFinished, Warned
from autoselect.cases.files import FLOAT
from autoselect.cases.prepare import Case
from autoselect.cases.settled import Settled
from autoselect.errors import TrialError
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of

SECONDS, _SECONDS_IN_ALL = 0.3, 2.0
"""A worker's time for each model, and for all models of one check: less than scoring a few candidates."""

_WARNING = (
    "{} gave other outputs for the same inputs when it was run again: LiteRT's delegates are not deterministic on it. "
    "From now on it is scored on LiteRT's plain kernels, which are deterministic. Its earlier scores may not repeat."
)


_KERNELS = (
    "{} was scored with float ops in place of LiteRT's slow 16-bit convolutions. As it is shipped its outputs are "
    "{:.0f} dB from float's, not {:.0f} dB: it may score less. Score it with autoselect evaluate."
)


def references_to_check(case: Case, settings: Settled, pool: Workers) -> dict[str, str]:
    """What the scores of all candidates are compared with: names by hash."""
    references = {FLOAT: "The float model"}
    plain = replace(settings.template, repairs=())
    try:
        built = pool.call(build_jobs.build, case.files.root, plain.to_json(), timeout_seconds=settings.trial_timeout)
    except TrialError:  # As a candidate it fails again, and says why.
        return references
    return {**references, built.sha256: "The all-integer model"}


def warn_of_unrepeated(
    case: Case, names: Mapping[str, str], pool: Workers, listener: Listener, *, have_run: bool = False
) -> list[str]:
    """Run models again and again, and warn of each that does not give the same outputs.

    Args:
        case: With its calibration samples.
        names: Of the models in a sentence, by hash.
        pool: Where they run.
        listener: Is told of each.
        have_run: Whether all were scored before. Of others scoring says why they cannot be run.

    Returns:
        The warnings.
    """
    listener(StageStarted(stage="repeats", total=len(names)))
    seconds = min(SECONDS, _SECONDS_IN_ALL / max(len(names), 1))
    running = {n: pool.submit(repeat_jobs.check, case.files.root, sha256, seconds) for sha256, n in names.items()}
    messages = []
    for name, future in running.items():
        try:
            repeated = result_of(future)
        except TrialError as exc:
            if have_run:
                messages.append(f"Nobody knows whether the outputs of {_inside(name)} repeat. {exc}")
            continue
        finally:
            listener(StepFinished(stage="repeats"))
        if not repeated:
            messages.append(_WARNING.format(name))
    for message in messages:
        listener(Warned(message=message))
    return messages


def _inside(name: str) -> str:
    """A name as it is inside a sentence."""
    return name[:1].lower() + name[1:]


def confirmed_on_kernels(
    root: Path, names: Mapping[str, str], chosen: str, pool: Workers, listener: Listener
) -> tuple[dict[str, divergence.OnKernels], list[str]]:
    """Run models as they are shipped where they were scored otherwise, the chosen one on more samples than others.

    Returns:
        By hash what was seen of each that was scored otherwise, and a warning of each whose scores may be others.
    """
    running = {sha256: pool.submit(divergence.on_kernels, root, sha256, sha256 == chosen) for sha256 in names}
    comparisons, messages = {}, []
    for sha256, future in running.items():
        try:
            seen = result_of(future)
        except TrialError as exc:
            messages.append(f"{names[sha256]} could not be run as it is shipped. {exc}")
            continue
        if seen is not None:
            comparisons[sha256] = seen
            # An error of twice the power. LiteRT's delegates and its own kernels were seen to differ by 1.2 dB on one
            # file.
            if seen.to_float_db < seen.stood_in_to_float_db - 3.0:
                messages.append(_KERNELS.format(names[sha256], seen.to_float_db, seen.stood_in_to_float_db))
    for message in messages:
        listener(Warned(message=message))
    return comparisons, messages
