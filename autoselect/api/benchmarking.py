"""The models of a run, timed on a device."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autoselect.api.run import Run, load_run
from autoselect.cases.events import Listener, StageStarted, StepFinished, ignore, logged
from autoselect.domain.result import Result, html_table
from autoselect.errors import ModelError, PreparationError, ScoreError, UsageError
from autoselect.report.tables.frames import MISSING, first_pick, front_rows
from autoselect.report.tables.model_tables import aligned
from autoselect.runs.files import refuse_existing, write_json
from autoselect.runs.folder import RunFolder
from autoselect.scoring.intervals import median_interval
from autoselect.tflite.device import FEWEST_ROUNDS, ROUNDS, TOOL, Bench, Statistic, find_device

FLOAT = "float"
_HEADING = ("", "ms", "quartiles", "of float", "95 % interval")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Benchmark(Result):
    """How fast models are on a device.

    Attributes:
        device: Model, version of Android and serial number.
        command: That was run there for each model and round, but for the model.
        statistic: What each time is of the inferences of one round: median or mean.
        rounds: How many there were.
        models: In each ``name``; ``id`` and ``path``; ``times_ms``, one a round; ``ms``, ``low`` and ``high``, their
            median and quartiles; ``ratio`` to the float model, the median over the rounds, ``ratio_low`` and
            ``ratio_high``, its 95 % interval; ``error``, why a model could not be timed, else None.
    """

    device: str
    command: str
    statistic: str
    rounds: int
    models: list[dict[str, Any]]

    def lines(self) -> tuple[str, ...]:
        """The device, a table of 80 columns at most if names are short, and what went wrong."""
        table = aligned((_HEADING, *map(_cells, self.models)), right=range(1, 5))
        failed = [f"{model['name']}: {model['error']}" for model in self.models if model["error"]]
        caption = f"{self.device}; {self.rounds} rounds, the {self.statistic} of each"
        return (caption, "", *table, *([""] if failed else []), *failed)

    def _repr_html_(self) -> str:
        return html_table(_HEADING, [_cells(model) for model in self.models])


def timed(name: str, times_ms: Sequence[float], floats_ms: Sequence[float], **identity: Any) -> dict[str, Any]:
    """The row of one model that was timed in each round, see :class:`Benchmark`."""
    low, median, high = (float(value) for value in np.percentile(times_ms, [25, 50, 75]))
    is_known = all(floats_ms)  # A tiny model may take less than the tool can tell from nothing.
    ratios = [time / base for time, base in zip(times_ms, floats_ms, strict=True)] if floats_ms and is_known else []
    ends = median_interval(ratios)
    return {
        "name": name,
        **identity,
        "times_ms": list(times_ms),
        "ms": median,
        "low": low,
        "high": high,
        "ratio": float(np.median(ratios)) if ratios else None,
        "ratio_low": ends[0] if ratios else None,
        "ratio_high": ends[1] if ratios else None,
        "error": None,
    }


def untimed(name: str, error: str, **identity: Any) -> dict[str, Any]:
    """The row of a model that could not be timed."""
    figures = ("ms", "low", "high", "ratio", "ratio_low", "ratio_high")
    return {"name": name, **identity, "times_ms": [], **dict.fromkeys(figures), "error": error}


def _cells(model: Mapping[str, Any]) -> tuple[str, ...]:
    ratio = () if model["name"] == FLOAT else ("ratio", "ratio_low", "ratio_high")
    ms, low, high, *of_float = (_number(model[key]) for key in ("ms", "low", "high", *ratio))
    times = (str(model["name"]), ms, "" if model["ms"] is None else f"{low}–{high}")
    if model["ms"] is None or not of_float or model["ratio"] is None:
        return (*times, "", "")
    return (*times, of_float[0], f"{of_float[1]}–{of_float[2]}")


def _number(value: float | None) -> str:
    """With three digits that count."""
    if not value:
        return MISSING if value is None else "0"
    return f"{value:.{max(2 - math.floor(math.log10(abs(value))), 0)}f}"


def benchmark(
    directory: str | Path,
    *,
    whole: bool = False,
    also: Iterable[str | Path] = (),
    reference: str | Path | None = None,
    serial: str | None = None,
    tool: str = TOOL,
    threads: int = 1,
    flags: str | Sequence[str] = (),
    rounds: int = ROUNDS,
    output: str | Path | None = None,
    force: bool = False,
    listener: Listener = ignore,
) -> Benchmark:
    """Time models of a run on an Android device, with ``adb`` and ``benchmark_model``.

    In each round every model runs once, each time in another order, so that a device that grows warm slows all of them.
    Ratios are of one round, too.

    Args:
        directory: The run folder.
        whole: The whole front; else its picks.
        also: Further ``.tflite`` files.
        reference: The float model; by default the one of the run folder, ``calibrated.tflite``.
        serial: The device, if there are several; by default ``ANDROID_SERIAL``.
        tool: Path of ``benchmark_model`` on the device.
        threads: Of the interpreter.
        flags: Further ones of ``benchmark_model``, such as ``--use_gpu=true``: a list, or a text as for a shell.
        rounds: How often each model is timed, 6 at least: fewer give no 95 % interval.
        output: A ``.json`` file for all of it, if any.
        force: Write over an existing file.
        listener: See :mod:`autoselect.events`.

    Raises:
        UsageError: If adb, the device or the tool is missing, several devices are attached, or the file exists already.
        RunFolderError: If the folder holds no run.
        ModelError: If a file is missing.
        PreparationError: If the device goes away, or no model can be timed.

    Examples:
        From the run of :func:`search`, with a device attached:

        >>> import autoselect
        >>> found = autoselect.benchmark("pump-run")
        >>> found.models[0]["name"], found.models[0]["ratio"]
        ('float', 1.0)
    """
    if rounds < FEWEST_ROUNDS:
        raise UsageError(f"rounds: expected {FEWEST_ROUNDS} or more, got {rounds}. Fewer give no 95 % interval.")
    if output is not None and not force:
        refuse_existing(Path(output))
    given = _flags(flags) if isinstance(flags, str) else flags
    models = _models(load_run(directory), reference, also, whole=whole)
    device = find_device(serial or os.environ.get("ANDROID_SERIAL"))
    with device.bench(tool, threads=threads, flags=given) as bench:
        timings = _Timings(models)
        timings.measure(bench, rounds, logged(listener))
        report = Benchmark(
            device=device.described(),
            command=bench.command,
            statistic=timings.statistic,
            rounds=rounds,
            models=[*timings.rows()],
        )
    if output is not None:
        write_json(Path(output), report.as_dict())
    return report


def _flags(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as exc:
        raise UsageError(f"flags: expected what a shell takes, got {text!r}: {exc}.") from exc


def _models(
    run: Run, reference: str | Path | None, also: Iterable[str | Path], *, whole: bool
) -> dict[str, tuple[str, Path]]:
    """Id and file by name, the float model first."""
    floats = Path(reference) if reference is not None else RunFolder(run.directory).calibrated(())
    models = {FLOAT: ("", floats)}
    first = first_pick(run.picks)
    for row in sorted(front_rows(run.front, run.summary), key=lambda row: first not in row.picks):
        if whole or row.picks:
            models[row.picks[0] if row.picks else row.label] = (row.label, run.model_path(row.label))
    for path in map(Path, also):
        models[str(path) if path.name in models else path.name] = ("", path)
    for name, (_, path) in models.items():
        if not path.is_file():
            raise ModelError(f"There is no file {path} ({name}). Give the path of a .tflite.")
    return models


def _order(number: int, count: int) -> list[int]:
    """The order of models in one round: over the rounds each follows each other one equally often.

    E. J. Williams, "Experimental designs balanced for the estimation of residual effects of treatments", Australian
    Journal of Scientific Research A 2, 1949. Of an odd count every second round is one turned round.
    """
    turns = number // 2 if count % 2 else number
    order = [((place + 1) // 2 * (1 if place % 2 else -1) + turns) % count for place in range(count)]
    return order[::-1] if count % 2 and number % 2 else order


class _Timings:
    """The times of models, and why some have none."""

    def __init__(self, models: Mapping[str, tuple[str, Path]]) -> None:
        self.statistic: Statistic = "median"
        self._models = models
        self._times: dict[str, list[float]] = {name: [] for name in models}
        self._errors: dict[str, str] = {}

    def measure(self, bench: Bench, rounds: int, listener: Listener) -> None:
        """Time every model in every round; one that fails is not tried again."""
        names = list(self._models)
        for place, name in enumerate(names):
            bench.push(self._models[name][1], f"{place}.tflite")
        listener(StageStarted(stage="latency", total=rounds * len(names)))
        for number in range(rounds):
            for turn in _order(number, len(names)):
                self._time(bench, names[turn], f"{turn}.tflite")
                listener(StepFinished(stage="latency"))
        if len(self._errors) == len(names):
            raise PreparationError(f"No model could be timed. {self._errors[names[0]]}")

    def _time(self, bench: Bench, name: str, file: str) -> None:
        if name in self._errors:
            return
        try:
            timing = bench.time(file)
        except ScoreError as exc:
            self._errors[name] = str(exc)
            return
        self.statistic = timing.statistic
        self._times[name].append(timing.milliseconds)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One a model, in their order."""
        floats = [] if FLOAT in self._errors else self._times[FLOAT]
        for name, (member, path) in self._models.items():
            identity = {"id": member, "path": str(path)}
            if name in self._errors:
                yield untimed(name, self._errors[name], **identity)
            else:
                yield timed(name, self._times[name], floats, **identity)
