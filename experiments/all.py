"""Runs the studies whose results are not of today, and stamps what they write.

``python experiments/all.py --list`` says of each what it would do and why. A step runs in a folder that is named after
all that decides its results, so a killed run goes on where its command can, and never with what an older version left.
Results are copied beside the README when the command has ended well, and not before; then pages are written anew.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import studies
from studies import Step

from autoselect.isolation.machine import steady_kernels

WORK = studies.ROOT / "experiment-runs"
COSTS = ("seconds", "minutes", "hours")
_STAMPING, _LOGGING = threading.Lock(), threading.Lock()


def place_of(step: Step, steps: Mapping[str, Step], work: Path, small: bool) -> Path:
    """The folder of a step with these inputs."""
    return work / step.study / step.name / ("small" if small else studies.key_of(studies.inputs_of(step, steps)))


def command_of(step: Step, steps: Mapping[str, Step], work: Path, small: bool) -> list[str]:
    """The command with its folders filled in."""
    places = {after: _files_of(steps[after], steps, work, small) for after in step.after}
    own = place_of(step, steps, work, small)
    places |= {"out": own / "out", "work": own / "work"}
    options = re.sub(r"\{([\w.]+)\}", lambda found: shlex.quote(str(places[found[1]])), step.options(small))
    words = [os.environ[word[1:]] if word[1:] in step.needs else word for word in shlex.split(options)]
    return [os.environ[step.python[1:]] if step.python else sys.executable, str(step.folder / step.script), *words]


def _files_of(step: Step, steps: Mapping[str, Step], work: Path, small: bool) -> Path:
    """The folder in which later steps find the files of a step: its kept results, or those of its run."""
    return step.folder / "results" if step.once else place_of(step, steps, work, small) / "out"


def with_missing(step: Step, steps: Mapping[str, Step], work: Path, small: bool) -> Iterator[Step]:
    """What a step reads from, if that is not there, and the step itself."""
    for after in (steps[name] for name in step.after if not steps[name].once):
        if step.reads_files_of(after, small):
            is_there = (place_of(after, steps, work, small) / "done").exists()
        else:
            is_there = small or not studies.why_stale(after, steps)
        if not is_there:
            yield from with_missing(after, steps, work, small)
    yield step


def run_all(wanted: Iterable[Step], steps: Mapping[str, Step], work: Path, small: bool, jobs: int) -> list[str]:
    """Run steps and what they lack, each after what it reads from; returns what went wrong.

    Those that measure times run at the end, one by one.
    """
    wanted = list(wanted)
    ordered = {each.id: each for step in wanted for each in with_missing(step, steps, work, small)}
    found: dict[str, Future[str]] = {}

    def run_next(step: Step) -> str:
        for name in step.after:
            if name in found and (wrong := found[name].result()):
                return f"{name}: {wrong}"
        return run(step, steps, work, small)

    for timed, threads in ((False, jobs), (True, 1)):
        with ThreadPoolExecutor(threads) as pool:  # A step stands behind what it waits for, so that is never stuck.
            for step in ordered.values():
                if step.runs_alone is timed:
                    found[step.id] = pool.submit(run_next, step)
            try:
                wait(found.values())
            except BaseException:  # Ctrl-C ends the commands that run; the others shall not begin.
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    results = ((step.id, found[step.id].result()) for step in wanted)
    return [f"{name}: {wrong}" for name, wrong in results if wrong]


def run(step: Step, steps: Mapping[str, Step], work: Path, small: bool) -> str:
    """Run a step; returns what went wrong, or nothing."""
    place = place_of(step, steps, work, small)
    if small:
        shutil.rmtree(place, ignore_errors=True)
    for name in ("out", "work"):
        (place / name).mkdir(parents=True, exist_ok=True)
    command = command_of(step, steps, work, small)
    log(work, f"{step.id}: {shlex.join(command)}")
    begun = time.perf_counter()
    code, spent = _ended(step, command, place)
    seconds = round(time.perf_counter() - begun, 1)
    log(work, f"{step.id}: exit code {code} after {seconds} s, {spent:.0f} s of processor time")
    wanted = step.writes if not small or step.small_writes is None else step.small_writes
    absent = [name for name in wanted if not (place / "out" / name).exists()]
    if code or absent:
        return f"exit code {code}, see {place / 'said.txt'}" if code else f"{', '.join(absent)} was not written"
    (place / "done").touch()
    if step.results and not small:
        with _STAMPING:
            _keep(step, steps, place / "out", work, seconds)
    return ""


def _keep(step: Step, steps: Mapping[str, Step], out: Path, work: Path, seconds: float) -> None:
    """Copy results and stamp them; say which are not as before."""
    if others := ", ".join(name for name in step.results if _is_other(step, out, name)):
        log(work, f"{step.id}: not as before: {others}")
    _copy(step, out)
    stamp(step, steps, seconds)


def _ended(step: Step, command: Sequence[str], place: Path) -> tuple[int, float]:
    """The exit code of a command, and the processor time of all its processes, in seconds."""
    path = os.pathsep.join(map(str, (studies.ROOT, *step.search_path)))
    own = {**os.environ, **steady_kernels(), "PYTHONPATH": path, "AUTOSELECT_REAL_DATA": str(studies.data_folder())}
    printed = place / "out" / step.prints if step.prints else place / "printed.txt"
    with printed.open("w", encoding="utf-8") as output, (place / "said.txt").open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(command, cwd=studies.ROOT, env=own, stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


def _is_other(step: Step, out: Path, name: str) -> bool:
    before = step.place_of(name)
    return before.exists() and _without_times(step, out / name) != _without_times(step, before)


def _without_times(step: Step, path: Path) -> Any:
    """What a table, a JSON file or a text holds beside times (``12.3 s``, ``0:12:03``); of all else the digest."""
    if path.suffix == ".json":
        return json.loads(
            path.read_text(encoding="utf-8"),
            object_hook=lambda fields: {key: fields[key] for key in fields.keys() - {*step.time_columns}},
        )
    if path.suffix not in {".csv", ".md", ".log", ".txt"}:
        return studies.digest_of(path)
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".csv":
        text = re.sub(r"\b(\d+:\d\d(:\d\d)?\b|\d[\d.,]* s\b)", "a time", text)
    lines = text.splitlines()
    rows: Iterable[list[str]] = csv.reader(lines) if path.suffix == ".csv" else (line.split("|") for line in lines)
    found, times = [], set[int]()
    for row in rows:
        of_head = {place for place, cell in enumerate(row) if cell.strip() in step.time_columns}
        times = of_head or (times if len(row) > 1 else set())  # A line without cells ends a table.
        if not any(cell.strip() in step.time_columns for cell in row[:2]):  # A row of times has their name at its head.
            found.append([cell for place, cell in enumerate(row) if place not in times])
    return found


def _copy(step: Step, out: Path) -> None:
    for name in step.results:
        step.place_of(name).parent.mkdir(parents=True, exist_ok=True)
        if (out / name).is_dir():
            shutil.copytree(out / name, step.place_of(name), dirs_exist_ok=True)
        else:
            shutil.copyfile(out / name, step.place_of(name))


def stamp(step: Step, steps: Mapping[str, Step], seconds: float | None) -> None:
    """Say that the results of a step are of today; without seconds its command was run by hand."""
    is_changed = _git("status", "--porcelain", "autoselect", str(step.folder / step.script))
    found = {
        "commit": _git("rev-parse", "--short=8", "HEAD") + ("+" if is_changed else ""),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "inputs": studies.inputs_of(step, steps),
        "results": {name: studies.digest_of(step.place_of(name)) for name in step.results},
    }
    studies.keep_stamp(step, {**found, "seconds": seconds} if seconds is not None else found)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=studies.ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def log(work: Path, line: str) -> None:
    """Say a line, and write it into the log with the time."""
    work.mkdir(parents=True, exist_ok=True)
    line = f"{datetime.datetime.now().astimezone().isoformat(timespec='seconds')} {line}"
    with _LOGGING, (work / "log.txt").open("a", encoding="utf-8") as file:
        print(line, flush=True)
        file.write(line + "\n")


def chosen(steps: Mapping[str, Step], only: Sequence[str], costs: Iterable[str]) -> list[Step]:
    """The steps of the named studies, or these steps; all that keep something by default.

    Raises:
        SystemExit: If a name is none of a study or step.
    """
    unknown = [name for name in only if name not in steps and all(name != step.study for step in steps.values())]
    if unknown:
        raise SystemExit(f"There is no study or step {unknown[0]!r}. Steps: {', '.join(steps)}.")
    return [
        step
        for step in steps.values()
        if step.cost in costs and (step.id in only or step.study in only or (not only and (step.results or step.once)))
    ]


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {text}")
    return number


def _why_again(step: Step, steps: Mapping[str, Step], work: Path) -> str:
    """Why a step that is up to date runs once more; empty, with a word, if it did in this folder."""
    if step.once:
        return ""
    if (place_of(step, steps, work, False) / "done").exists():
        log(work, f"{step.id}: was run in this folder; choose another one to run it once more (--work)")
        return ""
    return "once more"


def main(arguments: Sequence[str] | None = None) -> None:
    """List the studies, or run those that are not of today."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="Say of each step whether it is up to date, and why not.")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="A study or STUDY.STEP. Repeat it.")
    parser.add_argument("--again", action="store_true", help="Also what is up to date; a second start goes on.")
    parser.add_argument("--small", action="store_true", help="Few samples and trials; keeps no results, runs all.")
    parser.add_argument("--cost", choices=COSTS, default=COSTS[-1], help="Leave out steps that take longer.")
    parser.add_argument(
        "--jobs", type=_count, default=1, metavar="N", help="Steps at a time; those of times run alone."
    )
    parser.add_argument("--stamp", action="store_true", help="Run nothing: the commands of --only were run by hand.")
    parser.add_argument("--work", type=Path, default=WORK, help="Folder of the runs and of log.txt.")
    options = parser.parse_args(arguments)
    steps = studies.read_steps()
    if options.stamp:
        for step in chosen(steps, options.only, COSTS) if options.only else ():
            stamp(step, steps, None)
        return
    wanted: list[Step] = []
    for step in chosen(steps, options.only, COSTS[: COSTS.index(options.cost) + 1]):
        others = (steps[name] for name in step.after if not steps[name].once)
        before = (other for other in others if not options.small or step.reads_files_of(other, True))
        blocked = "; ".join(filter(None, (studies.why_blocked(each, options.small) for each in (step, *before))))
        stale = "small pass" if options.small else studies.why_stale(step, steps)
        if options.again and not stale:
            stale = _why_again(step, steps, options.work)
        if options.list:
            told = f"stale: {stale}" if stale not in ("", "never run") else stale or "up to date"
            kept = f"once: {step.once}" if step.once else told
            print(f"{step.id}: {kept}" + (f" (cannot run here: {blocked})" if blocked and not step.once else ""))
        elif stale and blocked:
            log(options.work, f"{step.id}: left out: {blocked}")
        elif stale:
            wanted.append(step)
    wrong = run_all(wanted, steps, options.work.resolve(), options.small, options.jobs)
    writer = studies.HERE / "pages.py"
    if not (options.list or options.small) and writer.exists():
        subprocess.run([sys.executable, str(writer)], check=True)
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
