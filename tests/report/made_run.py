"""A run as a search would leave it, of any size, made up from a seed; no model is built."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from autoselect.domain.limits import allowed_drops, limits
from autoselect.domain.pareto import non_dominated
from autoselect.domain.recipe import Recipe
from autoselect.domain.rule import Rule, Standing
from autoselect.runs.run import Run

HOSTILE = "block_0/<script>document.title='broken'</script>&\"quoted\"</th>"
"""A tensor name that would be a script if it were taken for markup."""
OPS = ("CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "MEAN", "SOFTMAX")


def made_run(folder: Path, *, nodes: int = 12, trials: int = 40, seed: int = 0, status: str = "complete") -> Run:
    """A run of so many nodes and trials; the first node has the hostile name, and the last trial failed."""
    rng = np.random.default_rng(seed)
    names = [HOSTILE, *(f"block_{n // 4}/node_{n}/Relu;block_{n // 4}/node_{n}/BiasAdd" for n in range(1, nodes))]
    table = _trials(rng, names, trials)
    front = _front(table)
    folder.mkdir(parents=True, exist_ok=True)
    _write_sensitivity(folder, rng, names)
    _write_islands(folder, front, table)
    _write_cures(folder, names)
    _write_limits(folder, front)
    return Run(
        directory=folder,
        manifest=_manifest(trials),
        summary=_summary(table, front, status),
        trials=table,
        front=front,
        layer_statistics=_layers(rng, names),
    )


def _trials(rng: np.random.Generator, names: list[str], count: int) -> pd.DataFrame:
    rows = []
    for number in range(count):
        share = 0.0 if number == 0 else 1.0 if number == 1 else rng.beta(0.8, 1.6)
        out = [name for name in names if rng.random() < share]
        # The hostile node alone does half of the damage.
        drop = 0.2 * np.exp(-5 * share) * (0.5 if HOSTILE in out else 1.0) + abs(rng.normal(0, 0.002))
        state = "failed" if number == count - 1 else "dropped" if number % 7 == 6 else "complete"
        row: dict[str, Any] = {
            "number": number,
            "id": "" if state == "failed" else f"{rng.integers(16**10):010x}",
            "state": state,
            "origin": "baseline:fiq" if number == 0 else "baseline:drq" if number == 1 else "surrogate",
            "reused": False,
            "size_bytes": round(40000 + 6000 * share + rng.normal(0, 300)),
            "penalty": round(30 * share + rng.uniform(0, 3) * (share > 0), 3),
            "samples": 250 if state == "dropped" else 1000,
            "feasible": True,
            "fallbacks": "{}",
            "error": "it <broke>" if state == "failed" else np.nan,
            "build_seconds": 0.1,
            "score_seconds": 0.4,
            "recipe": " ".join(Recipe(denylisted_nodes=frozenset(out)).to_json().split()),
        }
        if state == "complete":
            row |= {"accuracy": round(0.93 - drop, 4), "drop": round(drop, 4), "sqnr_db": 20 + 20 * share}
            row |= {"segments": int(rng.integers(1, 5)), "float_ops": len(out), "float_macs_share": share}
        rows.append(row)
    return pd.DataFrame(rows)


def _front(table: pd.DataFrame) -> pd.DataFrame:
    scored = table[table["state"] == "complete"]
    front = scored[non_dominated(scored[["drop", "size_bytes", "penalty"]].to_numpy(dtype=float))].copy()
    front = front.sort_values("drop").reset_index(drop=True)
    front["heldout_accuracy"] = front["accuracy"] - 0.002
    front["heldout_low"], front["heldout_high"] = front["heldout_accuracy"] - 0.01, front["heldout_accuracy"] + 0.01
    picks = [""] * len(front)
    picks[0], picks[len(front) // 2], picks[-1] = "accurate", "balanced,compact", "integer"
    front["pick"] = picks
    front["file"] = [f"front/{name}.tflite" for name in front["id"]]
    return front


def _layers(rng: np.random.Generator, names: list[str]) -> pd.DataFrame:
    errors = rng.lognormal(-1.2, 0.3, len(names))
    errors[0] = 2.5
    return pd.DataFrame(
        {
            "index": range(len(names)),
            "op_name": [OPS[n % len(OPS)] for n in range(len(names))],
            "tensor_name": names,
            "rmse/scale": errors,
            "verified": True,
            "macs": 1000,
        }
    )


def _manifest(trials: int) -> dict[str, Any]:
    return {
        "created": "2030-01-02T03:04:05+00:00",
        "command": "autoselect search model.tflite --evaluation '<b>.npz'",
        "versions": {"autoselect": "0.1.0", "tensorflow": "2.21.0"},
        "hashes": {"model": "0" * 64},
        "counts": {"calibration": 100, "search": 1000, "heldout": 2000},
        "sources": {"model": "models/made <i>up.tflite"},
        "settings": {"seed": 3, "sampler": "surrogate", "trials": trials},
    }


def _summary(table: pd.DataFrame, front: pd.DataFrame, status: str) -> dict[str, Any]:
    whole = {"heldout": 0.928, "heldout_low": 0.916, "heldout_high": 0.939}
    references = {"float": {"accuracy": 0.93, "size_bytes": 150000, "penalty": 33.0, **whole}}
    for row, name in ((0, "fiq"), (1, "drq")):
        references[name] = {key: float(table.loc[row, key]) for key in ("accuracy", "size_bytes", "penalty")}
        score = references[name]["accuracy"] - 0.002
        references[name] |= {"heldout": score, "heldout_low": score - 0.01, "heldout_high": score + 0.01}
    picks = {name: row.id for row in front.itertuples() for name in row.pick.split(",") if name}
    return {
        "status": status,
        "metric": "accuracy",
        "direction": "maximize",
        "evaluated": {"search": 1000, "heldout": 2000},
        "references": references,
        "picks": picks,
        "counts": {"trials": len(table)},
        "allowed_drop": 0.0093,
        "verdict": "On the held-out samples the float model scores 92.8 % accuracy.",
        "warnings": ["beware of <b>this</b>"],
        "ended_early": None,
        "seconds": {"calibrate": 12.0, "trials": 240.0, "heldout": 6.0},
    }


def _write_sensitivity(folder: Path, rng: np.random.Generator, names: list[str]) -> None:
    with (folder / "sensitivity.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["tensor_name", "unit", "probe", "estimate"])
        for unit, name in enumerate(names):
            writer.writerow([name, unit, 0.1, 0.5 if unit == 0 else rng.uniform(0, 0.5 / len(names))])


CURES = (
    ("none", "", "weights 50.0 dB, activations 40.0 dB"),
    ("bias", "weights", "weights 31.0 dB, activations 40.0 dB; 80% of the weights' error shifts channels"),
    ("16 bit", "activations", "weights 50.0 dB, activations -12.5 dB"),
)
"""In turn, from the first node on; the last node is not measured."""


def _write_cures(folder: Path, names: list[str]) -> None:
    with (folder / "cures.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["tensor_name", "weights_sqnr_db", "activations_sqnr_db", "broken", "cure", "reason"])
        for number, name in enumerate(names[:-1]):
            cure, broken, reason = CURES[number % len(CURES)]
            parts = (31.0 if broken == "weights" else 50.0, -12.5 if broken == "activations" else 40.0)
            writer.writerow([name, *parts, broken, cure, reason])


def _write_limits(folder: Path, front: pd.DataFrame) -> None:
    """What the rule recommends of these members; resamples see each drop half as large, then half as large again."""
    members = [
        Standing(id=id_, drop=drop, bound=drop + 0.01, fidelity=30.0, size_bytes=size, penalty=penalty)
        for id_, drop, size, penalty in front[["id", "drop", "size_bytes", "penalty"]].itertuples(index=False)
    ]
    again = [[replace(m, drop=m.drop * by, bound=m.drop * by + 0.01) for m in members] for by in (0.5, 1.5)]
    rule = Rule(allowed_drop=0.01, float_penalty=30.0, float_size_bytes=200_000)
    rows = [asdict(one) for one in limits(members, again, rule, allowed_drops("accuracy", 0.9, 0.01))]
    pd.DataFrame(rows).to_csv(folder / "limits.csv", index=False)


def _write_islands(folder: Path, front: pd.DataFrame, table: pd.DataFrame) -> None:
    known = dict(zip(table["id"], table["recipe"], strict=True))
    header = ["id", "island", "nodes", "size_bytes", "penalty", "divergence", "divergence_without", "id_without"]
    with (folder / "islands.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*header, "drop_without", "drop_gain"])
        for row in front[front["pick"] != ""].itertuples():
            out = json.loads(known[row.id])["denylisted_nodes"]
            if out:
                writer.writerow([row.id, 0, json.dumps(out), 321, 1.5, 0.01, 0.02, "", "", 0.013])
