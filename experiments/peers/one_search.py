"""One search by one sampler, for the limit that all tools are given."""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDERS = ("mobilenet_v1", "search_benchmark", "real_models")
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in FOLDERS)]
import bench  # noqa: E402 - found by the path above
import loaders  # noqa: E402
from cases import BenchmarkCase  # noqa: E402
from searched import recipe_of, searched  # noqa: E402

import autoselect  # noqa: E402
from autoselect.cases.versions import versions  # noqa: E402

LIMIT = 0.01
"""Share of right answers that may be lost on the search samples."""
PACKAGES = ("autoselect", "builder", "tensorflow", "ai-edge-litert", "optuna", "numpy")


def _case(name: str, data: str, samples: int, model: Path) -> BenchmarkCase:
    options = {"per_channel": False, "fallback": "float", "max_drop": LIMIT, "cache": False}
    return BenchmarkCase(
        name=name, data=data, metric="accuracy", samples=samples, reference=None, model=model, options=options
    )


CASES = {
    "MobileNetV1-0.25": _case("mobilenet", "imagenet", 450, loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite"),
    "DS-CNN": _case("ds_cnn", "kws", 1000, loaders.KWS / "kws_dscnn_float.tflite"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, and write which candidate is the cheapest that keeps the limit, and which is recommended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--sampler", required=True, help="As bench.py calls it.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trials", type=int, required=True)
    parser.add_argument("--runs", type=Path, required=True, help="Folder of the searches.")
    parser.add_argument("--output", type=Path, required=True, help="The .json file.")
    options = parser.parse_args(arguments)
    case = CASES[options.case]
    task = bench.Task(
        case=case, sampler=options.sampler, seed=options.seed, trials=options.trials, root=options.runs, workers=1
    )
    bench.perform(task)
    search = searched(task)
    picks = {"cheapest within the limit": search.least(LIMIT), "recommended": search.recommended(LIMIT)}
    statistics = search.run.layer_statistics
    by_name = versions()
    found = {
        "versions": {name: by_name[name] for name in PACKAGES if name in by_name},
        "parameters": list(inspect.signature(autoselect.search).parameters),
        "gives": ".tflite",
        "samples_run": round(search.evaluations * case.samples),
        "picks": {name: record and recipe_of(record).to_json() for name, record in picks.items()},
        "drops": {name: record and record.scores and record.scores.drop for name, record in picks.items()},
        "nodes": statistics[["op_name", "tensor_name"]].values.tolist(),
    }
    options.output.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
