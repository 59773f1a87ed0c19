from __future__ import annotations

import numpy as np
import pytest

from autoselect.domain.objectives import Constraints, Objective, drop_from, losses, score_at


def test_directions_become_losses() -> None:
    objectives = [Objective(name="accuracy", direction="maximize"), Objective(name="size", direction="minimize")]
    assert losses(np.array([[0.9, 10.0], [0.5, 4.0]]), objectives).tolist() == [[-0.9, 10.0], [-0.5, 4.0]]


@pytest.mark.parametrize(
    ("reference", "score", "direction", "drop"),
    [
        pytest.param(0.9, 0.7, "maximize", 0.2, id="accuracy falls"),
        pytest.param(0.9, 1.0, "maximize", -0.1, id="accuracy rises"),
        pytest.param(2.0, 2.5, "minimize", 0.5, id="error rises"),
        pytest.param(2.0, 1.5, "minimize", -0.5, id="error falls"),
    ],
)
def test_a_drop_is_positive_for_worse(reference: float, score: float, direction: str, drop: float) -> None:
    assert drop_from(reference, score, direction) == pytest.approx(drop)  # type: ignore[arg-type]
    assert score_at(reference, drop, direction) == pytest.approx(score)  # type: ignore[arg-type]


LIMITS = Constraints(max_drop=0.02, max_size_bytes=1000, max_penalty=0.5)


@pytest.mark.parametrize(
    ("limits", "figures", "expected"),
    [
        pytest.param(LIMITS, (0.01, 500, 0.25), (-0.5, -0.5, -0.5), id="met by half"),
        pytest.param(LIMITS, (0.02, 1000, 0.5), (0.0, 0.0, 0.0), id="met exactly"),
        pytest.param(LIMITS, (0.03, 2000, 1.0), (0.5, 1.0, 1.0), id="broken"),
        pytest.param(LIMITS, (0.1 - 0.08, 1000, 0.5), (0.0, 0.0, 0.0), id="broken by rounding only"),
        pytest.param(Constraints(max_drop=0.0), (0.01, 1, 1), (0.01, -1.0, -1.0), id="a limit of 0 is absolute"),
        pytest.param(Constraints(max_drop=-0.5), (-0.25, 1, 1), (0.5, -1.0, -1.0), id="a gain is asked for"),
        pytest.param(Constraints(), (9.0, 9, 9), (-1.0, -1.0, -1.0), id="no limits"),
    ],
)
def test_violations_are_relative_to_the_limit(
    limits: Constraints, figures: tuple[float, float, float], expected: tuple[float, float, float]
) -> None:
    drop, size, penalty = figures
    found = limits.violations(drop=drop, size_bytes=size, penalty=penalty)
    assert list(found) == ["max_drop", "max_size", "max_penalty"]
    assert list(found.values()) == pytest.approx(expected, abs=1e-12)
    # A study reads the sign: rounding must not turn a limit that is met into one that is broken.
    assert [v > 0 for v in found.values()] == [v > 0 for v in expected]


@pytest.mark.parametrize(
    ("limits", "there"),
    [
        pytest.param(Constraints(), False, id="none"),
        pytest.param(Constraints(max_drop=0.0), True, id="0 is a limit"),
        pytest.param(Constraints(max_penalty=1.0), True, id="penalty"),
    ],
)
def test_whether_there_are_limits(limits: Constraints, there: bool) -> None:
    assert limits.any is there
