"""What an emulated chip gives is compared with the CPU on all samples, and kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autoselect.cases.chip_jobs import _on_chip
from autoselect.cases.files import CaseFiles
from autoselect.scoring.metrics import make_metric

COUNT = 250
METRIC = make_metric("accuracy")


class Case:
    """The emulation says class 3 of the last 50 samples, and class ``number % 3`` of all others, as the CPU does."""

    def __init__(self, root: Path) -> None:
        self.files, self.scoring, self.emulations = CaseFiles(root=root), SimpleNamespace(metric=METRIC), 0
        self._store = Store()

    def part(self, _part: str) -> Store:
        return self._store

    def reference(self, _part: str) -> None:
        return None

    def emulated_runner(self, _sha256: str, _chip: object) -> Any:
        def run(inputs: Mapping[str, int]) -> dict[str, np.ndarray]:
            self.emulations += 1
            return answer(inputs["number"] % 3 if inputs["number"] < 200 else 3)

        return run

    def cpu_runner(self, _sha256: str) -> Any:
        return lambda inputs: answer(inputs["number"] % 3)


class Store:
    def __len__(self) -> int:
        return COUNT

    def inputs(self, number: int) -> dict[str, int]:
        return {"number": number}

    def target(self, number: int) -> np.ndarray:
        return np.array(number % 3)


def answer(label: int) -> dict[str, np.ndarray]:
    return {"y": np.eye(4)[label][None]}


def on_chip(case: Case, count: int) -> tuple[list[np.ndarray], float]:
    chip: Any = SimpleNamespace(name="a chip")
    fake: Any = case
    return _on_chip(fake, "abc", chip, [METRIC], range(count))


def test_all_samples_count_also_the_last_ones(tmp_path: Path) -> None:
    rows, agreement = on_chip(Case(tmp_path), COUNT)
    assert METRIC.summarise(rows[0]) == pytest.approx(200 / COUNT)
    assert agreement == pytest.approx(200 / COUNT)


def test_what_was_emulated_is_not_emulated_again(tmp_path: Path) -> None:
    case = Case(tmp_path)
    first, again = on_chip(case, COUNT), on_chip(case, COUNT)
    assert case.emulations == COUNT
    assert np.array_equal(first[0], again[0])
    assert first[1] == again[1]
    on_chip(case, 10)  # Other samples are asked for.
    assert case.emulations == COUNT + 10
