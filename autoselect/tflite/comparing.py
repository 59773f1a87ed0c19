"""How far the outputs of two models are apart, whether that is rounding, and from which op on they are."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np

from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner

Sample = Mapping[str, np.ndarray]

MOST_ROUNDING = 1e-5
"""What outputs of equal models are apart, see :func:`difference`: sums of float32 in another order."""


def difference(first: bytes, second: bytes, samples: Iterable[Sample], *, delegates: bool = True) -> float:
    """How far the outputs of two models are apart.

    Args:
        first: Bytes of a model.
        second: Bytes of another.
        samples: Inputs by key.
        delegates: On the kernels that users deploy. XNNPACK orders float sums by what it takes of a graph, so that two
            graphs that compute the same may differ in the last bits there. On LiteRT's plain kernels they do not.

    Returns:
        The largest difference of a value, as a share of the largest value of its output on that sample. 0 where all
        are equal bit for bit, infinite where outputs have other shapes or types, are other whole numbers, or are not
        finite.

    Raises:
        ScoreError: If the interpreter refuses one.
    """
    return _largest(Runner(first, delegates=delegates), Runner(second, delegates=delegates), samples)


def is_rounding(apart: float, content: bytes, samples: Iterable[Sample]) -> bool:
    """Whether a :func:`difference` to a model is no more than what orders of float sums make of that model.

    How much a model amplifies rounding is seen on itself, by its outputs on XNNPACK's and on LiteRT's plain kernels.

    Raises:
        ScoreError: If the interpreter refuses the model.
    """
    # How far outputs of equal models are apart if they amplify rounding: deep models, differences of large values.
    if apart <= MOST_ROUNDING or apart > 1e-3:
        return apart <= MOST_ROUNDING
    plain, deployed = Runner(content, delegates=False), Runner(content)
    # Two roundings of one model are alike to this factor.
    return apart <= 4.0 * _largest(plain, deployed, samples)


def _largest(ours: Runner, theirs: Runner, samples: Iterable[Sample]) -> float:
    largest = 0.0
    for sample in samples:
        pairs = zip(ours.listed(sample), theirs.listed(sample), strict=True)
        largest = max([largest, *(_difference(a, b) for a, b in pairs)])
    return largest


def in_words(apart: float) -> str:
    """A :func:`difference` of outputs, to follow their names."""
    if math.isinf(apart):
        return "differ in shape, type or whole numbers, or are not all finite"
    return f"differ by up to {apart:.1e} of the largest value"


def first_unlike(first: bytes, second: bytes, sample: Sample) -> str:
    """Type and name of the first op that writes something else than the tensor of its name in another model.

    Both run on LiteRT's plain kernels. Names that several tensors have tell nothing.

    Returns:
        Empty where all that has the same name and form is equal.

    Raises:
        ScoreError: If the interpreter refuses one.
    """
    ours, theirs = (Runner(content, preserve_all_tensors=True) for content in (first, second))
    ours(sample), theirs(sample)
    model, other = fb.parse(first), fb.parse(second).subgraphs[0]
    counts = Counter(fb.tensor_name(other.tensors[i]) for i in fb.computed(other))
    places = {name: i for i in fb.computed(other) if counts[name := fb.tensor_name(other.tensors[i])] == 1}
    tensors = model.subgraphs[0].tensors
    for op in model.subgraphs[0].operators:
        for i in fb.indices(op.outputs):
            name = fb.tensor_name(tensors[i])
            if name in places and _is_unlike(partial(ours.tensor, i), partial(theirs.tensor, places[name])):
                return f"{fb.op_type(model, op)} {name!r}"
    return ""


def _is_unlike(*read: Callable[[], np.ndarray]) -> bool:
    try:
        first, second = (reader() for reader in read)
    except ValueError:  # Of a tensor without data, such as one of no elements.
        return False
    return (first.dtype, first.shape) == (second.dtype, second.shape) and first.tobytes() != second.tobytes()


def _difference(first: np.ndarray, second: np.ndarray) -> float:
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return math.inf
    if first.tobytes() == second.tobytes():
        return 0.0
    if first.dtype.kind not in "fc" or not (np.isfinite(first).all() and np.isfinite(second).all()):
        return math.inf
    share = float(np.abs(first - second).max()) / max(float(np.abs(first).max()), sys.float_info.min)
    return share or sys.float_info.min  # Zeros of two signs.
