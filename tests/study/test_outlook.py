from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import table

from autoselect.cases.events import ignore
from autoselect.cases.settings import make_settings
from autoselect.errors import ScoreError
from autoselect.study.proposing.problem import Atom
from autoselect.study.setup.problem import probe_samples, probed


@pytest.mark.parametrize(
    ("search_samples", "expected"), [(0, 8), (1, 2), (15, 2), (16, 2), (24, 3), (63, 7), (64, 8), (1000, 8)]
)
def test_a_probe_takes_an_eighth_of_a_candidate_between_two_and_eight(search_samples: int, expected: int) -> None:
    assert probe_samples(search_samples) == expected


class Probes:
    """Answers for each atom what it does alone: error shares, or an error."""

    def __init__(self, answers: list[list[float] | Exception]) -> None:
        self._answers = iter(answers)

    def submit(self, *_: Any, **__: Any) -> Future[list[float]]:
        future: Future[list[float]] = Future()
        answer = next(self._answers)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future


def try_alone(answers: list[list[float] | Exception], count: int) -> tuple[list[float], tuple[str, ...]]:
    """Sensitivities and remarks for atoms whose statistics say 7."""
    atoms = [Atom(nodes=frozenset({f"n{i}"}), op_type="ADD", position=i, sensitivity=7.0) for i in range(count)]
    layers = table(*((f"n{i}", "ADD", 0.3) for i in range(count)))
    case: Any = SimpleNamespace(files=SimpleNamespace(root=Path("case")), layers=layers, counts={"calibration": 3})
    found, remarks = probed(atoms, case, make_settings(), Probes(answers), ignore)  # type: ignore[arg-type]
    return [atom.sensitivity for atom in found], remarks


def test_atoms_are_known_by_what_they_do_alone() -> None:
    assert try_alone([[0.1, 0.3], [0.5]], 2) == ([0.2, 0.5], ())


def test_a_probe_that_fails_leaves_the_statistics_and_is_told() -> None:
    found, remarks = try_alone([[0.1], ScoreError("It died."), []], 3)
    assert found == [0.1, 7.0, 7.0]
    (remark,) = remarks
    assert remark.startswith("2 of 3 units could not be tried alone")
    assert "debugger's statistics" in remark.lower()
    assert remark.endswith("The first reason: It died.")


def test_more_units_than_are_probed_are_told() -> None:
    found, remarks = try_alone([], 201)
    assert found == [7.0] * 201
    (remark,) = remarks
    assert remark.startswith("The 201 units of this model were not tried one by one, which is done for up to 200")
    assert try_alone([[0.1]] * 200, 200)[1] == ()
