"""Two versions of autoselect in turns: processor seconds of what the phases before the first trial do most."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
NOW = HERE.parents[2]
REPEATED = 9


def prepared(net: str, folder: Path, count: int) -> tuple[Any, Any, list[Any]]:
    """A net that is calibrated, its nodes and its samples; kept, so that both versions have the same."""
    path = folder / f"{net}_{count}.pickle"
    if not path.exists():
        import large
        import zoo

        [chosen] = [one for name, one in large.NETS.items() if one.name == net]
        asked = large.options(chosen, large.WHOLE, folder)
        made = zoo.prepare(asked["model"].read_bytes(), list(itertools.islice(asked["calibration"](), count)))
        path.write_bytes(pickle.dumps((made.calibrated, made.nodes, made.fed())))
    found: tuple[Any, Any, list[Any]] = pickle.loads(path.read_bytes())
    return found


def measured(net: str, folder: Path, count: int) -> dict[str, float]:
    """Processor seconds by what is done, of the version that Python imports."""
    from autoselect.domain.recipe import Recipe
    from autoselect.quantize.building.build import Builder
    from autoselect.quantize.repairing.repairs import RepairKit
    from autoselect.tflite import flatbuffer

    calibrated, nodes, fed = prepared(net, folder, count)
    builder = Builder(calibrated, nodes, RepairKit(calibrated, lambda: iter(fed)))
    names = [node.name for node in nodes]
    probe = Recipe(fallback="float", denylisted_nodes=frozenset(names) - {names[len(names) // 2]})
    content = builder.build(probe).content
    model = flatbuffer.parse(content)
    builder.build(Recipe(repairs=("bias",)))
    return {
        "rounding": _seconds(lambda: builder.build(Recipe(repairs=("bias", "rounding-gptq")))),
        "build of a probe": statistics.median(_seconds(lambda: builder.build(probe)) for _ in range(REPEATED)),
        "write of a probe": statistics.median(_seconds(lambda: flatbuffer.serialise(model)) for _ in range(REPEATED)),
    }


def _seconds(do: Callable[[], object]) -> float:
    begun = time.process_time()
    do()
    return time.process_time() - begun


def measured_in(tree: Path, *asked: object) -> dict[str, float]:
    """The same in a fresh process with one thread, of the version in a tree."""
    path = os.pathsep.join(map(str, (tree, HERE.parent, NOW / "tests")))
    code = (
        f"import json, sys; from pathlib import Path; import kernels; print(json.dumps(kernels.measured(*{asked!r})))"
    )
    code = code.replace("PosixPath", "Path")
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, **threads, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure in turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="a tree of the other version: git worktree add")
    parser.add_argument("--models", type=Path, required=True, help="folder that keeps models and samples")
    parser.add_argument("--net", default="EfficientNetB0")
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_args()
    asked = arguments.net, arguments.models.resolve(), arguments.samples
    pairs = []
    for _ in range(arguments.pairs):
        pairs.append([measured_in(tree, *asked) for tree in (arguments.before.resolve(), NOW)])
        print(pairs[-1], file=sys.stderr, flush=True)  # A measurement that is cut off leaves what it has.
    print("| processor time, s | before | now | now / before, by pair |\n|---|---|---|---|")
    for figure in pairs[0][0]:
        before, now = (statistics.median(pair[side][figure] for pair in pairs) for side in (0, 1))
        ratios = ", ".join(f"{pair[1][figure] / pair[0][figure]:.2f}" for pair in pairs)
        print(f"| {figure} | {before:.3f} | {now:.3f} | {ratios} |")


if __name__ == "__main__":
    main()
