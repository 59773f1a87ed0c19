"""Taps and windows against TensorFlow's own kernels: what weights are multiplied with, in the mean and each time."""

from __future__ import annotations

import numpy as np
import pytest
from zoo import tf

from autoselect.quantize.repairing import mean_outputs
from autoselect.quantize.repairing.mean_outputs import dense_windows, spread_places, windows


def image(channels: int, height: int = 9, width: int = 7) -> np.ndarray:
    """Values whose mean is not 0 and depends on the place, so that the edges matter."""
    rng = np.random.default_rng(0)
    values = rng.normal(1.0, 1.0, (1, height, width, channels)) + np.arange(height)[None, :, None, None]
    return values.astype(np.float32)


CONVOLUTIONS = {
    "same": (3, 1, 1, "SAME", 4),
    "valid": (3, 1, 1, "VALID", 4),
    "stride 2, same": (3, 2, 1, "SAME", 4),
    "stride 3, valid": (2, 3, 1, "VALID", 4),
    "dilated, same": (3, 1, 2, "SAME", 4),
    "even kernel, same": (4, 1, 1, "SAME", 4),
    "larger than the input": (11, 2, 1, "SAME", 4),
    "two groups": (3, 1, 1, "SAME", 2),
}


@pytest.mark.parametrize(("kernel", "stride", "dilation", "padding", "depth"), CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_convolutions(kernel: int, stride: int, dilation: int, padding: str, depth: int) -> None:
    x = image(4)
    weights = np.random.default_rng(1).normal(size=(6, kernel, kernel, depth)).astype(np.float32)
    output = tf().nn.conv2d(x, weights.transpose(1, 2, 3, 0), stride, padding, dilations=dilation).numpy()
    found = mean_outputs.kernel_taps(x, geometry(kernel, stride, padding, output, dilation))
    np.testing.assert_allclose(
        mean_outputs.convolution_mean(weights, found), output.mean(axis=(0, 1, 2)), rtol=1e-4, atol=1e-4
    )
    met = windows(x, geometry(kernel, stride, padding, output, dilation), output.size)
    groups = 4 // depth
    grouped = met.reshape(*met.shape[:2], groups, depth)
    own = weights.reshape(groups, 6 // groups, kernel * kernel, depth)
    np.testing.assert_allclose(
        np.einsum("ptgc,gotc->pgo", grouped, own).reshape(output.shape), output, rtol=1e-4, atol=1e-3
    )


DEPTHWISE = {"one each": (1, 1, "SAME"), "multiplier 3": (3, 1, "VALID"), "stride 2": (2, 2, "SAME")}


@pytest.mark.parametrize(("multiplier", "stride", "padding"), DEPTHWISE.values(), ids=DEPTHWISE)
def test_depthwise_convolutions(multiplier: int, stride: int, padding: str) -> None:
    x = image(4)
    weights = np.random.default_rng(1).normal(size=(3, 3, 4, multiplier)).astype(np.float32)
    output = tf().nn.depthwise_conv2d(x, weights, [1, stride, stride, 1], padding).numpy()
    found = mean_outputs.depthwise_mean(
        weights.reshape(1, 3, 3, -1), mean_outputs.kernel_taps(x, geometry(3, stride, padding, output))
    )
    np.testing.assert_allclose(found, output.mean(axis=(0, 1, 2)), rtol=1e-4, atol=1e-4)


TRANSPOSED = {
    "same": (3, 2, "SAME", (18, 14)),
    "valid": (3, 2, "VALID", (19, 15)),
    "odd size": (4, 2, "SAME", (17, 13)),
    "stride 1": (3, 1, "SAME", (9, 7)),
}


@pytest.mark.parametrize(("kernel", "stride", "padding", "size"), TRANSPOSED.values(), ids=TRANSPOSED)
def test_transposed_convolutions(kernel: int, stride: int, padding: str, size: tuple[int, int]) -> None:
    x = image(4)
    weights = np.random.default_rng(1).normal(size=(6, kernel, kernel, 4)).astype(np.float32)
    output = tf().nn.conv2d_transpose(x, weights.transpose(1, 2, 0, 3), (1, *size, 6), stride, padding).numpy()
    found = mean_outputs.kernel_taps(x, geometry(kernel, stride, padding, output), transposed=True)
    np.testing.assert_allclose(
        mean_outputs.convolution_mean(weights, found), output.mean(axis=(0, 1, 2)), rtol=1e-4, atol=1e-4
    )
    met = windows(x, geometry(kernel, stride, padding, output), output.size, transposed=True)
    own = weights.reshape(6, kernel * kernel, 4)
    np.testing.assert_allclose(np.einsum("ptc,otc->po", met, own).reshape(output.shape), output, rtol=1e-4, atol=1e-3)


def test_places_are_spread_evenly_and_out_of_step_with_rows() -> None:
    places = spread_places(64 * 64, 256)
    assert len(places) == len(set(places.tolist())) == 256
    for kind in (places // 64, places % 64):
        assert np.bincount(kind, minlength=64).min() >= 2
    assert spread_places(5, 256).tolist() == [0, 1, 2, 3, 4]


def test_windows_of_some_places_are_those_of_all_of_them() -> None:
    x, output = image(2), np.zeros((1, 5, 4, 1))
    every, some = (windows(x, geometry(3, 2, "SAME", output), most) for most in (20, 7))
    assert np.array_equal(some, every[spread_places(20, 7)])
    assert np.array_equal(dense_windows(x, 2, 7), x.reshape(-1, 2)[spread_places(63, 7)])


def test_dense_layers_average_over_all_rows() -> None:
    x = np.random.default_rng(0).normal(1.0, 1.0, (2, 3, 5)).astype(np.float32)
    weights = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    expected = (x @ weights.T).mean(axis=(0, 1))
    np.testing.assert_allclose(mean_outputs.dense_mean(weights, mean_outputs.dense_taps(x, 5)), expected, rtol=1e-5)


def geometry(kernel: int, stride: int, padding: str, output: np.ndarray, dilation: int = 1) -> mean_outputs.Geometry:
    return mean_outputs.Geometry(
        kernel=(kernel, kernel),
        strides=(stride, stride),
        dilations=(dilation, dilation),
        same=padding == "SAME",
        output=(output.shape[1], output.shape[2]),
    )
