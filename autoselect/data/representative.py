"""The representative dataset for calibration, in every form that users have it; knows no targets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from autoselect.data.fit import Sample, fit_sample, is_signature_sample, names_by_key
from autoselect.data.sources import numbered_items, stacks_in, unwrap
from autoselect.data.stacks import input_stacks, stacked_samples
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError

_PURPOSE = "representative dataset"
_SAMPLE = "representative sample"


def representative_samples(
    source: object, inputs: Sequence[TensorSpec], *, optional: Collection[str] = (), signature: str | None = None
) -> Iterator[Sample]:
    """Turn a representative dataset into samples, one at a time.

    Args:
        source: One of

            * a function without arguments, as ``TFLiteConverter.representative_dataset`` takes it, that
              yields lists, dicts by input name, or ``(signature, dict)`` tuples;
            * an object that holds such a function as ``input_gen`` (``tf.lite.RepresentativeDataset``);
            * an iterable of such samples;
            * an array of N samples (shape (N, ...)), a dict of such arrays by input name, or for several inputs a list
              of one such array each;
            * the path of a ``.npz`` file (arrays by input name, or ``x`` for a single input; all other
              arrays, such as ``y``, are left alone; one array for one input may have any name) or of a ``.npy`` file;
            * ``"package.module:name"`` of any of these.
        inputs: The model's inputs.
        optional: Keys of inputs that samples may leave out, all of them together.
        signature: Key of the signature that the inputs are of, if it was chosen; samples that name another one are left
            out.

    Yields:
        Samples as :func:`autoselect.data.fit.fit_sample` makes them. Reading begins at the first one;
        a wrong source is refused at the call.

    Raises:
        UsageError: If a ``package.module:name`` is malformed or names nothing.
        DataError: If the data are missing, empty or damaged, raise, or do not fit the inputs.
    """
    data = unwrap(source, purpose=_PURPOSE)
    stacks = stacks_in(data, [spec.key for spec in inputs], purpose=_PURPOSE)
    if stacks is None:
        return _samples_of_items(data, inputs, optional, signature)
    inputs = _held(stacks, inputs, optional)
    return stacked_samples(input_stacks(stacks, inputs, where=_PURPOSE), inputs, where=_SAMPLE)


def _held(raw: object, inputs: Sequence[TensorSpec], optional: Collection[str]) -> Sequence[TensorSpec]:
    """The inputs that a sample, or a stack of them, is to hold: without the optional ones if it has none of these."""
    others = [spec for spec in inputs if spec.key not in optional]
    value = raw[1] if is_signature_sample(raw) else raw
    if isinstance(value, Mapping):
        has_all = bool(names_by_key(value, [spec for spec in inputs if spec.key in optional]))
    else:
        has_all = isinstance(value, (list, tuple)) and len(value) == len(inputs)
    return inputs if has_all else others


def _samples_of_items(
    data: object, inputs: Sequence[TensorSpec], optional: Collection[str], signature: str | None
) -> Iterator[Sample]:
    is_empty = True
    for number, raw in numbered_items(data, purpose=_PURPOSE, signature=signature):
        is_empty = False
        yield from fit_sample(raw, _held(raw, inputs, optional), where=f"{_SAMPLE} {number} (counted from 0)")
    if is_empty:
        raise DataError(
            f"{_PURPOSE}: expected at least one sample, got none. Yield about 100 samples that look like "
            "those the model will meet; a generator object can be read only once, so give the function."
        )
