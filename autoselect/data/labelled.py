"""Samples with their targets and groups, for scoring; knows no metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from autoselect.data.fit import fit_sample, is_signature_sample, numeric_array
from autoselect.data.samples import LabelledSample
from autoselect.data.sources import has_stack_per_input, numbered_items, stacks_in, unwrap
from autoselect.data.stacks import Stack, check_lengths, input_names, input_stacks, labels_of, stack_of, stacked_samples
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError

_PURPOSE = "scoring data"
_SAMPLE = "scoring sample"
_TARGETS = "y"
_TARGET_NAMES = frozenset({"label", "labels", "target", "targets", "classes", "y_true", "y_test", "y_val"})
"""What people call targets too."""
_GROUPS = "groups"


def labelled_samples(
    source: object, inputs: Sequence[TensorSpec], *, targets_required: bool, signature: str | None = None
) -> Iterator[LabelledSample]:
    """Turn scoring data into pairs of sample and target, one at a time; with groups, into triples.

    Samples of one group belong together: of one speaker, one subject, one recording. A group's label is a whole number
    or a text.

    Args:
        source: One of

            * the path of a ``.npz`` file: arrays by input name, or ``x`` or any name for a
              single input; targets in ``y``, groups in ``groups``;
            * a function without arguments, or an iterable, of ``(inputs, target)`` pairs or ``(inputs, target, group)``
              triples, the inputs in any form that :func:`autoselect.data.fit.fit_sample` takes;
            * a tuple ``(x, y)`` of arrays of N samples and N targets, or ``(x, y, groups)`` with N labels; ``x`` is an
              array, a dict of arrays, or a list of one array for each of several inputs;
            * a dict of arrays, as a ``.npz`` file would hold them;
            * the inputs alone, in any form of a representative dataset, if no targets are required;
            * ``"package.module:name"`` of any of these.
        inputs: The model's inputs.
        targets_required: Whether a sample without a target is refused.
        signature: As :func:`autoselect.data.representative.representative_samples` takes it.

    Yields:
        Sample and target, and the group's label where groups are given. Targets of arrays and batches come row by
        row, without a batch axis; their dtype is kept, integers stay integers. For a model of two inputs a pair of
        arrays is one sample of two inputs, as three arrays are for one of three: put its inputs into a list or dict to
        give a target.

    Raises:
        UsageError: If a ``package.module:name`` is malformed or names nothing.
        DataError: If the data are missing, empty or damaged, raise, do not fit the inputs, differ in
            length, lack targets that are required, or have groups that are neither whole numbers nor text.
    """
    data, keys = unwrap(source, purpose=_PURPOSE), [spec.key for spec in inputs]
    given: dict[str, Callable[[], Stack]] = {}
    if _is_stacked(data, keys):
        data, *beside = data
        for name, value, opened in zip((_TARGETS, _GROUPS), beside, (stack_of, labels_of), strict=False):
            if value is not None:
                given[name] = partial(opened, value, f"{_PURPOSE}, {'targets' if name == _TARGETS else name}")
        if not isinstance(data, Mapping) and not has_stack_per_input(data, keys):
            data = numeric_array(data, f"{_PURPOSE}, inputs")
    stacks = stacks_in(data, keys, purpose=_PURPOSE)
    if stacks is None:
        return _pairs_of_items(data, inputs, targets_required, signature)
    if isinstance(data, Mapping) and _GROUPS in data:
        stacks = {**stacks, _GROUPS: partial(labels_of, data[_GROUPS], f"{_PURPOSE}, {_GROUPS}")}
    taken = {name for spec in inputs for name in (spec.key, spec.name, spec.name.removesuffix(":0"))}
    labels = {name: stacks[name] for name in (_TARGETS, _GROUPS) if name in stacks and name not in taken} | given
    if targets_required and _TARGETS not in labels:
        raise DataError(_no_targets([*stacks]))
    picked = input_stacks(stacks, inputs, where=_PURPOSE, beside=labels)
    return _pairs_of_stacks(picked, labels, inputs)


def unread_arrays(source: object, inputs: Sequence[TensorSpec]) -> list[str]:
    """The names of arrays of a ``.npz`` file or a dict that are neither inputs nor targets nor groups.

    Args:
        source: As :func:`labelled_samples` takes it. One that has to be called or gone through gives no names.
        inputs: The model's inputs.
    """
    is_file = isinstance(source, (str, Path)) and str(source).endswith(".npz")
    if not is_file and not isinstance(source, Mapping):
        return []
    names = [*(stacks_in(source, [spec.key for spec in inputs], purpose=_PURPOSE) or {})]
    labels = {_TARGETS, _GROUPS}
    read = labels | {*input_names(names, inputs, labels).values()}
    return [name for name in names if name not in read]


def without_targets(source: object, keys: Sequence[str]) -> object:
    """The inputs of scoring data in a form of a representative dataset; what can be read once only is left as it is.

    Args:
        source: As :func:`labelled_samples` takes it.
        keys: Of the model's inputs, in their order.

    Raises:
        UsageError, DataError: As :func:`labelled_samples`.
    """
    data = unwrap(source, purpose=_PURPOSE)
    if data is source and isinstance(data, Iterator):
        return data
    if _is_stacked(data, keys):
        return data[0]
    if stacks_in(data, keys, purpose=_PURPOSE) is not None:
        return data
    return lambda: (item[0] if _is_labelled(item, keys) else item for _, item in numbered_items(data, purpose=_PURPOSE))


def _is_stacked(data: object, keys: Sequence[str]) -> TypeGuard[tuple[Any, ...]]:
    """Tell ``(x, y)`` and ``(x, y, groups)`` from samples in a tuple, which are alike."""
    if not isinstance(data, tuple) or is_signature_sample(data) or all(has_stack_per_input(v, keys) for v in data):
        return False
    has_groups = len(data) == 3 and not isinstance(data[2], Mapping)
    x = data[0] if data else None
    holds_stacks = isinstance(x, Mapping) or hasattr(x, "__array__") or has_stack_per_input(x, keys)
    return len(data) == 2 or (has_groups and holds_stacks)


def _pairs_of_stacks(
    stacks: Mapping[str, Stack],
    beside: Mapping[str, Callable[[], Stack]],
    inputs: Sequence[TensorSpec],
) -> Iterator[LabelledSample]:
    """Read the inputs, and the targets and groups beside them."""
    opened = {name: open_stack() for name, open_stack in beside.items()}
    check_lengths([*stacks.values(), *opened.values()], where=_PURPOSE)
    samples = stacked_samples(stacks, inputs, where=_SAMPLE)
    targets = opened[_TARGETS].rows() if _TARGETS in opened else repeat(None, len(next(iter(stacks.values()))))
    if _GROUPS not in opened:
        return zip(samples, targets, strict=True)
    groups = (_label(group, f"{_PURPOSE}, {_GROUPS}") for group in opened[_GROUPS].rows())
    return zip(samples, targets, groups, strict=True)


def _no_targets(names: Sequence[str]) -> str:
    arrays = "the arrays " + ", ".join(map(repr, names)) if names else "no array"
    near = [name for name in names if name.lower() in _TARGET_NAMES]
    rename = f" Rename {near[0]!r} to {_TARGETS!r}," if near else f" Add them as an array {_TARGETS!r},"
    return (
        f"{_PURPOSE}: expected targets in an array {_TARGETS!r} beside the inputs, got {arrays}.{rename} "
        "give a tuple (x, y), or choose a label-free metric. If an input of the model is itself called "
        f"{_TARGETS!r}, give a function that yields (inputs, target)."
    )


def _pairs_of_items(
    data: object, inputs: Sequence[TensorSpec], targets_required: bool, signature: str | None
) -> Iterator[LabelledSample]:
    is_empty = True
    for number, item in numbered_items(data, purpose=_PURPOSE, signature=signature):
        is_empty = False
        where = f"{_SAMPLE} {number} (counted from 0)"
        raw, target, group = (*item, None)[:3] if _is_labelled(item, inputs) else (item, None, None)
        if target is None and targets_required:
            raise DataError(
                f"{where}: expected a pair (inputs, target), got no target. Yield (inputs, target), the "
                "several inputs of a model in a list or dict, or choose a label-free metric."
            )
        samples = list(fit_sample(raw, inputs, where=where))
        targets = _target_rows(target, len(samples), where)
        if group is None:
            yield from zip(samples, targets, strict=True)
        else:
            yield from zip(samples, targets, _group_rows(group, len(samples), where), strict=True)
    if is_empty:
        raise DataError(f"{_PURPOSE}: expected at least one sample, got none. Check what yields the samples.")


def _is_labelled(item: object, inputs: Sequence[object]) -> TypeGuard[Sequence[Any]]:
    """Tell ``(inputs, target)`` and ``(inputs, target, group)`` from the inputs alone."""
    if not isinstance(item, (list, tuple)) or len(item) not in (2, 3) or is_signature_sample(item):
        return False
    return len(inputs) != len(item) or isinstance(item[0], (list, tuple, Mapping))


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


def _group_rows(group: object, count: int, where: str) -> Sequence[str]:
    """The label of each sample of a batch; one label is that of them all."""
    where = f"{where}, group"
    labels = list(labels_of(group, where).rows()) if isinstance(group, (list, tuple, np.ndarray)) else [group] * count
    if len(labels) != count:
        raise DataError(
            f"{where}: expected {count} groups for a batch of {count} samples, got {len(labels)}. "
            "Yield one group per sample, or one for all of them."
        )
    return [_label(label, where) for label in labels]


def _label(value: object, where: str) -> str:
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "biuSU":
        raise DataError(
            f"{where}: expected a whole number or a text for each sample, got {array.dtype} of shape {array.shape}. "
            "Number the speakers, subjects or recordings, or name them; weights of samples are not taken."
        )
    return str(array.item())
