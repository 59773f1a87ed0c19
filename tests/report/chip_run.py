"""A made-up run for a chip whose compiler decides; one member of its front has a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import made_run as made

from autoselect.compilers.litert_plugin import name_of
from autoselect.embedded import model_bytes
from autoselect.runs.run import Run
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

CHIP = "qualcomm-sm8750"
NO_KERNEL = "no kernel for <b>this</b>"
LEFT = {3: NO_KERNEL, 9: "too wide", 10: "too wide"}
PIECES = [1, 1, 1, 0, 2, 2, 2, 2, 2, 0, 0, *[3] * 11]
"""By op of the demo's float model, from hand."""


def chip_run(folder: Path, *, emulated: bool = True, others: bool = False) -> Run:
    """Of each member what the chip does; of the recommended one the file, and what is left of it."""
    run = made.made_run(folder)
    run.summary["picks"]["recommended"] = first = str(run.front["id"][0])
    front = run.front.assign(pick=["recommended", *run.front["pick"][1:]])
    (folder / "front").mkdir()
    (folder / "front" / f"{first}.tflite").write_bytes(model_bytes())
    graph = reader.read_graph(fb.parse(model_bytes()))
    assert len(graph.ops) == len(PIECES)
    left = {name_of(graph, i): why for i, why in LEFT.items()}
    members = {str(key): member(place, {}) for place, key in enumerate(front["id"])}
    members |= {first: member(3, left), str(run.trials["id"][0]): member(1, {})}
    scores = {key: score(0.9 - place / 10) for place, key in enumerate(members)} if emulated else {}
    found = {"chip": CHIP, "members": members, "emulated": scores, "versions": {"LiteRT": "2.3.0"}}
    if others:
        other = {**found, "chip": "qualcomm-sm8735", "emulated": {}}
        found["others"] = {"qualcomm-sm8735": other}
    run.summary.update(compiler=found, target=CHIP)
    return replace(run, front=front)


def member(partitions: int, left: dict[str, str]) -> dict[str, Any]:
    host_ops = {"MUL": len(left)} if left else {}
    return {"segments": partitions, "host_ops": host_ops, "left": left, "ddr_bytes": 75776, "moved": {}, "cost": 101.0}


def score(chip: float) -> dict[str, Any]:
    """A score on the chip that is 5 points below the CPU's."""
    return {
        "samples": 1000,
        "chip": chip,
        "cpu": chip + 0.05,
        "reference": 0.95,
        "low": 0.02,
        "high": 0.08,
        "chip_sqnr_db": 25.04,
        "cpu_sqnr_db": None,
        "agreement": 0.78,
        "differs": True,
    }
