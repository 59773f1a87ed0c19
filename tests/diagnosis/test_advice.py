"""Each rule on a small model that gives reason for its advice, and on one that does not."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import zoo
from reviewing import Reviewed, unnamed

from autoselect.data.bundled import bundled_directory
from autoselect.diagnosis.activations import activation_statistics, input_statistics
from autoselect.diagnosis.advice import RULES, advise
from autoselect.diagnosis.weights import weight_statistics
from autoselect.domain.findings import Ablation, Advice, Findings
from autoselect.domain.layers import LayerTable
from autoselect.domain.recipe import Recipe
from autoselect.domain.targets import Precision
from autoselect.quantize.diagnosing.statistics import layer_table
from autoselect.scoring.target_file import read_target
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.tflite_file import TfliteFile

Arrays = Sequence[np.ndarray]


def diagnosed(
    prepared: zoo.Prepared, *, debug: Arrays | None = None, per_channel: bool = True, denylisted: Sequence[str] = ()
) -> Findings:
    """Measure a calibrated model of one input, on its calibration samples if no debug data are given."""
    model = fb.parse(prepared.calibrated.content)
    specs = reader.input_specs(model)
    arrays = [s[0] for s in prepared.samples] if debug is None else list(debug)
    samples = [{specs[0].key: x} for x in arrays]
    layers = layer_table(prepared.calibrated, prepared.nodes, samples, per_channel=per_channel)
    recipe = Recipe(per_channel=per_channel, denylisted_nodes=frozenset(denylisted), fallback="float")
    built = prepared.builder.build(recipe)
    places = built.places
    return Findings(
        layers=layers,
        graph=reader.read_graph(model),
        kinds={index: built.graph.ops[at].kind.value for index, at in places.items()},
        weights=weight_statistics(prepared.calibrated.file, TfliteFile(built.content), places, prepared.nodes),
        activations=activation_statistics(prepared.calibrated.file, prepared.nodes, samples, limits(layers)),
        inputs=input_statistics(samples, specs),
        calibration_samples=len(prepared.samples),
        debug_samples=len(samples),
        debug_data_given=debug is not None,
        per_channel=per_channel,
        target=read_target("integer-only"),
    )


def limits(layers: LayerTable) -> dict[str, tuple[float, float]]:
    return {
        node.name: ((-128 - s.zero_point) * s.scale, (127 - s.zero_point) * s.scale)
        for node, s in zip(layers.nodes, layers.statistics, strict=True)
        if s is not None
    }


def given(findings: Findings, rule: str) -> Advice | None:
    return {a.rule: a for a in advise(findings)}.get(rule)


def names(findings: Findings, op_type: str) -> list[str]:
    return [n.name for n in findings.layers.nodes if n.op_type == op_type]


def normal(count: int, *shape: int, seed: int = 0) -> list[np.ndarray]:
    """Standard normal samples, cut at 3 deviations so that new ones stay within the old ones' range."""
    drawn = np.random.default_rng(seed).normal(size=(count, 1, *shape))
    return [x.astype(np.float32) for x in np.clip(drawn, -3.0, 3.0)]


def prepare(call: Callable[[Any], Any], arrays: Arrays) -> zoo.Prepared:
    return zoo.prepare(zoo.from_function(call, arrays[0].shape).float_model, [[x] for x in arrays])


def dense(size: int, gain: float, seed: int = 0) -> np.ndarray:
    """Square weights that multiply the deviation of what goes in by ``gain``."""
    return (np.random.default_rng(seed).normal(size=(size, size)) * gain / math.sqrt(size)).astype(np.float32)


@functools.cache
def healthy() -> zoo.Prepared:
    """Two convolutions of even weights with a RELU, on 100 samples of normalised input."""
    import tensorflow as tf

    first, second = zoo.weights(3, 3, 3, 8) * 2, zoo.weights(3, 3, 8, 8, seed=1)
    call = lambda x: tf.nn.conv2d(tf.nn.relu(tf.nn.conv2d(x, first, 1, "SAME")), second, 1, "SAME")  # noqa: E731
    return prepare(call, normal(100, 6, 6, 3))


@functools.cache
def healthy_findings() -> Findings:
    return diagnosed(healthy())


def ruinous(spare: float, layers: int) -> zoo.Prepared:
    """Dense layers whose first input, always 0, has weights that are ``spare`` times the others'."""
    import tensorflow as tf

    size = 16

    def weights(seed: int) -> np.ndarray:
        matrix = dense(size, 1.0, seed)
        matrix[0, :] = spare * np.abs(matrix[1:]).max()
        matrix[:, 0] = 0.0
        return matrix

    def call(x: Any) -> Any:
        for seed in range(layers):
            x = tf.tanh(tf.matmul(x, weights(seed)))
        return x

    arrays = normal(100, size)
    for x in arrays:
        x[:, 0] = 0.0
    return prepare(call, arrays)


@functools.cache
def ruined() -> Findings:
    return diagnosed(ruinous(60.0, layers=3))


@functools.cache
def half_ruined() -> Findings:
    return diagnosed(ruinous(2.0, layers=1))


def test_a_healthy_model_is_given_no_advice() -> None:
    assert advise(healthy_findings()) == ()


def test_every_rule_is_named_and_appears_once() -> None:
    assert [rule.__name__ for rule in RULES] == [
        "suspicious_error",
        "unhealthy_error",
        "wide_range",
        "unlike_channels",
        "input_not_normalised",
        "unfolded_batch_normalization",
        "missing_normalization",
        "per_channel_disabled",
        "small_calibration",
        "calibration_unlike_data",
        "unsupported_by_target",
        "quantization_aware_training",
    ]


def test_advice_is_complete_and_in_the_rules_order() -> None:
    few = replace(ruined(), calibration_samples=7, kinds={0: "float"})
    found = advise(few)
    order = [rule.__name__ for rule in RULES]
    assert [a.rule for a in found] == [n for n in order if n in {a.rule for a in found}]
    assert len(found) >= 4
    for a in found:
        assert all((a.title, a.evidence, a.threshold, a.source, a.action)), a.rule


def test_large_errors_are_suspicious_worst_first() -> None:
    advice = given(ruined(), "suspicious_error")
    assert advice is not None
    assert set(advice.subjects) == set(names(ruined(), "FULLY_CONNECTED"))
    errors = {
        n.name: s.rmse_per_scale for n, s in zip(ruined().layers.nodes, ruined().layers.statistics, strict=True) if s
    }
    assert list(advice.subjects) == sorted(advice.subjects, key=lambda name: -errors[name])
    assert f"{advice.subjects[0]!r} (FULLY_CONNECTED) {errors[advice.subjects[0]]:.3g}" in advice.evidence
    assert repr(advice.subjects[0]) in advice.action
    assert "Ablation" not in advice.action
    assert given(half_ruined(), "suspicious_error") is None


def test_ablation_tells_harmful_suspects_from_harmless_ones() -> None:
    first, second, third = names(ruined(), "FULLY_CONNECTED")
    others = {name: Ablation(leave_one_in=0.001, leave_one_out=0.5) for name in names(ruined(), "TANH")}
    measured = {
        first: Ablation(leave_one_in=0.01, leave_one_out=0.1),  # without it, four fifths of the damage are gone
        second: Ablation(leave_one_in=0.01, leave_one_out=0.49),
        third: Ablation(leave_one_in=0.4, leave_one_out=0.5),  # ruinous alone, though others are as well
    }
    advice = given(replace(ruined(), ablations=others | measured, divergence=0.5), "suspicious_error")
    assert advice is not None
    harmful, harmless = advice.action.split("Ablation finds harmful: ")[1].split("Ablation finds harmless")
    assert repr(first) in harmful
    assert "80%" in harmful
    assert repr(third) in harmful
    assert repr(second) not in harmful
    assert repr(second) in harmless
    denied = advice.action.split(" into denylisted_nodes")[0]
    assert (repr(first) in denied, repr(second) in denied, repr(third) in denied) == (True, False, True)


def test_suspects_that_are_all_harmless_are_not_to_be_denied(reviewed: Reviewed) -> None:
    harmless = {name: Ablation(leave_one_in=0.001, leave_one_out=0.499) for name in names(ruined(), "FULLY_CONNECTED")}
    advice = given(replace(ruined(), ablations=harmless, divergence=0.5), "suspicious_error")
    assert advice is not None
    assert "denylisted_nodes" not in advice.action
    reviewed("suspects that are harmless", unnamed(advice.action))


def test_errors_between_rounding_and_suspicion_are_unhealthy() -> None:
    advice = given(half_ruined(), "unhealthy_error")
    assert advice is not None
    assert list(advice.subjects) == names(half_ruined(), "FULLY_CONNECTED")
    assert "Below" not in advice.evidence
    assert "by channel" in advice.action
    unweighted = given(replace(half_ruined(), weights={}), "unhealthy_error")
    assert unweighted is not None
    assert "by channel" not in unweighted.action
    assert given(ruined(), "unhealthy_error") is None


def test_values_below_one_step_are_unhealthy_and_exact_zeros_are_not() -> None:
    import tensorflow as tf

    # In calibration a few values above 2.9 become up to 1000; the debug data have none, and their sum is small.
    small = dense(8, 1e-3)
    prepared = prepare(lambda x: tf.matmul(x, small) + tf.nn.relu(x - 2.9) * 10000.0, normal(100, 8))
    findings = diagnosed(prepared, debug=[x * 0.5 for x in normal(20, 8, seed=1)])
    advice = given(findings, "unhealthy_error")
    assert advice is not None
    assert list(advice.subjects) == names(findings, "ADD")
    assert "Above" not in advice.evidence
    assert "0.0 dB" in advice.evidence


@functools.cache
def raw_images() -> Findings:
    """An input of 0..255 behind a convolution."""
    import tensorflow as tf

    kernel = zoo.weights(3, 3, 3, 8)
    pixels = [(x + 3.0) * (255.0 / 6.0) for x in normal(100, 6, 6, 3)]
    return diagnosed(prepare(lambda x: tf.nn.conv2d(x, kernel, 1, "SAME"), pixels))


def test_outputs_with_steps_above_one_have_a_wide_range() -> None:
    advice = given(raw_images(), "wide_range")
    assert advice is not None
    assert list(advice.subjects) == names(raw_images(), "CONV_2D")
    [figures] = [s for s in raw_images().layers.statistics if s is not None]
    assert figures.scale > 1.0
    assert f"range {figures.range:.4g}" in advice.evidence


def test_an_input_of_raw_pixels_is_to_be_normalised_by_one_constant() -> None:
    advice = given(raw_images(), "input_not_normalised")
    assert advice is not None
    assert advice.subjects == (raw_images().inputs[0].name,)
    assert "x / 127.5 - 1 takes" in advice.action


@pytest.mark.parametrize(("spread", "is_unfit"), [((1.0, 1.0, 1.0), False), ((1.0, 1.0, 0.01), True)])
def test_raw_pixels_are_fit_for_a_model_that_normalises_them_itself(spread: tuple[float, ...], is_unfit: bool) -> None:
    import tensorflow as tf

    kernel = zoo.weights(3, 3, 3, 8) * 2
    pixels = [(np.random.default_rng(i).integers(0, 256, (1, 6, 6, 3)) * spread).astype(np.float32) for i in range(100)]
    findings = diagnosed(prepare(lambda x: tf.nn.conv2d(x / 127.5 - 1.0, kernel, 1, "SAME"), pixels))
    advice = given(findings, "input_not_normalised")
    assert (advice is not None) is is_unfit


def channels(offsets: Sequence[float], gains: Sequence[float]) -> Findings:
    """The healthy model's findings, but for inputs of other units, measured."""
    arrays = [(x * np.float32(gains) + np.float32(offsets)).astype(np.float32) for x in normal(50, 6, 6, 3)]
    [found] = healthy_findings().inputs
    spec = reader.input_specs(fb.parse(healthy().calibrated.content))
    return replace(healthy_findings(), inputs=input_statistics([{found.name: x} for x in arrays], spec))


@pytest.mark.parametrize(
    ("offsets", "gains", "bad"),
    [
        pytest.param((0, 0, 0), (1, 1, 1), (), id="standardised"),
        pytest.param((0, 0, 0), (0.33, 0.33, 0.33), (), id="-1 to 1"),
        pytest.param((0.5, 0.5, 0.5), (0.16, 0.16, 0.16), (0, 1, 2), id="0 to 1 is not centred"),
        pytest.param((0, 0, 0), (1, 0.01, 1), (1,), id="one channel far smaller"),
        pytest.param((0, 300, 0), (1, 50, 0.5), (1,), id="one channel in a unit of its own"),
        pytest.param((0, 0, 7), (1, 1, 0), (), id="a constant channel is not judged"),
    ],
)
def test_channels_off_centre_or_off_scale_are_named(
    offsets: Sequence[float], gains: Sequence[float], bad: Sequence[int]
) -> None:
    advice = given(channels(offsets, gains), "input_not_normalised")
    if not bad:
        assert advice is None
        return
    assert advice is not None
    assert [c for c in range(3) if f"channel {c} mean" in advice.evidence] == list(bad)


@pytest.mark.parametrize(
    ("gains", "coarse"),
    [
        pytest.param((9, 9, 9), (), id="alike"),
        pytest.param((9, 900, 50), (0, 2), id="two channels far smaller than the third"),
    ],
)
def test_channels_with_few_steps_of_the_common_scale_are_named(gains: Sequence[float], coarse: Sequence[int]) -> None:
    findings = channels((0, 0, 0), gains)
    advice = given(findings, "input_not_normalised")
    assert advice is not None
    [found] = findings.inputs
    width = max(found.maxima) - min(found.minima)
    steps = [255.0 * (high - low) / width for low, high in zip(found.minima, found.maxima, strict=True)]
    told = ", ".join(f"channel {c} {steps[c]:.2g}" for c in coarse)
    assert ("of its 255 steps" in advice.evidence) is bool(coarse)
    assert f"of its 255 steps: {told}." in advice.evidence or not coarse


def test_channels_of_different_units_are_normalised_one_by_one() -> None:
    findings = channels((0, 300, 0), (1, 50, 0.5))
    advice = given(findings, "input_not_normalised")
    assert advice is not None
    assert f"means {', '.join(f'{m:.4g}' for m in findings.inputs[0].means)}" in advice.action


@functools.cache
def normalizations() -> Findings:
    """Three batch normalizations that cannot fold, and one that can."""
    import tensorflow as tf

    kernels = [zoo.weights(3, 3, 4, 4, seed=s) for s in range(4)]
    gain, shift = 1.0 + np.abs(zoo.weights(4, seed=5)), zoo.weights(4, seed=6)

    def call(x: Any) -> Any:
        x = tf.nn.relu(tf.nn.conv2d(x, kernels[0], 1, "SAME")) * gain + shift
        x = tf.nn.max_pool2d(tf.nn.conv2d(x, kernels[1], 1, "SAME"), 2, 1, "SAME") * gain - shift
        x = tf.nn.conv2d(x, kernels[2], 1, "SAME")
        x = tf.nn.relu(x * gain + shift) + tf.abs(x)
        return tf.nn.relu(tf.nn.conv2d(x, kernels[3], 1, "SAME") * gain + shift)

    return diagnosed(prepare(call, normal(4, 6, 6, 4)))


def test_a_batch_normalization_that_is_left_is_told_with_what_stands_before_it(reviewed: Reviewed) -> None:
    advice = given(normalizations(), "unfolded_batch_normalization")
    assert advice is not None
    assert len(advice.subjects) == 3
    reviewed("batch normalizations that are left", unnamed(advice.evidence))


def test_a_batch_normalization_that_folds_and_other_constants_are_none() -> None:
    import tensorflow as tf

    kernel, gain, shift = zoo.weights(3, 3, 4, 4), 1.0 + np.abs(zoo.weights(4, seed=5)), zoo.weights(4, seed=6)
    everywhere = zoo.weights(4, 4, 4)

    def call(x: Any) -> Any:
        x = tf.nn.relu(tf.nn.conv2d(x * 0.5 - 1.0, kernel, 1, "VALID") * gain + shift)
        return tf.tanh(tf.tanh(x) * 0.5 + 1.0) * everywhere - everywhere

    findings = diagnosed(prepare(call, normal(4, 6, 6, 4)))
    assert {op.op_type for op in findings.graph.ops} >= {"CONV_2D", "MUL"}
    assert given(findings, "unfolded_batch_normalization") is None


def chain(gains: Sequence[float], between: Callable[[Any], Any]) -> Findings:
    """Dense layers, one for each gain, and what stands between them."""
    import tensorflow as tf

    def call(x: Any) -> Any:
        for seed, gain in enumerate(gains):
            x = tf.matmul(between(x) if seed else x, dense(16, gain, seed))
        return x

    return diagnosed(prepare(call, normal(4, 16)))


def test_ranges_that_grow_from_layer_to_layer_miss_a_normalization(reviewed: Reviewed) -> None:
    import tensorflow as tf

    findings = chain([1.0, 12.0, 12.0, 0.1], tf.nn.relu)
    advice = given(findings, "missing_normalization")
    assert advice is not None
    assert list(advice.subjects) == names(findings, "FULLY_CONNECTED")[2::-1]
    widths = [
        findings.activations[name].calibrated_maximum - findings.activations[name].calibrated_minimum
        for name in reversed(advice.subjects)
    ]
    assert f" {widths[-1] / widths[0]:.3g} times" in advice.evidence
    reviewed("ranges grow from layer to layer", unnamed(advice.evidence), measured=True)


@pytest.mark.parametrize(
    ("gains", "between"),
    [
        pytest.param([1.0, 1.0, 1.0, 1.0], "relu", id="no growth"),
        pytest.param([1.0, 30.0], "relu", id="two layers only"),
        pytest.param([1.0, 12.0, 12.0], "tanh", id="bounded between"),
    ],
)
def test_ranges_that_do_not_grow_over_three_layers_are_fine(gains: Sequence[float], between: str) -> None:
    import tensorflow as tf

    assert given(chain(gains, {"relu": tf.nn.relu, "tanh": tf.tanh}[between]), "missing_normalization") is None


def test_a_normalization_between_layers_ends_a_chain() -> None:
    import tensorflow as tf

    gain, shift = np.linspace(0.9, 1.1, 16, dtype=np.float32), zoo.weights(16)
    findings = chain([1.0, 12.0, 12.0], lambda x: tf.nn.relu(x) * gain + shift)
    assert given(findings, "unfolded_batch_normalization") is not None
    assert given(findings, "missing_normalization") is None


@functools.cache
def uneven() -> zoo.Prepared:
    """A dense layer whose outputs' weights differ 40 times in size."""
    import tensorflow as tf

    weights = dense(16, 1.0) * np.geomspace(1.0, 40.0, 16, dtype=np.float32)
    return prepare(lambda x: tf.matmul(x, weights), normal(4, 16))


def test_one_scale_for_uneven_channels_is_advised_against() -> None:
    findings = diagnosed(uneven(), per_channel=False)
    advice = given(findings, "per_channel_disabled")
    assert advice is not None
    assert list(advice.subjects) == names(findings, "FULLY_CONNECTED")
    [figures] = findings.weights.values()
    assert f"{figures.channel_range_ratio:.3g} times over 16 channels" in advice.evidence
    assert "per channel" in advice.action


def test_uneven_channels_with_a_scale_each_and_even_ones_with_one_are_fine() -> None:
    assert given(diagnosed(uneven()), "per_channel_disabled") is None
    assert given(diagnosed(healthy(), per_channel=False), "per_channel_disabled") is None


def test_a_kernel_that_knows_one_scale_only_is_said_to() -> None:
    findings = replace(diagnosed(uneven(), per_channel=False), per_channel=True)
    advice = given(findings, "per_channel_disabled")
    assert advice is not None
    assert "one scale" in advice.action


def test_fewer_than_100_calibration_samples_are_few() -> None:
    advice = given(normalizations(), "small_calibration")
    assert advice is not None
    assert advice.evidence == "4 calibration samples."
    assert healthy_findings().calibration_samples == 100
    assert given(healthy_findings(), "small_calibration") is None


def test_data_that_leave_the_calibrated_ranges_are_told() -> None:
    findings = diagnosed(healthy(), debug=[2.0 * x for x in normal(20, 6, 6, 3, seed=9)])
    advice = given(findings, "calibration_unlike_data")
    assert advice is not None
    assert set(advice.subjects) == set(names(findings, "CONV_2D"))
    shares = [findings.activations[name].clipped_share for name in advice.subjects]
    assert shares == sorted(shares, reverse=True)
    assert f"{shares[0]:.2%} clipped" in advice.evidence


def test_data_like_calibration_and_calibration_itself_are_fine() -> None:
    like = diagnosed(healthy(), debug=[0.9 * x for x in normal(20, 6, 6, 3, seed=9)])
    assert like.debug_data_given
    assert given(like, "calibration_unlike_data") is None
    unlike = diagnosed(healthy(), debug=[2.0 * x for x in normal(20, 6, 6, 3, seed=9)])
    assert given(replace(unlike, debug_data_given=False), "calibration_unlike_data") is None


def test_outputs_of_a_fixed_scale_do_not_leave_calibration() -> None:
    import tensorflow as tf

    # The int8 scale of a SOFTMAX is 1/256: all that is above 255/256 is cut off, whatever calibration saw.
    prepared = prepare(lambda x: tf.nn.softmax(x * 2.0), normal(4, 4))
    findings = diagnosed(prepared, debug=[10.0 * x for x in normal(20, 4, seed=1)])
    [softmax] = names(findings, "SOFTMAX")
    assert findings.activations[softmax].clipped_share > 0.01
    advice = given(findings, "calibration_unlike_data")
    assert advice is not None
    assert list(advice.subjects) == names(findings, "MUL")


@functools.cache
def sine_after_dense() -> zoo.Prepared:
    import tensorflow as tf

    return prepare(lambda x: tf.sin(tf.matmul(x, dense(8, 1.0))) * 2.0, normal(4, 8))


def test_ops_that_an_integer_only_target_cannot_run_are_told() -> None:
    prepared = sine_after_dense()
    [left_out] = [n.name for n in prepared.nodes if n.op_type == "FULLY_CONNECTED"]
    advice = given(diagnosed(prepared, denylisted=[left_out]), "unsupported_by_target")
    assert advice is not None
    assert left_out in advice.subjects
    assert len(advice.subjects) == 2
    assert "float SIN" in advice.evidence
    assert "accelerator runs" in advice.evidence
    assert "float SIN." in advice.action
    assert f"allows: {left_out!r}." in advice.action


TARGETS = sorted(path.stem for path in (bundled_directory() / "targets").glob("*.toml"))


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_is_advised_by_its_own_rules(target: str) -> None:
    """Ops that no precision of the profile's accelerator (of its only processor, without one) has are told."""
    prepared = sine_after_dense()
    [left_out] = [n.name for n in prepared.nodes if n.op_type == "FULLY_CONNECTED"]
    profile = read_target(target)
    findings = replace(diagnosed(prepared, denylisted=[left_out]), target=profile)
    runner = profile.accelerator or profile.host
    in_float = runner.kernels.get(Precision.FLOAT)
    lacked = [op for op in ("FULLY_CONNECTED", "SIN") if in_float is None or not in_float.runs(op)]
    advice = given(findings, "unsupported_by_target")
    if not lacked:
        assert advice is None
        return
    assert advice is not None
    assert repr(target) in advice.title
    assert all(f"1 x float {op}" in advice.evidence for op in lacked)
    assert ("FULLY_CONNECTED" in lacked) == (left_out in advice.subjects)
    assert (f"allows: {left_out!r}." in advice.action) == ("FULLY_CONNECTED" in lacked)


def test_the_targets_differ_in_their_advice(reviewed: Reviewed) -> None:
    prepared = sine_after_dense()
    [left_out] = [n.name for n in prepared.nodes if n.op_type == "FULLY_CONNECTED"]
    findings = diagnosed(prepared, denylisted=[left_out])
    found = {t: given(replace(findings, target=read_target(t)), "unsupported_by_target") for t in TARGETS}
    assert found["tflm"] is None  # It runs both in float.
    assert found["litert-cpu"] is not None
    assert "SIN" in found["litert-cpu"].evidence
    assert "FULLY_CONNECTED" not in found["litert-cpu"].evidence  # XNNPACK has a float one.
    assert found["edgetpu"] is not None
    # The MUL is well where it is.
    reviewed("ops that the Edge TPU lacks", map(unnamed, (found["edgetpu"].evidence, found["edgetpu"].action)))


def test_integer_ops_that_an_accelerator_lacks_are_told(reviewed: Reviewed) -> None:
    import tensorflow as tf

    prepared = prepare(lambda x: tf.nn.leaky_relu(tf.matmul(x, dense(8, 1.0))) * 2.0, normal(4, 8))
    findings = diagnosed(prepared)
    assert set(findings.kinds.values()) == {"integer"}
    assert given(findings, "unsupported_by_target") is None
    advice = given(replace(findings, target=read_target("edgetpu")), "unsupported_by_target")
    assert advice is not None
    reviewed("integer ops that the Edge TPU lacks", [advice.evidence, advice.action])


def test_a_model_that_the_target_refuses_is_told_as_such() -> None:
    prepared = sine_after_dense()
    [left_out] = [n.name for n in prepared.nodes if n.op_type == "FULLY_CONNECTED"]
    findings = diagnosed(prepared, denylisted=[left_out])
    hybrid = {i: "hybrid" if kind == "float" else kind for i, kind in findings.kinds.items()}
    advice = given(replace(findings, kinds=hybrid, target=read_target("tflm")), "unsupported_by_target")
    assert advice is not None
    assert "refuses" in advice.title
    assert "no such" in advice.action


def test_an_op_on_indices_that_the_host_lacks_is_told_by_its_type() -> None:
    import tensorflow as tf

    def looked_up(x: tf.Tensor) -> tf.Tensor:
        index = tf.argmax(tf.matmul(x, dense(8, 1.0)), axis=1, output_type=tf.int32)
        return tf.gather(dense(8, 1.0), tf.where(index < 4, index + 1, index))

    advice = given(
        replace(diagnosed(prepare(looked_up, normal(4, 8))), target=read_target("tflm")), "unsupported_by_target"
    )
    assert advice is not None
    assert "1 x SELECT (" in advice.evidence
    assert "types: SELECT." in advice.action


def test_an_all_integer_model_runs_on_an_integer_only_target() -> None:
    assert set(healthy_findings().kinds.values()) == {"integer"}
    assert given(healthy_findings(), "unsupported_by_target") is None


def test_suspicion_all_over_the_model_calls_for_training(reviewed: Reviewed) -> None:
    advice = given(ruined(), "quantization_aware_training")
    assert advice is not None
    assert advice.subjects == ()
    reviewed("suspicion all over the model", advice.evidence)
    assert given(diagnosed(ruinous(60.0, layers=2)), "quantization_aware_training") is None


@pytest.mark.parametrize(
    ("alone", "trains"),
    [
        pytest.param([0.1, 0.1, 0.1, 0.1, 0.1, 0.1], True, id="spread"),
        pytest.param([0.5, 0.3, 0.01, 0.01, 0.01, 0.01], False, id="two culprits"),
        pytest.param([1e-4] * 6, False, id="spread, but no damage"),
        pytest.param([math.nan] * 6, False, id="not measured"),
    ],
)
def test_damage_that_ablation_finds_spread_calls_for_training(alone: Sequence[float], trains: bool) -> None:
    everything = sum(alone)
    nodes = ruined().layers.nodes
    ablations = {
        n.name: Ablation(leave_one_in=a, leave_one_out=everything - a) for n, a in zip(nodes, alone, strict=True)
    }
    quiet = replace(ruined().layers, statistics=(None,) * len(nodes))
    advice = given(
        replace(ruined(), layers=quiet, ablations=ablations, divergence=everything), "quantization_aware_training"
    )
    assert (advice is not None) == trains


@pytest.mark.parametrize("source", [healthy_findings, ruined, normalizations, raw_images])
def test_missing_figures_give_no_advice_and_no_error(source: Callable[[], Findings]) -> None:
    found = source()
    bare = replace(
        found,
        layers=replace(found.layers, statistics=(None,) * len(found.layers)),
        graph=replace(found.graph, ops=(), inputs=(), outputs=()),
        kinds={},
        weights={},
        activations={},
        inputs=(),
        calibration_samples=100,
    )
    assert advise(bare) == ()


def test_figures_that_are_not_numbers_give_no_advice_and_no_error() -> None:
    found, nan = ruined(), math.nan
    statistics = tuple(
        s and replace(s, mean_squared_error=nan, scale=nan, sqnr_db=nan) for s in found.layers.statistics
    )
    keys = ("minimum", "maximum", "calibrated_minimum", "calibrated_maximum", "clipped_share")
    unknown = replace(
        found,
        layers=replace(found.layers, statistics=statistics),
        activations={name: replace(a, **dict.fromkeys(keys, nan)) for name, a in found.activations.items()},
        weights={name: replace(w, minima=(nan,) * 4, maxima=(nan,) * 4) for name, w in found.weights.items()},
        inputs=tuple(replace(i, means=(nan,), deviations=(nan,), minima=(nan,), maxima=(nan,)) for i in found.inputs),
        ablations={n.name: Ablation(leave_one_in=nan, leave_one_out=nan) for n in found.layers.nodes},
        debug_data_given=True,
    )
    assert advise(unknown) == ()
