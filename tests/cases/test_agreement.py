"""How often an emulated chip and the CPU say the same class."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from autoselect.cases.chip_jobs import _agreement
from autoselect.scoring.metrics import make_metric

COUNT = 250


def test_all_samples_count_also_the_last_ones() -> None:
    on_chip = [np.array([number % 3]) for number in range(COUNT)]

    def on_cpu(inputs: dict[str, int]) -> dict[str, np.ndarray]:
        answer = inputs["number"] % 3 if inputs["number"] < 200 else 3
        return {"y": np.eye(4)[answer][None]}

    store = SimpleNamespace(inputs=lambda number: {"number": number})
    case = SimpleNamespace(scoring=SimpleNamespace(metric=make_metric("accuracy")), part=lambda _: store)
    found = _agreement(cast("Any", case), cast("Any", on_cpu), range(COUNT), cast("Any", on_chip))
    assert found == pytest.approx(200 / COUNT)
