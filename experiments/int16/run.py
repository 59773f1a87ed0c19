"""Searches each case with units in 16 bits and without, and writes what all-integer members score."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import denoiser
import loaders
import pandas as pd
import parts

import autoselect
from autoselect.api.run import Run
from autoselect.embedded import calibration, heldout_samples, model_path, search_samples

RESULTS = Path(__file__).resolve().parent / "results"
_MOBILENET = {
    "model": loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite",
    "calibration": "loaders:imagenet_calibration",
    "evaluation": "loaders:imagenet_search",
    "heldout": "loaders:imagenet_heldout",
    "metric": "agreement",
    "trials": 40,
}
CASES: dict[str, dict[str, Any]] = {
    "denoiser": {
        "model": denoiser.MODEL,
        "calibration": "denoiser:calibration",
        "evaluator": "denoiser:si_snr_gain",
        "max_drop": 0.5,
        "trials": 40,
    },
    "pump": {
        "model": model_path(),
        "calibration": calibration,
        "evaluation": search_samples,
        "heldout": heldout_samples,
        "metric": "accuracy",
        "trials": 40,
    },
    "fsrcnn": {
        "model": loaders.FSRCNN / "fsrcnn_x2_float.tflite",
        "calibration": "parts:fsrcnn_calibration",
        "evaluation": "parts:fsrcnn_search",
        "heldout": "parts:fsrcnn_heldout",
        "metric": "psnr",
        "max_drop": 0.1,
        "trials": 8,
    },
    "mobilenet, per channel": {**_MOBILENET, "repairs": ("bias", "rounding-gptq")},
    "mobilenet, per tensor": {
        **_MOBILENET,
        "per_channel": False,
        "repairs": ("bias", "equalization", "rounding-gptq"),
    },
    "mobilenet, per tensor, no repairs": {**_MOBILENET, "per_channel": False, "repairs": ()},
    "keywords": {
        "model": loaders.KWS / "kws_dscnn_float.tflite",
        "calibration": "loaders:kws_calibration",
        "evaluation": "loaders:kws_evaluation",
        "metric": "accuracy",
        "trials": 40,
    },
    "deeplab": {
        "model": parts.DEEPLAB,
        "calibration": "parts:deeplab_calibration",
        "evaluation": "parts:deeplab_search",
        "heldout": "parts:deeplab_heldout",
        "metric": "agreement",
        "trials": 40,
    },
}
REFERENCES = {"float": "float", "fiq": "all int8", "fiq+repairs": "all int8, repaired", "int16": "all 16-bit"}


def searched(name: str, int16: bool, folder: Path, workers: int, trials: int | None = None) -> Run:
    """One search; a whole folder of an earlier one is used again."""
    if (folder / "summary.json").exists():
        return autoselect.load_run(folder)
    shutil.rmtree(folder, ignore_errors=True)
    case = {**CASES[name], **({"trials": trials} if trials else {})}
    return autoselect.search(case.pop("model"), int16=int16, early_exit=False, workers=workers, output=folder, **case)


def rows_of(run: Run, name: str, int16: bool) -> Iterator[dict[str, Any]]:
    """References, and of the front the recommended member and the all-integer one that scores best."""
    metric, summary = run.summary["metric"], run.summary
    common = {"case": name, "int16": "yes" if int16 else "no"}
    startup = sum(seconds for stage, seconds in summary["seconds"].items() if stage in ("probes", "plan"))
    for key, label in REFERENCES.items():
        if (found := summary["references"].get(key)) and (int16 or key != "float"):
            yield common | {
                "model": label,
                "search": found[metric],
                "heldout": found["heldout"],
                "size_bytes": int(found["size_bytes"]),
                "penalty": found["penalty"],
                "float_ops": int(found["float_ops"]) if key != "float" else "",
                "int16_nodes": "",
                "probe_seconds": round(startup, 1),
            }
    front = run.front.set_index("id")
    integer = front[front["float_ops"] == 0]
    chosen = {"recommended": summary["picks"]["recommended"]}
    if len(integer):
        chosen["best all-integer member"] = integer.sort_values("drop").index[0]
    for label, member in chosen.items():
        row = front.loc[member]
        yield common | {
            "model": label,
            "search": row[metric],
            "heldout": row[f"heldout_{metric}"],
            "size_bytes": int(row["size_bytes"]),
            "penalty": row["penalty"],
            "float_ops": int(row["float_ops"]),
            "int16_nodes": len(_recipe(run, member).get("int16_nodes", ())),
            "probe_seconds": round(startup, 1),
        }


def _recipe(run: Run, member: str) -> dict[str, Any]:
    trials = run.trials
    return dict(json.loads(trials[trials["id"] == member]["recipe"].iloc[0]))


def _folder(runs: Path, name: str, int16: bool) -> Path:
    return runs / name.replace(", ", "_").replace(" ", "_") / str(int16)


def table_of(rows: pd.DataFrame) -> str:
    """As Markdown."""
    lines = [
        "| case | 16-bit units | model | search | held out | bytes | penalty | float ops | 16-bit nodes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for _, row in rows.iterrows():
        figures = f"{row['search']:.3f} | {row['heldout']:.3f} | {row['size_bytes']:,} | {row['penalty']:.1f}"
        counts = f"{row['float_ops']} | {row['int16_nodes']}"
        lines.append(f"| {row['case']} | {row['int16']} | {row['model']} | {figures} | {counts} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cases, and write the table; rows of cases without a run here stay as they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", default=[], help="A case; repeat it. All by default.")
    parser.add_argument("--runs", type=Path, default=Path("int16-runs"), help="Folder of the runs.")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--trials", type=int, help="Of each search, in place of what its case says.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    for name, int16 in product(options.case or CASES, (False, True)):
        if not Path(CASES[name]["model"]).exists():
            print(f"{name}: skipped, as there is no {CASES[name]['model']}")
            continue
        searched(name, int16, _folder(options.runs, name, int16), options.workers, options.trials)
    earlier = pd.read_csv(RESULTS / "int16.csv", keep_default_na=False)
    found: list[pd.DataFrame] = []
    for name, int16 in product(CASES, (False, True)):
        folder, told = _folder(options.runs, name, int16), "yes" if int16 else "no"
        if (folder / "summary.json").exists():
            found.append(pd.DataFrame(rows_of(autoselect.load_run(folder), name, int16)))
        else:
            found.append(earlier[(earlier["case"] == name) & (earlier["int16"] == told)])
    table = pd.concat(found, ignore_index=True)
    options.output.mkdir(parents=True, exist_ok=True)
    table.to_csv(options.output / "int16.csv", index=False, lineterminator="\n")
    (options.output / "table.md").write_text(table_of(table), encoding="utf-8")
    print(table_of(table))


if __name__ == "__main__":
    main()
