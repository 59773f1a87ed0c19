"""Times models on an Android device, with ``adb`` and ``benchmark_model``; knows nothing of runs.

``benchmark_model`` is a program of TensorFlow Lite, and one of LiteRT. Both write one line of statistics of the
warm-up, then one of the runs that count (``tflite/tools/benchmark/benchmark_model.cc``)::

    count=50 first=8123 curr=8090 min=8035 max=8420 avg=8101.3 std=61 p5=8041 median=8094 p95=8206

Times are in microseconds. Older versions write no percentiles, and ``curr=8090(all same)`` where all are equal.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autoselect.errors import PreparationError, ScoreError, UsageError

FOLDER = "/data/local/tmp"
"""On the device: where a user without rights may write and run programs."""
TOOL = f"{FOLDER}/benchmark_model"

FEWEST_ROUNDS = 6
"""Fewest rounds: the slowest and the fastest of them bound a median with 95 % confidence."""
ROUNDS = 9
"""Rounds of a measurement: the fewest whose interval does not hang on the slowest and the fastest."""

Statistic = Literal["median", "mean"]

_TIMEOUT_SECONDS = 600
"""More than the tool takes: 150 s of warm-up, then 150 s of runs, and the last run of each."""
_READY = "Connect it, turn on USB debugging on it, unlock it and allow this computer."
_VALUES: tuple[tuple[str, Statistic], ...] = (("median", "median"), ("avg", "mean"), ("curr", "mean"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What one start of the tool measured.

    Attributes:
        milliseconds: Of one inference.
        statistic: What that is of all inferences: the median where the tool says it.
    """

    milliseconds: float
    statistic: Statistic


def read_timing(output: str) -> Timing:
    """Read what the tool printed.

    Raises:
        ScoreError: If there is no time in it.
    """
    lines = [line for line in output.splitlines() if re.search(r"\bcount=[1-9]", line)]
    numbers = dict(re.findall(r"(\w+)=([\d.]+(?:e[+-]?\d+)?)", lines[1])) if len(lines) > 1 else {}
    for key, statistic in _VALUES:
        if key in numbers:
            return Timing(milliseconds=float(numbers[key]) / 1e3, statistic=statistic)
    raise ScoreError(
        "Expected two lines with count=, of the warm-up and of the runs, from benchmark_model, got none that can be "
        f"read. It said: {_reason(output)}"
    )


def _reason(output: str) -> str:
    """What the tool complains of; else the last it said."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR") and "Benchmarking failed" not in line]
    return " ".join(errors or lines[-1:])[:300] or "nothing."


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """An attached device."""

    serial: str

    def described(self) -> str:
        """Model, version of Android and serial number."""
        asked = [self.shell(f"getprop ro.{name}") for name in ("product.model", "build.version.release")]
        model, version = ("unknown" if code else said.strip() for code, said in asked)
        return f"{model}, Android {version}, {self.serial}"

    @contextlib.contextmanager
    def bench(self, tool: str, *, threads: int, flags: Sequence[str]) -> Iterator[Bench]:
        """A new folder on the device for models, removed at the end.

        Raises:
            UsageError: If the tool is not there.
            PreparationError: If the folder cannot be made.
        """
        if self.shell(f"[ -x {shlex.quote(tool)} ] && echo yes")[1].strip() != "yes":
            self.refuse_lost()
            raise UsageError(
                f"There is no program {tool} on {self.serial}. Put benchmark_model there: adb push benchmark_model "
                f"{FOLDER} && adb shell chmod +x {TOOL}; or say where it is: --tool (tool=...)."
            )
        code, said = self.shell(f"mktemp -d {FOLDER}/autoselect.XXXXXX")
        folder = said.strip()
        if code or not folder.startswith(f"{FOLDER}/"):
            raise PreparationError(f"No folder could be made in {FOLDER} on {self.serial}: {_reason(said)}")
        command = shlex.join([tool, f"--num_threads={threads}", *flags])
        try:
            yield Bench(device=self, folder=folder, command=command)
        finally:
            with contextlib.suppress(PreparationError):  # what the body raised matters more
                self.shell(f"rm -rf {shlex.quote(folder)}")

    def refuse_lost(self) -> None:
        """Refuse a device that does not answer any more.

        Raises:
            PreparationError: If it is not attached.
        """
        code, said = _adb("-s", self.serial, "get-state")
        if code or said.strip() != "device":
            raise PreparationError(f"The device {self.serial} is gone: {_reason(said)} Connect it, and start again.")

    def shell(self, command: str) -> tuple[int, str]:
        """Exit code and output of a command of the device's shell."""
        return _adb("-s", self.serial, "shell", command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A folder on a device, and what times the models in it."""

    device: Device
    folder: str
    command: str

    def push(self, model: Path, name: str) -> None:
        """Copy a model into the folder.

        Raises:
            PreparationError: If that fails.
        """
        code, said = _adb("-s", self.device.serial, "push", str(model), f"{self.folder}/{name}")
        if code:
            raise PreparationError(f"{model} could not be copied to {self.device.serial}: {_reason(said)}")

    def time(self, name: str) -> Timing:
        """Start the tool once for a model of the folder.

        Raises:
            ScoreError: If the model does not run, or what the tool says cannot be read.
            PreparationError: If the device is gone, or does not answer.
        """
        graph = shlex.quote(f"--graph={self.folder}/{name}")
        code, said = self.device.shell(f"{self.command} {graph}")
        # Up to Android 6, adb tells no exit code.
        if code or "Benchmarking failed" in said:
            self.device.refuse_lost()
            raise ScoreError(f"benchmark_model ended with exit code {code}. It said: {_reason(said)}")
        return read_timing(said)


def find_device(serial: str | None) -> Device:
    """The device that is attached.

    Raises:
        UsageError: If adb is missing, or no device is ready, or nothing says which of several.
    """
    listed = dict(line.split("\t", 1) for line in _adb("devices")[1].splitlines() if "\t" in line)
    ready = [name for name, state in listed.items() if state.strip() == "device"]
    if serial is not None and serial not in ready:
        answer = f"says {listed[serial].strip()!r} of it" if serial in listed else f"lists {_named(listed)}"
        raise UsageError(f"The device {serial} is not ready: `adb devices` {answer}. {_READY}")
    if serial is None and not ready:
        states = "; ".join(f"{name} is {state.strip()}" for name, state in listed.items())
        raise UsageError(f"No Android device is ready: `adb devices` lists {states or 'none'}. {_READY}")
    if serial is None and len(ready) > 1:
        raise UsageError(f"Several devices are attached: {_named(ready)}. Say which: --serial (serial=...).")
    return Device(serial=serial or ready[0])


def _named(serials: Sequence[str] | dict[str, str]) -> str:
    return ", ".join(serials) or "none"


def _adb(*words: str) -> tuple[int, str]:
    """Exit code and output of one adb command; programs on a device write to both streams."""
    try:
        done = subprocess.run(
            ["adb", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise UsageError(
            "adb is not on the PATH. It comes with the platform tools of Android, and as the package adb of Debian "
            "and Ubuntu."
        ) from None
    except subprocess.TimeoutExpired:
        raise PreparationError(
            f"`adb {' '.join(words)}` did not end within {_TIMEOUT_SECONDS} s. Is the device awake and connected?"
        ) from None
    return done.returncode, done.stdout.decode("utf-8", errors="replace")
