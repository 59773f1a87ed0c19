"""What pages show of the results of this study."""

from __future__ import annotations

import json
from pathlib import Path

from shown import table

RESULTS = Path(__file__).resolve().parent / "results"
NAMES = {
    "EfficientNet-B0, 224 pixels": "EfficientNet-B0",
    "ResNet-50, 224 pixels": "ResNet-50",
    "BirdNET": "BirdNET",
    "transformer of 12 layers": "transformer",
    "style transfer": "style transfer",
    "2,000 ops as large as ResNet-50": "2,000 ops",
    "chain of 2,000 ops": "2,003 small ops",
}
STAGES = ("calibrate", "repeats", "repairs", "probes", "trials", "heldout")
FIRST = "calibrating, one build, one score"
PHASES = {"prepare": "calibrating", "repairs": "repairs", "probes": "probes", "trials": "trials", "heldout": "held-out"}


def _found() -> dict[str, dict[str, float]]:
    known: dict[str, dict[str, float]] = json.loads((RESULTS / "large.json").read_text(encoding="utf-8"))
    return {name: known[long] for long, name in NAMES.items() if long in known}


def large() -> str:
    """What searches of large nets cost by stage, beside the inference of their scores."""
    rows = [(stage, f"{stage}, s", 1) for stage in STAGES]
    rows += [
        ("whole search", "whole search, s", 1),
        ("inference of all scores", "inference of all scores, s", 1),
        ("whole search / inference", "whole search / inference of all scores", 2),
        (f"until the first score / {FIRST}", f"the same / {FIRST}", 2),
        ("float file, MB", "float file, MB", 1),
        ("peak memory of all processes / float file", "peak memory / float file", 0),
        ("wall time, s", "wall time, s", 0),
    ]
    found = _found()
    shown = [[name, *(_cell(figures.get(key), digits) for figures in found.values())] for name, key, digits in rows]
    return table(["processor time, s, and others", *found], shown)


def measured() -> str:
    """What small models cost beside inference."""
    found = json.loads((RESULTS / "measure.json").read_text(encoding="utf-8"))
    digits = {"scored candidates": 0, "peak memory of all processes, GiB": 2, "trials stage, s": 0}
    digits["pure inference of the trials, s"] = 0
    names = {"mobilenet_v1": "MobileNetV1-0.25", "deep_conv_lstm": "DeepConvLSTM"}
    rows = [
        [name if not place else "", figure, f"{value:.{digits.get(figure, 2)}f}"]
        for key, name in names.items()
        for place, (figure, value) in enumerate(found[key].items())
    ]
    return table(["model", "figure", "value"], rows)


def guide() -> str:
    """Candidates a minute of the loop of the debugger's guide and of a search."""
    found = json.loads((RESULTS / "measure.json").read_text(encoding="utf-8"))["mobilenet_v3"]
    return table(["figure", "value"], ([figure, f"{value:.1f}"] for figure, value in found.items()))


def forecasts() -> str:
    """Wall time that ``check`` told over that taken, by phase."""
    found = _found()
    rows = [
        [name, *(f"{f[f'{key}, wall time by check, s'] / f[f'{key}, wall time, s']:.2f}" for f in found.values())]
        for key, name in PHASES.items()
    ]
    rows.append(["all", *(f"{figures['the same / wall time']:.2f}" for figures in found.values())])
    rows.append(["the check itself, s", *(f"{f['processor time of the check itself, s']:.0f}" for f in found.values())])
    return table(["told / taken", *found], rows)


def sums() -> str:
    """Least and largest of the ratios of whole searches, as a part of a sentence."""
    ratios = [figures["the same / wall time"] for figures in _found().values()]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def _cell(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
