"""What the phases of a search cost, in counts: the same on every machine."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import autoselect
from autoselect.cases.events import Event, StageStarted
from autoselect.embedded import calibration, model_path, search_samples
from autoselect.isolation import pool
from autoselect.quantize.building.build import Builder
from autoselect.quantize.repairing import weight_rounding
from autoselect.tflite import flatbuffer
from autoselect.tflite.runner import Runner

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))
from at_once import AtOnce

MOST = {"builds": 97, "inferences": 2145, "files": 127, "rounded layers": 22, "parsed files": 58}
"""Before the first proposal, a twentieth above what was counted: which repairs help may be chance. A change that costs
more is to say why. Files are also those that give intermediate tensors, which run on delegates."""


def test_what_comes_before_the_first_proposal_costs_no_more_than_it_did(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    counts, kept = Counter[str](), Counter[str]()

    def count(owner: Any, name: str, what: str, size: Callable[..., int] = lambda *_: 1) -> None:
        own = getattr(owner, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            counts[what] += size(*arguments)
            return own(*arguments, **options)

        monkeypatch.setattr(owner, name, counted)

    def begun(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == "trials":
            kept.clear()  # Whole models are told before: the last start is that of the sampler's.
            kept.update(counts)

    count(Builder, "_put_together", "builds")
    count(Runner, "step", "inferences")
    count(flatbuffer, "serialise", "files")
    count(flatbuffer, "parse", "parsed files")
    count(weight_rounding, "_measure", "rounded layers", lambda _runner, _model, layers, _samples: len(layers))
    with pool.shared(AtOnce()):
        autoselect.search(
            model_path(),
            calibration=lambda: itertools.islice(calibration(), 20),
            evaluation=lambda: itertools.islice(search_samples(), 60),
            trials=7,
            workers=1,
            cache=False,
            early_exit=False,
            output=tmp_path / "run",
            listener=begun,
        )
    assert {what: n for what, n in kept.items() if n > MOST[what]} == {}
    assert kept.keys() == MOST.keys()
