"""Which inputs and outputs leave the ranges that calibration saw, from samples to the warning of a search."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zoo
from reviewing import Reviewed
from settling import settled

import autoselect
from autoselect.cases import clipping_jobs, score_jobs
from autoselect.cases.events import Event, Warned, ignore
from autoselect.cases.files import FLOAT
from autoselect.cases.ingredients import Ingredients
from autoselect.cases.prepare import prepare_case
from autoselect.isolation.pool import WorkerPool
from autoselect.scoring.metrics import make_metric

RNG = np.random.default_rng(0)
CALIBRATION = RNG.uniform(-1.0, 1.0, (40, 8)).astype(np.float32)


def plain(x: Any) -> Any:
    return x @ zoo.weights(8, 4)


def shares(x: Any) -> Any:
    """The softmax has a fixed scale, and the rearranged values are its own."""
    import tensorflow as tf

    return tf.transpose(tf.nn.softmax(plain(x)), (1, 0))


def bounded(x: Any) -> Any:
    import tensorflow as tf

    return tf.tanh(plain(x))


def warnings(call: Any, evaluation: np.ndarray, folder: Path) -> list[str]:
    content = zoo.from_function(call, (1, 8)).float_model
    calibration, scored = ([sample[np.newaxis] for sample in samples] for samples in (CALIBRATION, evaluation))
    return warnings_of(content, calibration, scored, folder)


def warnings_of(content: bytes, calibration: list[np.ndarray], evaluation: list[np.ndarray], folder: Path) -> list[str]:
    events: list[Event] = []
    autoselect.search(
        content,
        calibration=calibration,
        evaluation=evaluation,
        metric="sqnr_db",
        trials=1,
        workers=1,
        repairs=False,
        allow_overlap=True,
        output=folder / "run",
        listener=events.append,
        cache=False,
    )
    return [e.message for e in events if isinstance(e, Warned) and e.message.startswith("Values")]


def test_a_calibration_of_far_wider_inputs_is_warned_of(reviewed: Reviewed, tmp_path: Path) -> None:
    [message] = warnings(plain, CALIBRATION / 255.0, tmp_path)
    assert "'x0'" in message
    assert "-0.00392 to 0.0039, calibration -0.999" in message
    reviewed("values that fill little of what calibration saw", message, measured=True)


@pytest.mark.parametrize(("scale", "count"), [(0.2, 40), (1 / 255, 12)], ids=["alike", "few samples"])
def test_ranges_that_are_alike_or_hardly_known_are_not_warned_of(scale: float, count: int, tmp_path: Path) -> None:
    assert warnings(plain, scale * CALIBRATION[:count], tmp_path) == []


def test_values_beyond_what_calibration_saw_are_warned_of_once(reviewed: Reviewed, tmp_path: Path) -> None:
    evaluation = np.concatenate([CALIBRATION, 8.0 * CALIBRATION])
    [message] = warnings(plain, evaluation, tmp_path)
    outputs = CALIBRATION @ zoo.weights(8, 4)
    assert ": input 'x0' is" in message
    assert "output 'output_0'" in message
    assert " of 40 search samples (it has -" in message
    for values in (CALIBRATION, outputs):
        assert f"calibration {values.min():.3g} to {values.max():.3g})" in message
    reviewed("values beyond what calibration saw", message, measured=True)


@pytest.mark.parametrize(("dtype", "is_moved"), [("uint8", False), ("int8", False), ("uint8", True)])
def test_pictures_that_were_not_scaled_for_calibration_are_told(tmp_path: Path, dtype: str, is_moved: bool) -> None:
    """Pictures of 0 and 1 in 8 bits, as one gets of a picture from 0 to 1."""
    spec, rng = zoo.tf().TensorSpec((1, 8), dtype, name="x0"), np.random.default_rng(0)

    def call(x: Any) -> Any:
        moved = zoo.tf().reshape(x, (8, 1)) if is_moved else x
        return zoo.tf().tanh(zoo.tf().reshape(zoo.tf().cast(moved, "float32"), (1, 8)) @ zoo.weights(8, 4))

    content = zoo.Source(zoo.tf().function(call, autograph=False).get_concrete_function(spec), ()).float_model
    dark, bright = (list(rng.integers(0, most, (20, 1, 8)).astype(dtype)) for most in (2, 120))
    told = [
        warnings_of(content, samples, bright, tmp_path / str(place)) for place, samples in enumerate((dark, bright))
    ]
    assert [len(messages) for messages in told] == [1, 0]
    assert "input 'x0' is beyond" in told[0][0]


def test_inputs_of_another_preparation_are_told_where_the_outputs_keep_their_range(tmp_path: Path) -> None:
    [message] = warnings(bounded, 8.0 * CALIBRATION, tmp_path)
    assert "input 'x0' is beyond" in message
    assert "output" not in message


@pytest.mark.parametrize(
    ("call", "factor"), [(plain, 1.0), (plain, 1.01), (shares, 8.0)], ids=["the same", "a little", "a fixed scale"]
)
def test_what_integers_hold_is_not(call: Any, factor: float, tmp_path: Path) -> None:
    assert not [message for message in warnings(call, factor * CALIBRATION, tmp_path) if "output" in message]


def bounded_inside(x: Any) -> Any:
    """The first sum leaves its range with the inputs; its tanh does not, and so neither does what reads that."""
    import tensorflow as tf

    return tf.tanh(plain(x) * 1e3) @ zoo.weights(4, 4), plain(x) * 2.0


@pytest.mark.parametrize("factor", [1.0, 8.0])
def test_nodes_whose_values_integers_cut_off_are_known(
    factor: float, tmp_path: Path, session_workers: WorkerPool
) -> None:
    ingredients = Ingredients(
        model=zoo.from_function(bounded_inside, (1, 8)).float_model,
        calibration=[sample[np.newaxis] for sample in CALIBRATION],
        evaluation=[factor * sample[np.newaxis] for sample in CALIBRATION],
        heldout=[sample[np.newaxis] for sample in CALIBRATION],
        metric=make_metric("sqnr_db"),
        evaluator=None,
    )
    settings = settled(debug_samples=1, allow_overlap=True)
    with session_workers.lent(tmp_path / "worker.log") as pool:
        case = prepare_case(
            ingredients, settings, root=tmp_path / "case", pool=pool, quantizer=pool, cache_root=None, listener=ignore
        )
        case.references.wait("search", pool, ignore)
    score_jobs.score(case.files.root, FLOAT, "search", False)
    found = clipping_jobs.clipped_nodes(case.files.root)
    types = [node.op_type for node in case.layers.nodes if node.name in found]
    assert types == ([] if factor == 1.0 else ["FULLY_CONNECTED", "MUL", "MUL"])


def test_an_input_without_elements_has_no_ends(tmp_path: Path) -> None:
    runner: Any = SimpleNamespace(told=None)
    with clipping_jobs.ends_kept(runner, tmp_path / "ends.npz"):
        runner.told({"none": np.zeros((1, 0), np.float32)}, {"some": np.array([1.0, 3.0], np.float32)})
    with np.load(tmp_path / "ends.npz") as found:
        assert found["names"].tolist() == ["output some"]
        assert found["arr_0"].tolist() == [[1.0, 3.0]]
