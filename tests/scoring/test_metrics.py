from __future__ import annotations

import math
import pickle
import re
from collections.abc import Sequence
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import expit, softmax
from scipy.stats import entropy
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    cohen_kappa_score,
    f1_score,
    jaccard_score,
    roc_auc_score,
    top_k_accuracy_score,
)

from autoselect.errors import AutoselectError, DataError, MetricError, ScoreError, UsageError
from autoselect.scoring.metrics import METRIC_NAMES, Metric, make_metric

Array = np.ndarray


def one(values: object) -> dict[str, Array]:
    return {"out": np.asarray(values, dtype=np.float32)}


def row_of(metric: Metric, values: object, target: object = None, reference: object = None) -> list[float]:
    other = None if reference is None else one(reference)
    row = metric.observe(one(values), target, other)
    assert row.dtype == np.float64
    assert row.ndim == 1
    return [float(value) for value in row]


def score(metric: Metric, outputs: Sequence[object], targets: Sequence[object]) -> float:
    return metric.summarise([metric.observe(one(o), t, None) for o, t in zip(outputs, targets, strict=True)])


# ------------------------------------------------------------------------------------- without a look

BLIND = {
    "the commonest class": ("accuracy", [2, 1, 2, 0], (1, 4), [0.25, 0.25, 0.5, 0.0]),
    "of one unit it is a zero": ("f1_macro", [0, 1, 0], (1, 1), [0.0]),
    "or a one": ("accuracy", [1, 1, 0], (1, 1), [1.0]),
    "the mean": ("mse", [[1.0, 2.0], [3.0, 6.0]], (1, 2), [2.0, 4.0]),
    "nobody knows": ("agreement", [0, 1], (1, 2), None),
}


@pytest.mark.parametrize(("name", "targets", "shape", "expected"), BLIND.values(), ids=BLIND)
def test_one_answer_to_all_samples(
    name: str, targets: list[object], shape: tuple[int, ...], expected: list[float] | None
) -> None:
    found = make_metric(name).blind(targets, shape)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert (found.shape, found.ravel().tolist()) == (shape, expected)


# --------------------------------------------------------------------------------- many samples at once

BLOCKS = {
    "classes": (5, 1, 7),
    "one unit": (5, 1, 1),
    "flat classes": (5, 7),
    "an image": (5, 1, 4, 3, 7),
    "a map": (5, 1, 4, 3, 1),
}
DENSE = {"an image", "a map"}
LABELS_ONLY = {"accuracy", "top5_accuracy", "balanced_accuracy", "f1_macro", "cohen_kappa"}


def suits(name: str, kind: str) -> bool:
    """Whether the metric takes outputs of this kind."""
    if name == "mean_iou":
        return kind in DENSE
    return name not in LABELS_ONLY or (kind not in DENSE and (name != "top5_accuracy" or BLOCKS[kind][-1] > 5))


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n in METRIC_NAMES for k in BLOCKS if suits(n, k)])
def test_many_samples_at_once_give_what_each_gives_alone(name: str, kind: str) -> None:
    metric, shape = make_metric(name), BLOCKS[kind]
    rng = np.random.default_rng(0)
    outputs, reference = (one(softmax(rng.normal(size=shape), axis=-1)) for _ in range(2))
    labels = {"mean_iou": shape[1:-1], **dict.fromkeys(LABELS_ONLY, ())}.get(name)
    drawn = rng.random(shape) if labels is None else rng.integers(0, max(shape[-1], 2), size=(shape[0], *labels))
    targets = list(drawn) if metric.needs_targets else None

    together = metric.observe_block(outputs, targets, reference)

    alone = [
        metric.observe(one(outputs["out"][i]), targets[i] if targets else None, one(reference["out"][i]))
        for i in range(shape[0])
    ]
    np.testing.assert_array_equal(together, np.stack(alone))


@pytest.mark.parametrize("name", ["accuracy", "agreement", "sqnr_db", "mse"])
def test_an_output_that_is_no_number_is_refused_among_many(name: str) -> None:
    bad = one(np.ones((3, 1, 4)))
    bad["out"][1, 0, 2] = np.nan
    with pytest.raises(ScoreError, match="1 NaN"):
        make_metric(name).observe_block(
            bad, [np.ones((1, 4))] * 3 if name == "mse" else [0, 1, 2], one(np.ones((3, 1, 4)))
        )


@pytest.mark.parametrize("name", [n for n in METRIC_NAMES if make_metric(n).needs_targets])
def test_targets_that_are_needed_are_missed_among_many(name: str) -> None:
    """No output suits every metric: one score per class for most, a map for mean IoU."""
    outputs = one(np.ones((3, 1, 2, 2, 7) if name == "mean_iou" else (3, 1, 7)))
    with pytest.raises(DataError, match="got none"):
        make_metric(name).observe_block(outputs, None, None)


# ------------------------------------------------------------------------------------------ catalogue

TRAITS = {
    "accuracy": ("maximize", True, False, True),
    "top5_accuracy": ("maximize", True, False, True),
    "balanced_accuracy": ("maximize", True, False, False),
    "f1_macro": ("maximize", True, False, False),
    "cohen_kappa": ("maximize", True, False, False),
    "mean_iou": ("maximize", True, False, False),
    "mse": ("minimize", True, False, True),
    "mae": ("minimize", True, False, True),
    "psnr": ("maximize", True, False, True),
    "agreement": ("maximize", False, True, True),
    "sqnr_db": ("maximize", False, True, True),
    "kl_divergence": ("minimize", False, True, True),
}


def test_the_catalogue_is_complete() -> None:
    assert set(METRIC_NAMES) == set(TRAITS)


@pytest.mark.parametrize("name", TRAITS)
def test_traits(name: str) -> None:
    metric = make_metric(name)
    traits = (metric.direction, metric.needs_targets, metric.needs_reference, metric.is_mean)
    assert (metric.name, traits) == (name, TRAITS[name])
    assert make_metric(name, direction=metric.direction).direction == metric.direction
    assert pickle.loads(pickle.dumps(metric)).name == name


REFUSED_SPECS: dict[str, tuple[object, str | None, type[AutoselectError], str]] = {
    "near miss": ("acuracy", None, MetricError, "Did you mean 'accuracy'"),
    "lists the catalogue": ("loss", None, MetricError, "top5_accuracy, balanced_accuracy, f1_macro"),
    "other direction": ("mse", "maximize", MetricError, "expected the direction 'minimize', got 'maximize'"),
    "function without direction": (lambda t, p: 1.0, None, MetricError, "'maximize' or 'minimize', got None"),
    "spec without direction": ("math:pow", None, MetricError, "'math:pow': expected the direction"),
    "mistyped direction": ("math:pow", "max", MetricError, "got 'max'"),
    "spec of no function": ("math:pi", "maximize", MetricError, "got float"),
    "spec of nothing": ("math:powr", "maximize", UsageError, "Did you mean 'pow'"),
    "number": (7, "maximize", MetricError, "got int"),
}


@pytest.mark.parametrize(("spec", "direction", "kind", "words"), REFUSED_SPECS.values(), ids=REFUSED_SPECS.keys())
def test_make_metric_refuses(spec: str, direction: str | None, kind: type[AutoselectError], words: str) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        make_metric(spec, direction=direction)


# ------------------------------------------------------------------------------------- classification

HITS = {
    "hit": ([[0.1, 0.7, 0.2]], 1, 1.0),
    "miss": ([[0.1, 0.7, 0.2]], 2, 0.0),
    "spatial axes": ([[[[0.1, 0.7, 0.2]]]], 1, 1.0),
    "channels first": ([[[0.1]], [[0.7]]], 1, 1.0),
    "tie goes to the lower class": ([[0.5, 0.5]], 0, 1.0),
    "single unit, yes": ([[0.51]], 1, 1.0),
    "single unit, no": ([[0.5]], 0, 1.0),
    "label in an array": ([[0.1, 0.9]], np.array([1], np.uint8), 1.0),
    "label as a whole float": ([[0.1, 0.9]], 1.0, 1.0),
}


@pytest.mark.parametrize(("values", "target", "expected"), HITS.values(), ids=HITS)
def test_accuracy_rows(values: object, target: object, expected: float) -> None:
    assert row_of(make_metric("accuracy"), values, target) == [expected]


RANKS = {
    "first": (0, 1.0),
    "fifth": (4, 1.0),
    "sixth": (5, 0.0),
}


@pytest.mark.parametrize(("label", "expected"), RANKS.values(), ids=RANKS)
def test_top5_rows(label: int, expected: float) -> None:
    assert row_of(make_metric("top5_accuracy"), [[7, 6, 5, 4, 3, 2, 1]], label) == [expected]
    # All equal: the lower numbers come first, as with argmax.
    assert row_of(make_metric("top5_accuracy"), [[1] * 7], label) == [expected]


def test_top5_refuses_few_classes() -> None:
    with pytest.raises(MetricError, match="more than 5 classes, got 5"):
        row_of(make_metric("top5_accuracy"), [[1, 2, 3, 4, 5]], 0)


REFERENCES = {
    "accuracy": lambda t, p, s: accuracy_score(t, p),
    "top5_accuracy": lambda t, p, s: top_k_accuracy_score(t, s, k=5, labels=range(8)),
    "balanced_accuracy": lambda t, p, s: balanced_accuracy_score(t, p),
    "f1_macro": lambda t, p, s: f1_score(t, p, average="macro"),
    "cohen_kappa": lambda t, p, s: cohen_kappa_score(t, p),
}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("seed", range(3))
def test_classification_scores_equal_scikit_learn(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.random((200, 8), dtype=np.float32)
    targets = np.where(rng.random(200) < 0.5, scores.argmax(axis=1), rng.integers(8, size=200))
    got = score(make_metric(name), list(scores[:, np.newaxis]), list(targets))
    assert got == pytest.approx(REFERENCES[name](targets, scores.argmax(axis=1), scores), abs=1e-12)


PAIRS = {
    # Class 0: 2 of 3, class 1: 1 of 1; class 2 is predicted, never a label.
    "balanced_accuracy": ([[0, 0], [0, 0], [0, 2], [1, 1]], (2 / 3 + 1) / 2),
    # F1: class 0 = 4/5, class 1 = 1, class 2 = 0.
    "f1_macro": ([[0, 0], [0, 0], [0, 2], [1, 1]], (0.8 + 1 + 0) / 3),
    # Observed 3/4; by chance (2*3 + 2*1)/16 = 1/2.
    "cohen_kappa": ([[0, 0], [0, 0], [1, 0], [1, 1]], 0.5),
}


@pytest.mark.parametrize("name", PAIRS)
def test_scores_by_hand(name: str) -> None:
    rows, expected = PAIRS[name]
    assert make_metric(name).summarise(np.array(rows, dtype=np.float64)) == pytest.approx(expected)


def test_kappa_of_one_class_is_all_agreement() -> None:
    assert make_metric("cohen_kappa").summarise(np.array([[2.0, 2.0]] * 3)) == 1.0
    assert make_metric("cohen_kappa").summarise(np.array([[2.0, 1.0]] * 3)) == 0.0


@pytest.mark.parametrize("name", sorted(set(PAIRS)))
def test_pair_rows_hold_true_and_predicted(name: str) -> None:
    assert row_of(make_metric(name), [[0.1, 0.2, 0.7]], 1) == [1.0, 2.0]


@pytest.mark.parametrize("name", ["accuracy", "f1_macro", "top5_accuracy"])
def test_classification_refuses_dense_outputs(name: str) -> None:
    with pytest.raises(MetricError, match="per class"):
        row_of(make_metric(name), np.zeros((1, 4, 4, 3)), 1)
    with pytest.raises(MetricError, match="per class"):
        make_metric(name).check_target(1, (1, 4, 4, 3))


# --------------------------------------------------------------------------------------- segmentation

LABELS = np.array([[0, 0, 1], [1, 2, 2]])
PREDICTED = np.array([[0, 1, 1], [1, 2, 0]])


def test_mean_iou_by_hand() -> None:
    outputs = np.eye(4)[PREDICTED][np.newaxis]
    metric = make_metric("mean_iou")
    row = row_of(metric, outputs, LABELS[..., np.newaxis])
    assert np.reshape(row, (4, 4)).tolist() == [[1, 1, 0, 0], [0, 2, 0, 0], [1, 0, 1, 0], [0] * 4]
    # IoU 1/3, 2/3, 1/2; class 3 is nowhere.
    assert metric.summarise([np.array(row)]) == pytest.approx((1 / 3 + 2 / 3 + 1 / 2) / 3)


def test_mean_iou_equals_scikit_learn_over_all_pixels() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.random((6, 5, 4, 3)), rng.integers(3, size=(6, 5, 4))
    expected = jaccard_score(labels.ravel(), scores.argmax(axis=-1).ravel(), average="macro")
    assert score(make_metric("mean_iou"), list(scores[:, np.newaxis]), list(labels)) == pytest.approx(expected)


def test_mean_iou_of_a_single_channel_is_binary() -> None:
    row = row_of(make_metric("mean_iou"), [[[[0.9], [0.2], [0.8], [0.5]]]], [[1, 0, 0, 1]])
    assert row == [1, 1, 1, 1]


VOID = np.array([[0, 0, 255], [1, 2, 255]])


def test_mean_iou_leaves_void_pixels_out() -> None:
    metric, outputs = make_metric("mean_iou"), np.eye(4)[PREDICTED][np.newaxis]
    row = row_of(metric, outputs, VOID)
    assert np.reshape(row, (4, 4)).tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0] * 4]
    assert metric.summarise([np.array(row)]) == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)


def test_mean_iou_leaves_a_class_out() -> None:
    """Neither its pixels count nor its own intersection over union; where it is the answer, another class is missed."""
    metric = make_metric("mean_iou", ignore_label=0)
    row = row_of(metric, np.eye(4)[PREDICTED][np.newaxis], LABELS)
    assert np.reshape(row, (4, 4)).tolist() == [[0] * 4, [0, 2, 0, 0], [1, 0, 1, 0], [0] * 4]
    assert metric.summarise([np.array(row)]) == pytest.approx((1 + 1 / 2) / 2)


def test_mean_iou_with_an_ignored_class_equals_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.random((6, 5, 4, 3)), rng.integers(3, size=(6, 5, 4))
    kept = labels != 1
    expected = jaccard_score(labels[kept], scores.argmax(axis=-1)[kept], labels=[0, 2], average="macro")
    metric = make_metric("mean_iou", ignore_label=1)
    assert score(metric, list(scores[:, np.newaxis]), list(labels)) == pytest.approx(expected)


def test_nothing_but_void_has_no_score() -> None:
    metric = make_metric("mean_iou")
    row = row_of(metric, np.eye(4)[PREDICTED][np.newaxis], np.full((2, 3), 255))
    assert sum(row) == 0
    with pytest.raises(MetricError, match="void"):
        metric.summarise([np.array(row)])


@pytest.mark.parametrize("name", ["accuracy", "mse", "agreement", "math:isclose"])
def test_only_metrics_of_label_maps_ignore_a_label(name: str) -> None:
    with pytest.raises(MetricError, match="'mean_iou'"):
        make_metric(name, direction="maximize" if ":" in name else None, ignore_label=0)


# -------------------------------------------------------------------------------------- against values

ERRORS = {
    "mse": ("mse", [[1.0, 4.0]], [0.0, 2.0], 2.5),
    "mse of a column": ("mse", [[3.0]], 1, 4.0),
    "mae": ("mae", [[1.0, 4.0]], [[0.0, 2.0]], 1.5),
    "psnr, float target": ("psnr", [[0.5, 0.5]], [0.6, 0.4], 20.0),
    "psnr, integer target": ("psnr", [[0.1, 0.9]], np.array([0, 255], np.uint8), 20.0),
    "psnr, equal": ("psnr", [[0.0, 1.0]], np.array([0, 255], np.uint8), 200.0),
    "psnr of an image": ("psnr", np.zeros((1, 2, 2, 1)), np.full((2, 2), 0.1), 20.0),
}


@pytest.mark.parametrize(("name", "values", "target", "expected"), ERRORS.values(), ids=ERRORS)
def test_error_rows(name: str, values: object, target: object, expected: float) -> None:
    assert row_of(make_metric(name), values, target) == pytest.approx([expected], abs=1e-5)


def test_means_are_over_samples() -> None:
    assert score(make_metric("mse"), [[[1.0]], [[3.0]]], [0.0, 0.0]) == 5.0
    assert score(make_metric("psnr"), [[[0.1]], [[0.01]]], [0.0, 0.0]) == pytest.approx(30.0, abs=1e-5)


# ----------------------------------------------------------------------------- against the float model

NOISE = {
    "ten to one": ([[9.0, 0.0]], [[10.0, 0.0]], 20.0),
    "halved": ([[1.0, 1.0]], [[2.0, 2.0]], 10 * math.log10(4)),
    "equal": ([[1.0, 2.0]], [[1.0, 2.0]], 200.0),
    "both zero": ([[0.0]], [[0.0]], 200.0),
    "float zero": ([[1.0]], [[0.0]], -200.0),
}


@pytest.mark.parametrize(("values", "reference", "expected"), NOISE.values(), ids=NOISE)
def test_sqnr_rows(values: object, reference: object, expected: float) -> None:
    assert row_of(make_metric("sqnr_db"), values, reference=reference) == pytest.approx([expected])


def test_both_parts_of_complex_outputs_count() -> None:
    signal, noisy = ({"y": np.array([[value]], np.complex64)} for value in (6.0 + 8.0j, 6.0 + 9.0j))
    assert make_metric("sqnr_db").observe(noisy, None, signal) == pytest.approx([20.0])


AGREED = {
    "same": ([[0.1, 0.9]], [[0.4, 0.6]], 1.0),
    "other": ([[0.9, 0.1]], [[0.4, 0.6]], 0.0),
    "single unit, same side": ([[0.6]], [[0.9]], 1.0),
    "single unit, other side": ([[0.4]], [[0.9]], 0.0),
    "three of four positions": (
        [[[1, 0], [1, 0], [0, 1], [0, 1]]],
        [[[1, 0], [1, 0], [0, 1], [1, 0]]],
        0.75,
    ),
}


@pytest.mark.parametrize(("values", "reference", "expected"), AGREED.values(), ids=AGREED)
def test_agreement_rows(values: object, reference: object, expected: float) -> None:
    assert row_of(make_metric("agreement"), values, reference=reference) == [expected]


def test_class_numbers_agree_where_they_are_equal() -> None:
    ours, theirs = ({"y": np.array([rows], np.int64)} for rows in ([7, 2, 0, 9], [7, 1, 0, 9]))
    agreement = make_metric("agreement")
    assert agreement.observe(ours, None, theirs) == [0.75]
    both = [{"y": np.stack([outputs["y"], theirs["y"]])} for outputs in (ours, theirs)]
    assert agreement.observe_block(both[0], None, both[1]).tolist() == [[0.75], [1.0]]


P, Q = [0.7, 0.2, 0.1], [0.5, 0.25, 0.25]
LOGITS_P, LOGITS_Q = [2.0, -1.0, 0.5], [1.0, 0.0, 3.0]
DIVERGENCES = {
    "probabilities": ([Q], [P], entropy(P, Q)),
    "equal": ([P], [P], 0.0),
    "logits": ([LOGITS_Q], [LOGITS_P], entropy(softmax(LOGITS_P), softmax(LOGITS_Q))),
    "a quantized softmax that sums to 0.9": ([[0.5, 0.25, 0.15]], [P], entropy(P, [0.5, 0.25, 0.15])),
    "a zero that should be a half": (
        [[1.0, 0.0]],
        [[0.5, 0.5]],
        0.5 * math.log(0.5) + 0.5 * math.log(0.5e10),
    ),
    "single unit": ([[0.25]], [[0.5]], entropy([0.5, 0.5], [0.75, 0.25])),
    "single unit, surely class 0": ([[0.2]], [[0.0]], -math.log(0.8)),
    "single unit, surely class 1": ([[0.8]], [[1.0]], -math.log(0.8)),
    "single logit": ([[-1.0]], [[2.0]], entropy([expit(-2), expit(2)], [expit(1), expit(-1)])),
    "two positions": ([[Q, P]], [[P, P]], entropy(P, Q) / 2),
}


@pytest.mark.parametrize(("values", "reference", "expected"), DIVERGENCES.values(), ids=DIVERGENCES)
def test_kl_rows(values: object, reference: object, expected: float) -> None:
    assert row_of(make_metric("kl_divergence"), values, reference=reference) == pytest.approx(
        [expected], rel=1e-5, abs=1e-7
    )


logit_pairs = hnp.arrays(np.float32, (2, 1, 5), elements=st.floats(-50, 50, width=32))


@given(logit_pairs)
def test_kl_is_never_negative(pair: Array) -> None:
    assert 0.0 <= row_of(make_metric("kl_divergence"), pair[0], reference=pair[1])[0] < math.inf


@given(logit_pairs)
def test_agreement_and_sqnr_of_equals_are_best(pair: Array) -> None:
    assert row_of(make_metric("agreement"), pair[0], reference=pair[0]) == [1.0]
    assert row_of(make_metric("sqnr_db"), pair[0], reference=pair[0]) == [200.0]
    assert row_of(make_metric("sqnr_db"), pair[0], reference=pair[1])[0] <= 200.0


@given(st.sampled_from(["f1_macro", "balanced_accuracy", "cohen_kappa"]), st.data())
def test_scores_do_not_depend_on_the_order_of_samples(name: str, data: st.DataObject) -> None:
    rows = data.draw(hnp.arrays(np.int64, st.tuples(st.integers(1, 20), st.just(2)), elements=st.integers(0, 3)))
    shuffled = np.array(data.draw(st.permutations(rows.tolist())), dtype=np.float64)
    metric = make_metric(name)
    assert metric.summarise(rows.astype(np.float64)) == pytest.approx(metric.summarise(shuffled))


# ----------------------------------------------------------------------------------- what is refused

BAD_TARGETS: dict[str, tuple[str, object, tuple[int, ...], str]] = {
    "label too high": ("accuracy", 3, (1, 3), "labels from 0 to 2, got 3. Number"),
    "label negative": ("f1_macro", -1, (1, 3), "labels from 0 to 2, got -1"),
    "label too high for one unit": ("accuracy", 2, (1, 1), "labels from 0 to 1"),
    "fraction": ("cohen_kappa", 0.5, (1, 3), "whole numbers as labels, got float64 values such as 0.5"),
    "nan label": ("accuracy", math.nan, (1, 3), "got 1 NaN"),
    "one-hot": ("top5_accuracy", [0, 1, 0], (1, 8), "numpy.argmax"),
    "no target": ("accuracy", None, (1, 3), "label-free"),
    "text": ("accuracy", "cat", (1, 3), "got dtype <U3"),
    "mask size": ("mean_iou", np.zeros((2, 3), int), (1, 4, 4, 3), "one label per pixel, shape (4, 4)"),
    "mask label": ("mean_iou", np.full((4, 4), 3), (1, 4, 4, 3), "labels from 0 to 2, got 3"),
    "mask of 0 and 255": ("mean_iou", np.eye(4) * 255, (1, 4, 4, 1), "foreground"),
    "two classes and 255": ("mean_iou", np.full((4, 4), 255), (1, 4, 4, 2), "--ignore-label 255"),
    "255 for one label": ("accuracy", 255, (1, 3), "labels from 0 to 2, got 255"),
    "255 for a label of F1": ("f1_macro", np.uint8(255), (1, 3), "labels from 0 to 2, got 255"),
    "mask fraction": ("mean_iou", np.full((4, 4), 0.5), (1, 4, 4, 3), "whole numbers"),
    "other shape": ("mse", [1.0, 2.0], (1, 3), "shape (1, 3), got (2,)"),
    "transposed": ("mae", np.zeros((2, 3)), (1, 3, 2), "shape (1, 3, 2), got (2, 3)"),
    "nan value": ("mse", [1.0, math.nan], (1, 2), "got 1 NaN"),
    "16 bit image": ("psnr", np.array([0, 4095]), (1, 2), "integer targets from 0 to 255, got 0 to 4095"),
}


@pytest.mark.parametrize(("name", "target", "shape", "words"), BAD_TARGETS.values(), ids=BAD_TARGETS)
def test_check_target_refuses(name: str, target: object, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(DataError, match=re.escape(words)):
        make_metric(name).check_target(target, shape)
    with pytest.raises(DataError, match=re.escape(words)):
        row_of(make_metric(name), np.zeros(shape), target)


GOOD_TARGETS: dict[str, tuple[str, object, tuple[int, ...]]] = {
    "label": ("accuracy", 2, (1, 3)),
    "mask": ("mean_iou", np.ones((4, 4), np.uint8), (1, 4, 4, 1)),
    "void": ("mean_iou", np.full((4, 4), 255, np.uint8), (1, 4, 4, 3)),
    "the last of 256 classes": ("mean_iou", np.full((4, 4), 255, np.uint8), (1, 4, 4, 256)),
    "values": ("mse", np.zeros(3), (1, 3)),
    "no target where none is needed": ("agreement", None, (1, 3)),
}


@pytest.mark.parametrize(("name", "target", "shape"), GOOD_TARGETS.values(), ids=GOOD_TARGETS)
def test_check_target_accepts(name: str, target: object, shape: tuple[int, ...]) -> None:
    make_metric(name).check_target(target, shape)


@pytest.mark.parametrize("label", [255, -1])
def test_a_label_to_ignore_is_accepted_for_two_classes(label: int) -> None:
    make_metric("mean_iou", ignore_label=label).check_target(np.full((4, 4), label), (1, 4, 4, 1))


@pytest.mark.parametrize("name", ["accuracy", "mse", "agreement", "kl_divergence"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_outputs_that_are_no_numbers_fail_the_candidate(name: str, bad: float) -> None:
    with pytest.raises(ScoreError, match="of the model"):  # which may be a candidate, or the float model itself
        row_of(make_metric(name), [[bad, 0.0]], 0 if name == "accuracy" else [0, 0], [[0.5, 0.5]])


@pytest.mark.parametrize("name", ["agreement", "sqnr_db", "kl_divergence"])
def test_float_outputs_must_come(name: str) -> None:
    with pytest.raises(MetricError, match="float model"):
        row_of(make_metric(name), [[0.0, 1.0]])


@pytest.mark.parametrize("name", METRIC_NAMES)
def test_no_rows_give_no_score(name: str) -> None:
    for rows in ([], np.empty((0, 2))):
        with pytest.raises(MetricError, match="one sample"):
            make_metric(name).summarise(rows)


def test_the_first_output_is_scored_unless_another_is_named() -> None:
    outputs = {"b": np.array([[1.0, 0.0]]), "a": np.array([[0.0, 1.0]])}
    assert make_metric("accuracy").observe(outputs, 0, None).tolist() == [1.0]
    assert make_metric("accuracy", output="a").observe(outputs, 0, None).tolist() == [0.0]
    with pytest.raises(MetricError, match="'c', got 'b', 'a'"):
        make_metric("accuracy", output="c").observe(outputs, 0, None)


def test_integer_targets_beside_outputs_from_0_to_255_are_refused() -> None:
    metric, pixels = make_metric("psnr"), np.array([10, 200], np.uint8)
    outputs = [pixels[np.newaxis].astype(np.float32)]
    with pytest.raises(DataError, match="float32"):
        metric.check_float_score(score(metric, outputs, [pixels]), [pixels])
    near = [values + 2.55 for values in outputs]
    as_floats, in_units = (
        score(metric, *pair) for pair in ((near, [pixels.astype(np.float32)]), ([near[0] / 255], [pixels]))
    )
    metric.check_float_score(as_floats, [pixels.astype(np.float32)])
    metric.check_float_score(in_units, [pixels])
    assert in_units - as_floats == pytest.approx(20 * np.log10(255), abs=1e-3)


# -------------------------------------------------------------------------------------- user functions


def test_a_user_function_gets_stacked_targets_and_outputs() -> None:
    seen: list[Array] = []

    def remember(y_true: Array, y_pred: Array) -> float:
        seen.extend([y_true, y_pred])
        return 1.5

    metric = make_metric(remember, direction="minimize")
    assert (metric.direction, metric.needs_targets, metric.is_mean) == ("minimize", True, False)
    assert score(metric, [[[1.0, 2.0]], [[3.0, 4.0]]], [7, 8]) == 1.5
    np.testing.assert_array_equal(seen[0], np.array([7, 8]), strict=True)
    np.testing.assert_array_equal(seen[1], np.array([[1.0, 2.0], [3.0, 4.0]]), strict=True)


class RunningMean:
    """A metric with the state of those of Keras: a mean over all that was given since the last reset."""

    def __init__(self) -> None:
        self.seen: list[bool] = []

    def reset_state(self) -> None:
        self.seen.clear()

    def __call__(self, y_true: Array, y_pred: Array) -> float:
        self.seen.extend(y_pred.argmax(axis=-1) == y_true)
        return float(np.mean(self.seen))


def test_a_metric_with_a_state_is_reset_before_each_score() -> None:
    metric = make_metric(RunningMean(), direction="maximize")
    right, wrong = ([[answer], [answer]] for answer in ([0.0, 1.0], [1.0, 0.0]))
    assert [score(metric, outputs, [1, 1]) for outputs in (right, wrong, right)] == [1.0, 0.0, 1.0]


class Asking(RunningMean):
    """Its way to forget needs a word: nobody calls it."""

    def reset_state(self, what: str) -> None:  # type: ignore[override]
        raise AssertionError(what)


def test_a_way_to_forget_that_needs_an_argument_is_left_alone() -> None:
    metric = make_metric(Asking(), direction="maximize")
    assert score(metric, [[[0.0, 1.0]]], [1]) == 1.0


SHAPES = {
    "labels": ([np.int32(3), np.uint8(4)], np.int64),
    "flags": ([True, False], np.bool_),
    "values": ([0.25, 0.5], np.float64),
    "masks": ([np.ones((2, 3), np.uint8), np.zeros((2, 3), np.uint8)], np.int64),
    "vectors": ([[1.0, 2.0], [3.0, 4.0]], np.float64),
}


@pytest.mark.parametrize(("targets", "dtype"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("shape", [(1, 4), (1, 2, 3, 2), (1,)], ids=str)
def test_shapes_survive_the_rows(targets: list[object], dtype: type, shape: tuple[int, ...]) -> None:
    def compare(y_true: Array, y_pred: Array) -> float:
        np.testing.assert_array_equal(y_true, np.array(targets).astype(dtype), strict=True)
        np.testing.assert_array_equal(y_pred, np.stack([np.zeros(shape[1:]), np.ones(shape[1:])]), strict=True)
        return 1.0

    assert score(make_metric(compare, direction="maximize"), [np.zeros(shape), np.ones(shape)], targets) == 1.0


def test_scikit_learn_by_its_name() -> None:
    metric = make_metric("sklearn.metrics:roc_auc_score", direction="maximize")
    assert metric.name == "sklearn.metrics:roc_auc_score"
    scores, labels = [0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]
    expected = roc_auc_score(labels, scores)
    assert expected == 0.75
    assert score(metric, [[[s]] for s in scores], labels) == expected
    assert score(pickle.loads(pickle.dumps(metric)), [[[s]] for s in scores], labels) == expected


def test_a_closure_travels_by_cloudpickle() -> None:
    factor = 3.0
    metric = cloudpickle.loads(cloudpickle.dumps(make_metric(lambda t, p: factor, direction="maximize")))
    assert score(metric, [[[1.0]]], [0]) == 3.0


RESULTS: dict[str, object] = {
    "nan": math.nan,
    "infinite": math.inf,
    "nothing": None,
    "text": "0.5",
    "bool": True,
    "several": [0.1, 0.2],
    "ragged": [[1], [1, 2]],
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_a_result_that_is_no_number_is_refused(result: object) -> None:
    with pytest.raises(MetricError, match="finite number"):
        score(make_metric(lambda t, p: result, direction="maximize"), [[[1.0]]], [0])


@pytest.mark.parametrize("result", [2, np.float32(2), np.array(2.0), np.array([2])], ids=repr)
def test_any_single_number_will_do(result: object) -> None:
    assert score(make_metric(lambda t, p: result, direction="maximize"), [[[1.0]]], [0]) == 2.0


def test_a_function_that_raises_is_named() -> None:
    def recall_at_ten(y_true: Array, y_pred: Array) -> float:
        raise ZeroDivisionError("no positives")

    with pytest.raises(MetricError, match=r"recall_at_ten.*ZeroDivisionError: no positives") as caught:
        score(make_metric(recall_at_ten, direction="maximize"), [[[1.0]]], [0])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_targets_of_several_shapes_are_refused() -> None:
    metric = make_metric(lambda t, p: 1.0, direction="maximize")
    with pytest.raises(MetricError, match="2 different lengths"):
        score(metric, [[[1.0]], [[1.0]]], [[1], [1, 2]])
    with pytest.raises(DataError, match="one shape"):
        score(metric, [[[1.0]], [[1.0]]], [1, 1.0])


def test_a_function_of_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_metric.py").write_text("def first(y_true, y_pred):\n    return y_true[0]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert score(make_metric("my_own_metric:first", direction="maximize"), [[[1.0]]], [4]) == 4.0
