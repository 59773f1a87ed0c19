"""Masks before a SOFTMAX leave levels for the scores, and hide what they hid."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zoo

from autoselect.domain.graph import IN_INTEGERS, OpKind
from autoselect.domain.recipe import Recipe
from autoselect.rewrites.for_quantizer import FOR_QUANTIZER
from autoselect.rewrites.rewriting import rewritten
from autoselect.tflite.runner import Runner

HIDDEN = np.triu(np.ones((6, 6), dtype=bool), 1)


def selected(scores: Any, _: Any) -> Any:
    import tensorflow as tf

    return tf.where(tf.constant(HIDDEN), -1e9, scores)


def added(scores: Any, _: Any) -> Any:
    return scores + np.where(HIDDEN, -1e9, 0.0).astype(np.float32)


def computed(scores: Any, x: Any) -> Any:
    """As Keras does it, from an input."""
    import tensorflow as tf

    return scores + (1.0 - tf.cast(x[:, None, :, 0] > 0.0, tf.float32)) * -1e9


def shared(scores: Any, x: Any) -> Any:
    """One mask for small scores, whose SOFTMAX is added to large ones that the same mask hides."""
    import tensorflow as tf

    mask = (1.0 - tf.cast(x[:, None, :, 0] > 0.0, tf.float32)) * -1e9
    return scores + tf.nn.softmax(0.1 * scores + mask) + mask


def endless(scores: Any, _: Any) -> Any:
    """As PyTorch does it."""
    return scores + np.where(HIDDEN, -np.inf, 0.0).astype(np.float32)


def endless_choice(scores: Any, x: Any) -> Any:
    import tensorflow as tf

    return tf.where(x[:, None, :, 0] > 0.0, scores, -np.inf)


def least(scores: Any, x: Any) -> Any:
    """As PyTorch models do it that add the least number there is: made once, and moved to where it is added."""
    import tensorflow as tf

    seen = tf.where(x[:, :, 0] > 0.0, 0.0, np.finfo(np.float32).min)
    return scores + tf.reshape(seen, (1, 1, 6))


def turned_round(scores: Any, x: Any) -> Any:
    import tensorflow as tf

    return scores + (tf.cast(x[:, None, :, 0] > 0.0, tf.float32) - 1.0) * 1e9


def unmasked(scores: Any, _: Any) -> Any:
    return scores


def chosen(scores: Any, x: Any) -> Any:
    import tensorflow as tf

    return tf.where(x[:, None, :, 0] > 0.0, scores, -1e9)


@functools.cache
def attention(mask: Callable[[Any, Any], Any], *, hides: bool = True) -> zoo.Prepared:
    """Masked attention, calibrated on samples in which the masks that look at an input hide something or nothing."""
    import tensorflow as tf

    matrix = 15.0 * zoo.weights(8, 8)

    def call(x: Any) -> Any:
        query = tf.reshape(tf.reshape(x, (6, 8)) @ matrix, (1, 6, 8))
        return tf.matmul(tf.nn.softmax(mask(tf.matmul(query, x, transpose_b=True), x)), x)

    content = zoo.from_function(call, (1, 6, 8)).float_model
    samples = zoo.random_samples(content, 8)
    for [x] in () if hides else samples:
        x[..., 0] = np.abs(x[..., 0])
    return zoo.prepare(content, samples)


def decibels(prepared: zoo.Prepared, recipe: Recipe) -> float:
    everything = Recipe(denylisted_nodes=frozenset({"*"}), fallback="float")
    built, in_float = (Runner(prepared.builder.build(one).content) for one in (recipe, everything))
    pairs = [(next(iter(built(s).values())), next(iter(in_float(s).values()))) for s in prepared.fed()]
    found, expected = (np.stack(rows) for rows in zip(*pairs, strict=True))
    return float(10.0 * np.log10(np.sum(expected**2) / np.sum((found - expected) ** 2)))


MASKS = [selected, added, computed, shared, endless, endless_choice, least, turned_round]


@pytest.mark.parametrize("mask", MASKS)
def test_masked_attention_is_as_good_in_integers_as_attention(mask: Callable[[Any, Any], Any]) -> None:
    # An ADD works in place; TensorFlow's calibrator would find the mask in the range of the scores.
    for repairs in ((), ("ranges-observed",)):
        found = [decibels(attention(one), Recipe(repairs=repairs)) for one in (mask, unmasked)]
        assert found[0] > found[1] - 6.0


@pytest.mark.parametrize("mask", MASKS)
def test_what_adds_a_mask_and_what_reads_it_are_integer(mask: Callable[[Any, Any], Any]) -> None:
    prepared = attention(mask)
    float_types = {
        op.op_type for op in prepared.builder.build(Recipe()).graph.ops if op.kind not in (*IN_INTEGERS, OpKind.NEUTRAL)
    }
    assert float_types.isdisjoint({"ADD", "SELECT", "SELECT_V2", "SOFTMAX", "BATCH_MATMUL"})
    wide = prepared.builder.blueprint(Recipe(), int16=True)
    left = {prepared.nodes[i].op_type for i in wide.no_int16}
    assert left.isdisjoint({"ADD", "SOFTMAX", "BATCH_MATMUL"})


@pytest.mark.parametrize("mask", MASKS)
def test_a_float_mask_reaches_an_integer_softmax(mask: Callable[[Any, Any], Any]) -> None:
    prepared = attention(mask)
    kinds = {node.name: node.op_type for node in prepared.nodes}
    masking = {name for name, op_type in kinds.items() if op_type not in ("SOFTMAX", "BATCH_MATMUL")}
    for fallback in ("float", "drq"):
        found = decibels(prepared, Recipe(denylisted_nodes=frozenset(masking), fallback=fallback))
        assert found > decibels(attention(unmasked), Recipe()) - 6.0


@pytest.mark.parametrize("mask", [computed, turned_round, chosen, endless_choice])
def test_what_hid_nothing_in_the_samples_hides_others(mask: Callable[[Any, Any], Any]) -> None:
    seen = attention(mask, hides=False)
    prepared = zoo.Prepared(calibrated=seen.calibrated, nodes=seen.nodes, samples=attention(mask).samples)
    assert decibels(prepared, Recipe()) > 20.0


def test_a_model_without_masks_is_the_same() -> None:
    for prepared in (attention(unmasked), zoo.cnn().prepared):
        assert rewritten(prepared.calibrated.file, FOR_QUANTIZER) is prepared.calibrated.file
