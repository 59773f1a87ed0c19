"""Samples with their targets, for scoring; knows no metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from autoselect.data.fit import Sample, fit_sample, is_signature_sample, numeric_array
from autoselect.data.sources import numbered_items, stacks_in, unwrap
from autoselect.data.stacks import Stack, check_lengths, input_stacks, stack_of, stacked_samples
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError

LabelledSample = tuple[Sample, object | None]
"""A sample and its target; None where there is none."""

_PURPOSE = "scoring data"
_SAMPLE = "scoring sample"
_TARGETS = "y"


def labelled_samples(
    source: object, inputs: Sequence[TensorSpec], *, targets_required: bool
) -> Iterator[LabelledSample]:
    """Turn scoring data into pairs of sample and target, one at a time.

    Args:
        source: One of

            * the path of a ``.npz`` file: arrays by input name, or ``x`` for a
              single input; targets in ``y``;
            * a function without arguments, or an iterable, of ``(inputs, target)`` pairs, the inputs in any
              form that :func:`autoselect.data.fit.fit_sample` takes;
            * a tuple ``(x, y)`` of arrays of N samples and N targets, ``x`` an array or a dict of arrays;
            * a dict of arrays, as a ``.npz`` file would hold them;
            * the inputs alone, in any form of a representative dataset, if no targets are required;
            * ``"package.module:name"`` of any of these.
        inputs: The model's inputs.
        targets_required: Whether a sample without a target is refused.

    Yields:
        Sample and target. Targets of arrays and batches come row by row, without a batch axis; their
        dtype is kept, integers stay integers. For a model of two inputs a pair of arrays is one
        sample of two inputs: put its inputs into a list or dict to give a target.

    Raises:
        UsageError: If a ``package.module:name`` is malformed or names nothing.
        DataError: If the data are missing, empty or damaged, raise, do not fit the inputs, differ in
            length, or lack targets that are required.
    """
    data = unwrap(source, purpose=_PURPOSE)
    targets: Callable[[], Stack] | None = None
    if isinstance(data, tuple) and len(data) == 2 and not is_signature_sample(data):
        data, target_values = data
        if target_values is not None:
            targets = partial(stack_of, target_values, f"{_PURPOSE}, targets")
        data = data if isinstance(data, Mapping) else numeric_array(data, f"{_PURPOSE}, inputs")
    stacks = stacks_in(data, purpose=_PURPOSE)
    if stacks is None:
        return _pairs_of_items(data, inputs, targets_required)
    targets = targets or _target_stack(stacks, inputs)
    return _pairs_of_stacks(input_stacks(stacks, inputs, where=_PURPOSE), targets, inputs, targets_required)


def _target_stack(
    stacks: Mapping[str, Callable[[], Stack]], inputs: Sequence[TensorSpec]
) -> Callable[[], Stack] | None:
    is_input = any(_TARGETS in (spec.key, spec.name, spec.name.removesuffix(":0")) for spec in inputs)
    return None if is_input else stacks.get(_TARGETS)


def _pairs_of_stacks(
    stacks: Mapping[str, Stack],
    open_targets: Callable[[], Stack] | None,
    inputs: Sequence[TensorSpec],
    targets_required: bool,
) -> Iterator[LabelledSample]:
    samples = stacked_samples(stacks, inputs, where=_SAMPLE)
    if open_targets is None:
        if targets_required:
            raise DataError(
                f"{_PURPOSE}: expected targets, got inputs only. Add them as an array {_TARGETS!r}, give a "
                f"tuple (x, y), or choose a label-free metric. If an input of the model is itself called "
                f"{_TARGETS!r}, give a function that yields (inputs, target)."
            )
        return ((sample, None) for sample in samples)
    targets = open_targets()
    check_lengths([*stacks.values(), targets], where=_PURPOSE)
    return ((sample, target) for sample, target in zip(samples, targets.rows(), strict=True))


def _pairs_of_items(data: object, inputs: Sequence[TensorSpec], targets_required: bool) -> Iterator[LabelledSample]:
    is_empty = True
    for number, item in numbered_items(data, purpose=_PURPOSE):
        is_empty = False
        where = f"{_SAMPLE} {number} (counted from 0)"
        raw, target = item if _is_pair(item, inputs) else (item, None)
        if target is None and targets_required:
            raise DataError(
                f"{where}: expected a pair (inputs, target), got no target. Yield (inputs, target), the "
                "several inputs of a model in a list or dict, or choose a label-free metric."
            )
        samples = list(fit_sample(raw, inputs, where=where))
        yield from zip(samples, _target_rows(target, len(samples), where), strict=True)
    if is_empty:
        raise DataError(f"{_PURPOSE}: expected at least one sample, got none. Check what yields the samples.")


def _is_pair(item: object, inputs: Sequence[TensorSpec]) -> bool:
    """Tell ``(inputs, target)`` from the inputs alone."""
    if not isinstance(item, (list, tuple)) or len(item) != 2 or is_signature_sample(item):
        return False
    return len(inputs) != 2 or isinstance(item[0], (list, tuple, Mapping))


def _target_rows(target: object, count: int, where: str) -> Sequence[object | None]:
    """Split the targets of a batch; a target of one sample loses a leading axis of 1, as a row would."""
    if target is None:
        return [None] * count
    array = numeric_array(target, f"{where}, target")
    if array.ndim and len(array) == count:
        return list(array)
    if count == 1:
        return [array[()]]
    raise DataError(
        f"{where}: expected {count} targets for a batch of {count} samples, got shape {array.shape}. "
        "Yield one target per sample, or one sample at a time."
    )
