from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zoo

from autoselect.cases import divergence
from autoselect.cases.divergence import closeness, shares_of, spread_rows
from autoselect.domain.recipe import Recipe
from autoselect.tflite import wide_kernels
from autoselect.tflite.runner import Runner

FLOAT = [{"mask": np.array([3.0, 4.0]), "state": np.array([1000.0])}, {"mask": np.zeros(2), "state": np.zeros(1)}]


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two calibration samples, which are their own numbers, and the float outputs on them."""
    monkeypatch.setattr(divergence, "float_outputs", lambda root, samples, rows: [FLOAT[row] for row in rows])
    store = SimpleNamespace(inputs=lambda row: row)
    samples = type("Store", (), {"__len__": lambda _: 2, "inputs": lambda _, row: store.inputs(row)})()
    return SimpleNamespace(
        files=SimpleNamespace(root="case"), samples=lambda name: samples, scored=lambda outputs: outputs
    )


ROWS: dict[str, tuple[Callable[[int], dict[str, np.ndarray]], float]] = {
    "equal": (lambda row: FLOAT[row], 200.0),
    "each output counts the same": (
        lambda row: {"mask": np.array([3.0, 3.0]), "state": np.array([1000.0])},
        10 * math.log10(2 * 25),
    ),
    "what is large does not hide what is small": (
        lambda row: {"mask": np.zeros(2), "state": np.array([1000.0])},
        10 * math.log10(2),
    ),
    "what is no number is no sample to leave out": (
        lambda row: {"mask": np.array([3.0, math.nan]), "state": np.array([1000.0])},
        10 * math.log10(2) - 200.0,
    ),
}


@pytest.mark.parametrize(("run", "expected"), ROWS.values(), ids=ROWS)
def test_closeness_is_that_of_samples_on_which_float_says_something(
    case: Any, run: Callable[[int], dict[str, np.ndarray]], expected: float
) -> None:
    """An error power of 1 of 25 in the mask and none in the state is a share of 1 in 50."""
    runner: Any = SimpleNamespace(go_on=run, reset=lambda: None)
    assert closeness(case, runner).mean() == pytest.approx(expected)


def test_no_sample_counts_for_more_than_outputs_of_the_wrong_sign() -> None:
    """20 dB are a hundredth, nothing but noise is a share of one, and hardly any signal is capped at four."""
    assert shares_of(np.array([20.0, 0.0, -60.0])) == pytest.approx([0.01, 1.0, 4.0])
    assert divergence.divergence([0.5, 1e6]) == pytest.approx(2.25)
    assert math.isnan(divergence.divergence([]))


@pytest.mark.parametrize("count", [1, 8, 9, 500])
def test_rows_are_drawn_from_everywhere_and_always_the_same(count: int) -> None:
    rows = spread_rows(count, 8)
    assert rows == spread_rows(count, 8)
    assert rows == sorted(set(rows))
    assert len(rows) == min(count, 8)
    assert 0 <= rows[0] <= rows[-1] < count
    if count == 500:
        assert rows[-1] > count // 2


def test_slow_16_bit_convolutions_are_stood_in_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with 16 bits is tried alone for each unit: on LiteRT's own kernels that took longer than the search."""
    import tensorflow as tf

    prepared = zoo.from_function(lambda x: tf.nn.conv2d(x, zoo.weights(3, 3, 2, 4), 1, "SAME"), (1, 8, 8, 2)).prepared
    expected = [Runner(prepared.calibrated.content)(sample) for sample in prepared.fed()]
    samples: Any = lambda *_: iter(prepared.fed())  # noqa: E731
    monkeypatch.setattr(wide_kernels, "WORTH_IT", 1)
    case = SimpleNamespace(
        builder=prepared.builder,
        files=SimpleNamespace(root=Path()),
        samples=lambda _: expected,
        scored=lambda outputs: outputs,
    )
    monkeypatch.setattr(divergence, "open_case", lambda root: case)
    monkeypatch.setattr(divergence, "samples_of", samples)
    monkeypatch.setattr(divergence, "float_outputs", lambda *_: expected)
    ran: list[bytes] = []
    monkeypatch.setattr(divergence, "Runner", lambda content: ran.append(content) or Runner(content))
    recipe = Recipe(int16_nodes=frozenset({"*"}))
    assert wide_kernels.slow_macs(prepared.builder.build(recipe).content) > 0
    shares = divergence.error_shares(Path(), recipe.to_json(), "calibration", range(3))
    assert [wide_kernels.slow_macs(content) for content in ran] == [0]
    assert 0.0 < max(shares) < 1e-3


STEADY = {
    "equal from the first": ([0.1] * 8, 0.5, 4),
    "nothing at all": ([0.0] * 8, 0.5, 4),
    "all are asked for": ([0.1] * 8, 0.0, 8),
    "one in eight is ruined": ([0.1, 0.1, 4.0, *[0.1] * 5], 0.5, 8),
    "steady after six": ([0.1, 0.3, 0.2, 0.01, *[0.2] * 4], 0.5, 6),
}


@pytest.mark.parametrize(("powers", "within", "count"), STEADY.values(), ids=STEADY)
def test_a_probe_ends_when_its_mean_is_known(powers: list[float], within: float, count: int) -> None:
    left = iter(powers)
    expected = divergence.Expected(outputs=[{"y": np.array([1.0])}] * 8)
    found = expected.shares(lambda _: {"y": np.array([1.0 + math.sqrt(next(left))])}, [{}] * 8, within)
    assert found == pytest.approx(powers[:count])


def looked_at(monkeypatch: pytest.MonkeyPatch, runner: type, samples: str, rivals: Any) -> divergence.Looked:
    """What is seen of a candidate of this runner on 16 samples, which are their own numbers; float outputs are 1."""
    built = SimpleNamespace(content=lambda recipe: b"12345678")
    store = SimpleNamespace(inputs=lambda row: row)
    case = SimpleNamespace(
        builder=built,
        files=SimpleNamespace(root=Path()),
        samples=lambda _: store,
        scored=lambda outputs: outputs,
    )
    monkeypatch.setattr(divergence, "Runner", runner)
    monkeypatch.setattr(wide_kernels, "quick", lambda content: content)
    monkeypatch.setattr(divergence, "open_case", lambda _: case)
    monkeypatch.setattr(divergence, "float_outputs", lambda root, samples, rows: [{"y": np.ones(1)}] * len(rows))
    [looked] = divergence.look_at_each(Path(), [Recipe().to_json()], samples, range(16), rivals)
    return looked


RIVALS = {"far worse": (0.5, 0.05, 4), "near": (1.05, 0.05, 16), "better": (2.0, 0.05, 16), "equal": (1.0, 0.0, 16)}


@pytest.mark.parametrize(("others", "apart", "runs"), RIVALS.values(), ids=RIVALS)
def test_what_is_not_worth_its_price_beyond_doubt_runs_no_further(
    monkeypatch: pytest.MonkeyPatch, others: float, apart: float, runs: int
) -> None:
    """Outputs of the candidate are off by a tenth, a little more or less by sample."""
    errors = 0.1 + 0.002 * np.cos(np.arange(16.0))
    ran: list[int] = []

    class Candidate:
        has_steps = False

        def __init__(self, _content: bytes) -> None:
            pass

        def __call__(self, row: int) -> dict[str, np.ndarray]:
            ran.append(row)
            return {"y": np.array([1.0 + errors[row]])}

    rivals = ([(others * (1.0 + apart * np.resize([1, 1, 1, 1, -1, -1, -1, -1], 16)) * errors**2).tolist()], [8], 0.95)
    looked = looked_at(monkeypatch, Candidate, "search", rivals)
    assert sorted(ran) == list(range(0, 16, 16 // runs))
    assert looked.shares == pytest.approx(errors[:: 16 // runs] ** 2)
    assert looked.is_whole == (runs == 16)


def test_steps_run_in_their_order_whatever_would_end_them_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidate is far worse than what it would replace, which ends others after four samples of sixteen."""
    ran: list[int] = []

    class Stepping:
        has_steps = True

        def __init__(self, _content: bytes) -> None:
            pass

        def go_on(self, row: int) -> dict[str, np.ndarray]:
            ran.append(row)
            return {"y": np.array([1.5])}

    rivals = ([[0.01] * 16], [8], 0.95)
    looked = looked_at(monkeypatch, Stepping, "calibration", rivals)
    assert ran == list(range(16))
    assert looked.is_whole
