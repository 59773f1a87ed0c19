"""``autoselect check``."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoselect.cases.settings import SearchSettings
from autoselect.cli.command import with_debug, with_settings
from autoselect.cli.console import warn, watching
from autoselect.cli.options import AsJson, Quiet, command_line, parameters_of
from autoselect.cli.parsing import HelpAll
from autoselect.cli.progress import clock
from autoselect.cli.search import Config, told_in_python
from autoselect.isolation.machine import memory_bytes

if TYPE_CHECKING:
    from autoselect.study.outlook import Outlook


@with_settings(parameters_of(SearchSettings))
@with_debug
def check(
    *,
    settings: Mapping[str, Any],
    config: Config = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    help_all: HelpAll = False,
) -> None:
    """Try a search without searching: read model and data, time one candidate, and say how long it would take."""
    from autoselect import check as run_check
    from autoselect.cli.results import print_fields, print_json

    told = told_in_python(settings)
    output = Path(told["output"] or ".")
    with watching(quiet=quiet) as watcher:
        found = run_check(told.pop("model"), **told, listener=watcher)
    if as_json:
        print_json(asdict(found))
        return
    there = memory_bytes()
    print_fields(_fields(found, _free_bytes(output), there))
    if found.refused:
        warn(f"The all-integer model, the first trial of every search, is refused. {found.refused}")
    if found.memory["all"] > there:
        warn(
            f"The search would take more memory than there is. Let fewer than {found.workers} workers do it "
            "(--workers): a worker that the system kills costs a trial."
        )
    print(f"Next: {command_line().replace(' check ', ' search ', 1)}")


_PHASES = {
    "prepare": "calibrating",
    "repairs": "repairs",
    "probes": "probes of units",
    "trials": "trials",
    "heldout": "held-out samples",
}


def _fields(found: Outlook, free_bytes: int, machine_bytes: float) -> dict[str, str]:
    from autoselect.domain.words import counted
    from autoselect.report.tables.frames import format_size

    samples = ", ".join(f"{count:,} {part.replace('heldout', 'held-out')}" for part, count in found.samples.items())
    told = {
        "model": f"{format_size(found.size_bytes)} as float, {counted(found.nodes, 'node')} in "
        f"{counted(found.units, 'unit')} that move together",
        "samples": samples,
        "search space": f"{_many(found.candidates)} candidates; {found.states} states for each unit",
        "one trial": "refused" if found.refused else _trial(found),
        "the search": f"{counted(found.trials, 'trial')} on {counted(found.workers, 'worker')}",
        "disk": f"about {format_size(found.disk_bytes)} while it runs, {free_bytes / 1e9:,.0f} GB free",
        "memory": f"about {found.memory['all'] / 1e9:.1f} GB in all, {_has(machine_bytes)}",
    }
    if not found.refused:
        told["the search"] += f": about {clock(found.search_seconds)}"
        phases = (f"{_PHASES[name]} {clock(seconds)}" for name, seconds in found.phase_seconds.items() if seconds)
        told["of it"] = ", ".join(phases)
    return told


def _has(machine_bytes: float) -> str:
    return "of an unknown amount" if math.isinf(machine_bytes) else f"of {machine_bytes / 1e9:,.0f} GB"


def _trial(found: Outlook) -> str:
    seconds = found.build_seconds + found.score_seconds
    per_sample = "" if math.isnan(found.inference_seconds) else f", {1e3 * found.inference_seconds:.3g} ms an inference"
    return f"{seconds:.2g} s ({found.build_seconds:.2g} to build, {found.score_seconds:.2g} to score{per_sample})"


def _many(count: int) -> str:
    return f"{count:,}" if count < 1_000_000 else f"{float(count):.1e}" if count < 1e300 else f"2^{count.bit_length()}"


def _free_bytes(folder: Path) -> int:
    """Free bytes of the disk that a folder is on, or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
