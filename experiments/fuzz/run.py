"""Fuzzes five models, each in a process and a folder of its own; writes a table and what came of each mutant."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ.get("AUTOSELECT_REAL_DATA", "../shared/data"))
_HANG_SECONDS = 600.0
"""For one mutant, with all the jobs that it may keep waiting."""
OUTCOMES = ("passed", "refused", "failed", "child killed", "traceback", "parent killed")


def embedded() -> bytes:
    from autoselect.embedded import model_bytes

    return model_bytes()


def looping() -> bytes:
    """The nursery's autoencoder with a WHILE and an IF behind it."""
    sys.path.insert(0, str(HERE.parents[1] / "tests"))
    import nursery
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    model = nursery.model_of(nursery.NETS["autoencoder"])

    @tf.function(input_signature=[tf.TensorSpec((1, 48), tf.float32, name="frame")])  # type: ignore[untyped-decorator]
    def called(frame: Any) -> Any:
        x = tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, tf.nn.tanh(x) * 2.0), [0, model(frame)])[1]
        return tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.nn.relu(x), lambda: x - 1.0)

    # Weights as constants: a file with variables ends at calibration, and so would all its mutants.
    frozen = convert_variables_to_constants_v2(called.get_concrete_function())
    return bytes(tf.lite.TFLiteConverter.from_concrete_functions([frozen]).convert())


def _real(*parts: str) -> Callable[[], bytes]:
    return lambda: ROOT.joinpath(*parts).read_bytes()


MODELS: Mapping[str, Callable[[], bytes]] = {
    "embedded": embedded,
    "MobileNetV1-0.25": _real("mobilenet_v1_025_imagenet", "mobilenet_v1_025_224_float.tflite"),
    "DTLN, core 1": _real("zoo", "dtln", "dtln_core1_float.tflite"),
    "face detection (float16)": _real("zoo", "face_detection_short_range.tflite"),
    "autoencoder with WHILE and IF": looping,
}


def fuzzed(content: bytes, count: int, seed: int) -> dict[str, Any]:
    """Send mutants of a model through; a parent that dies or hangs is started again behind what killed it."""
    with tempfile.TemporaryDirectory() as name:
        jail = Path(name)
        for folder in ("here", "home", "tmp", "out"):
            (jail / folder).mkdir()
        (jail / "model.tflite").write_bytes(content)
        told, rows, last, deaths = jail / "told.jsonl", [], 0, []
        while True:
            command = [sys.executable, str(HERE / "feed.py"), str(jail / "model.tflite"), str(last), str(count)]
            with (jail / "said.log").open("ab") as log:
                environment = {**os.environ, "HOME": str(jail / "home"), "TMPDIR": str(jail / "tmp")}
                environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1]), str(HERE)])
                process = subprocess.Popen(
                    [*command, str(seed), name], cwd=jail / "here", env=environment, stdout=log, stderr=log
                )
                code = _waited(process, told)
            rows = [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()]
            if code == 0:
                break
            begun = [row for row in rows if "number" in row]
            if not begun or "found" in begun[-1]:
                raise SystemExit((jail / "said.log").read_text(encoding="utf-8", errors="replace")[-3000:])
            deaths.append({**begun[-1], "code": code})
            last = begun[-1]["number"] + 1
        done = [row for row in rows if "found" in row]
        kept = {"model.tflite", "told.jsonl", "said.log", "worker.log", "here", "home", "tmp", "out"}
        outside = [path.name for path in jail.iterdir() if path.name not in kept]
        outside += [str(path) for path in (jail / "here").iterdir()]
        outside += [str(path) for path in (jail / "out").rglob("*") if "escaped" in path.name or "script" in path.name]
        outside += [str(path) for path in (Path("/tmp/escaped"), jail.parent / "escaped") if path.exists()]
    return {
        "rows": done,
        "deaths": deaths,
        "outside": outside,
        "peak_bytes": max((row["peak_bytes"] for row in rows if "peak_bytes" in row), default=0),
    }


def _waited(process: subprocess.Popen[bytes], told: Path) -> int | None:
    """Exit code; None for a parent that told nothing new for long and was killed."""
    size = -1
    while True:
        try:
            return process.wait(timeout=_HANG_SECONDS)
        except subprocess.TimeoutExpired:
            now = told.stat().st_size if told.exists() else 0
            if now == size:
                process.kill()
                process.wait()
                return None
            size = now


def counted(found: Mapping[str, Any]) -> Counter[str]:
    """Each mutant once, by the worst that came of it in any of the steps."""
    worst = [max((kind for kind, _ in row["found"].values()), key=OUTCOMES.index) for row in found["rows"]]
    return Counter([*worst, *["parent killed"] * len(found["deaths"])])


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    head = ("model", "tried", *OUTCOMES, "written outside", "largest memory, GiB", "longest, s")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name, one in found.items():
        counts = counted(one)
        longest = max((row["seconds"] for row in one["rows"]), default=0.0)
        cells = [name, sum(counts.values()), *(counts[kind] for kind in OUTCOMES), len(one["outside"])]
        lines.append(f"| {' | '.join(map(str, cells))} | {one['peak_bytes'] / 2**30:.1f} | {longest:.0f} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, write, print; 1 where a mutant got the better of the parent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="Mutants of all models together.")
    parser.add_argument("--only", nargs="+", choices=MODELS, default=[*MODELS], metavar="MODEL")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args(arguments)
    contents = {name: MODELS[name]() for name in options.only}
    each = -(-options.count // len(contents))
    with ThreadPoolExecutor(options.jobs) as threads:
        running = {n: threads.submit(fuzzed, content, each, options.seed) for n, content in contents.items()}
    found = {name: future.result() for name, future in running.items()}
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "rows.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    (options.output / "table.md").write_text(table(found), encoding="utf-8")
    print(table(found))
    return int(any(one["deaths"] or one["outside"] or counted(one)["traceback"] for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
