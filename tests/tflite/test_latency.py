from __future__ import annotations

from collections.abc import Callable

import pytest
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.interpreter import Interpreter

from autoselect.embedded import data, model_bytes
from autoselect.tflite.runner import Latency, latency_of, repeated


def clock_of(seconds: Callable[[int], float]) -> Callable[[], float]:
    """Runs that take so long: ``seconds(0)`` the first time, then ``seconds(1)``."""
    count = iter(range(10_000))
    return lambda: seconds(next(count))


REPEATED = {
    # Three runs warm up and take a second; the five that count take 1 to 5 seconds.
    "slow ones are run five times": (
        lambda i: 1.0 if i < 3 else i - 2.0,
        Latency(median=3e3, low=2e3, high=4e3, runs=5),
    ),
    "quick ones fifty times": (lambda i: 0.001, Latency(median=1.0, low=1.0, high=1.0, runs=50)),
    # 0.06 s each: the ninth passes half a second.
    "until half a second": (lambda i: 0.06, Latency(median=60.0, low=60.0, high=60.0, runs=9)),
}


@pytest.mark.parametrize(("seconds", "expected"), REPEATED.values(), ids=REPEATED)
def test_warm_up_does_not_count(seconds: Callable[[int], float], expected: Latency) -> None:
    found = repeated(clock_of(seconds))
    assert (found.median, found.low, found.high) == pytest.approx((expected.median, expected.low, expected.high))
    assert found.runs == expected.runs


@pytest.mark.parametrize("threads", [1, 2])
def test_a_model_is_timed(threads: int) -> None:
    (sample,) = next(iter(data.calibration()))
    found = latency_of(model_bytes(), {"window": sample}, threads=threads)
    assert 0.0 < found.low <= found.median <= found.high


def test_litert_offers_no_profile_of_ops() -> None:
    """The day this fails, latency can be told by op, and the documentation of targets is to be changed."""
    for kind in (Interpreter, CompiledModel):
        assert not [name for name in dir(kind) if not name.startswith("_") and "profil" in name.lower()]
