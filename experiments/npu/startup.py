"""How much longer a search takes to begin if a chip's compiler decides, stage by stage; writes ``startup.md``.

MobileNetV1-0.25 is searched in turn for a chip and for ``integer-only``, each time in a process and with a cache of its
own, so that nothing is known beforehand.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cases

import autoselect
from autoselect.events import Event, StageStarted

CHIP, OTHER = "qualcomm-sm8750", "integer-only"
RESULTS = Path(__file__).resolve().parent / "results"
CASE = "MobileNetV1-0.25, per channel"
BEFORE, TRIALS = "before the trials", "a trial"


def stages(target: str, trials: int, workers: int) -> dict[str, float]:
    """Seconds of each stage of one search, of all before its trials, and of a trial."""
    begun, times = [("start", time.perf_counter())], dict[str, float]()

    def note(event: Event) -> None:
        if isinstance(event, StageStarted):
            now = time.perf_counter()
            times[begun[-1][0]] = times.get(begun[-1][0], 0.0) + now - begun[-1][1]
            begun.append((event.stage, now))

    case = cases.CASES[CASE]
    settings = {key: value for key, value in case.settings.items() if key not in ("repairs", "trials")}
    with tempfile.TemporaryDirectory() as folder:
        autoselect.search(
            case.model(Path(folder)),
            target=target,
            trials=trials,
            workers=workers,
            seed=0,
            early_exit=False,
            emulation="none",
            output=Path(folder) / "run",
            listener=note,
            **{key: value for key, value in settings.items() if key != "emulation_samples"},
        )
    names = [name for name, _ in begun]
    before = names[: names.index("trials")]
    return {
        **{name: times.get(name, 0.0) for name in before},
        BEFORE: sum(times.get(name, 0.0) for name in dict.fromkeys(before)),
        TRIALS: times["trials"] / trials,
    }


def measured(target: str, trials: int, workers: int) -> dict[str, float]:
    """The same in a process of its own, with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, __file__, "--one", target, "--trials", str(trials), "--workers", str(workers)]
        path = os.pathsep.join([*map(str, cases.FOLDERS), os.environ.get("PYTHONPATH", "")])
        own = {**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": cache}
        done = subprocess.run(command, env=own, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def table_of(pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> str:
    """Medians over the pairs, and of the differences within a pair the median, the least and the largest."""
    rows = [["stage", f"{OTHER}, s", f"{CHIP}, s", "difference, s", "least", "largest"], ["---"] * 6]
    for name in dict.fromkeys(name for pair in pairs for one in reversed(pair) for name in one):
        ours, theirs = ([pair[place].get(name, 0.0) for pair in pairs] for place in (0, 1))
        apart = [a - b for a, b in zip(ours, theirs, strict=True)]
        figures = [statistics.median(theirs), statistics.median(ours), statistics.median(apart), min(apart), max(apart)]
        rows.append([name, *(f"{figure:.2f}" for figure in figures)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def main() -> None:
    """Measure in turn, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--one", metavar="TARGET", help="Measure one search in this process.")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(stages(options.one, options.trials, options.workers)))
        return
    pairs = []
    for number in range(options.pairs):
        order = (CHIP, OTHER) if number % 2 == 0 else (OTHER, CHIP)
        seen = {target: measured(target, options.trials, options.workers) for target in order}
        pairs.append((seen[CHIP], seen[OTHER]))
        (options.output / "startup.md").write_text(table_of(pairs), encoding="utf-8")
        print(table_of(pairs), flush=True)


if __name__ == "__main__":
    main()
