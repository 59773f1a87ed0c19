"""The representative dataset for calibration, in every form that users have it; knows no targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autoselect.data.fit import Sample, fit_sample
from autoselect.data.sources import numbered_items, stacks_in, unwrap
from autoselect.data.stacks import input_stacks, stacked_samples
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError

_PURPOSE = "representative dataset"
_SAMPLE = "representative sample"


def representative_samples(source: object, inputs: Sequence[TensorSpec]) -> Iterator[Sample]:
    """Turn a representative dataset into samples, one at a time.

    Args:
        source: One of

            * a function without arguments, as ``TFLiteConverter.representative_dataset`` takes it, that
              yields lists, dicts by input name, or ``(signature, dict)`` tuples;
            * an object that holds such a function as ``input_gen`` (``tf.lite.RepresentativeDataset``);
            * an iterable of such samples;
            * an array of N samples (shape (N, ...)), or a dict of such arrays by input name;
            * the path of a ``.npz`` file (arrays by input name, or ``x`` for a single input; all other
              arrays, such as ``y``, are left alone; one array for one input may have any name) or of a ``.npy`` file;
            * ``"package.module:name"`` of any of these.
        inputs: The model's inputs.

    Yields:
        Samples as :func:`autoselect.data.fit.fit_sample` makes them. Reading begins at the first one;
        a wrong source is refused at the call.

    Raises:
        UsageError: If a ``package.module:name`` is malformed or names nothing.
        DataError: If the data are missing, empty or damaged, raise, or do not fit the inputs.
    """
    data = unwrap(source, purpose=_PURPOSE)
    stacks = stacks_in(data, purpose=_PURPOSE)
    if stacks is None:
        return _samples_of_items(data, inputs)
    return stacked_samples(input_stacks(stacks, inputs, where=_PURPOSE), inputs, where=_SAMPLE)


def _samples_of_items(data: object, inputs: Sequence[TensorSpec]) -> Iterator[Sample]:
    is_empty = True
    for number, raw in numbered_items(data, purpose=_PURPOSE):
        is_empty = False
        yield from fit_sample(raw, inputs, where=f"{_SAMPLE} {number} (counted from 0)")
    if is_empty:
        raise DataError(
            f"{_PURPOSE}: expected at least one sample, got none. Yield about 100 samples that look like "
            "those the model will meet; a generator object can be read only once, so give the function."
        )
