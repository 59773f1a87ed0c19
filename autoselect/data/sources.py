"""The things a user may hand over as data, made into arrays or items; knows no targets and no shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

from autoselect.data.fit import is_signature_sample
from autoselect.data.specs import load_object, name_of
from autoselect.data.stacks import SOLE_INPUT, Stack, require_file, stack_of, stacks_of_file
from autoselect.errors import AutoselectError, DataError

_FILE_SUFFIXES = (".npz", ".npy")
_FORMS = "a .npz or .npy file, 'package.module:function', a function that yields samples, or arrays"


def refuse_missing_file(source: object) -> None:
    """Refuse the path of a data file where there is none; whatever else a source may be is left for when it is read.

    Raises:
        DataError: With the folder that was looked in.
    """
    if isinstance(source, (str, Path)) and str(source).endswith(_FILE_SUFFIXES):
        require_file(Path(source))


def unwrap(source: object, *, purpose: str) -> object:
    """Follow a source to the data: import a spec, take ``input_gen``, call a function.

    Args:
        source: A path, a ``package.module:name`` string, a callable without arguments, an object with
            an ``input_gen`` attribute, or data.
        purpose: The first words of every message.

    Raises:
        UsageError: If a spec is malformed or names nothing.
        DataError: If a function raises or returns nothing.
    """
    if isinstance(source, str) and ":" in source and not source.endswith(_FILE_SUFFIXES):
        source = load_object(source, purpose=purpose)
    source = getattr(source, "input_gen", source)
    return _called(source, purpose) if callable(source) else source


def _called(function: Callable[[], object], purpose: str) -> object:
    name = name_of(function)
    try:
        result = function()
    except AutoselectError:
        raise
    except Exception as exc:  # The user's function may raise anything.
        raise DataError(
            f"{purpose}: expected {name}() to yield samples, but it raised {type(exc).__name__}: {exc}. "
            "It is called without arguments; repair it so that a plain call works."
        ) from exc
    if result is None:
        raise DataError(f"{purpose}: expected {name}() to yield samples, got None. Does it lack a `yield`?")
    return result


def stacks_in(data: object, keys: Sequence[str] = (), *, purpose: str) -> Mapping[str, Callable[[], Stack]] | None:
    """Open the stacks of a file, an array, a dict of arrays, or a list of one array for each of several inputs.

    Args:
        data: What a source holds.
        keys: Of the model's inputs, in their order; without them a list is one of samples.
        purpose: The first words of every message.

    Returns:
        Name -> function that opens the stack; an array by itself is called ``x``. None if the data are
        an iterable of items instead.

    Raises:
        DataError: If a file is missing or damaged, or the data are of no known form.
    """
    if isinstance(data, (str, Path)):
        if not str(data).endswith(_FILE_SUFFIXES):
            raise DataError(f"{purpose}: expected {_FORMS}, got {str(data)!r}. Give one of these forms.")
        return stacks_of_file(Path(data))
    if hasattr(data, "__array__"):  # NumPy's own, or that of a library: a tensor, a table.
        return {SOLE_INPUT: partial(stack_of, data, f"{purpose}, array")}
    if has_stack_per_input(data, keys):
        data = dict(zip(keys, data, strict=True))
    if isinstance(data, Mapping):
        return {name: partial(stack_of, data[name], f"{purpose}, array {name!r}") for name in data}
    return None


def has_stack_per_input(data: object, keys: Sequence[str]) -> TypeGuard[Sequence[Any]]:
    """Tell a list of one array for each of several inputs, as Keras takes it, from a list of samples.

    A sample of several inputs is no array.
    """
    if not isinstance(data, (list, tuple)) or len(data) != len(keys) or len(keys) < 2:
        return False
    return all(hasattr(value, "__array__") for value in data)


def numbered_items(data: object, *, purpose: str, signature: str | None = None) -> Iterator[tuple[int, Any]]:
    """Yield the items of an iterable with their numbers from 0 on; what the iterable raises becomes a DataError.

    Args:
        data: What is gone through.
        purpose: The first words of every message.
        signature: Key of the chosen signature. Samples that name another signature are left out, because one data
            set serves all signatures of a ``TFLiteConverter``. None takes all samples.

    Raises:
        DataError: If the data cannot be iterated or say that they never end, if they raise meanwhile (the message names
            exception and item), or if all samples name other signatures.
    """
    left, is_empty = dict[str, None](), True
    for number, item in _numbered(data, purpose):
        other = None if signature is None else _signature_of(item)
        if other in (None, signature):
            is_empty = False
            yield number, item
        else:
            left[other] = None
    if left and is_empty:
        raise DataError(
            f"{purpose}: expected samples of the signature {signature!r}, got those of {', '.join(map(repr, left))} "
            "alone. Choose one of these, or name the signature in each sample."
        )


def _signature_of(item: Any) -> str | None:
    """The key in a ``(signature, dict)`` sample, which may have a label beside it; None if the sample has no key."""
    if isinstance(item, (list, tuple)) and item and is_signature_sample(item[0]):
        item = item[0]
    return item[0] if is_signature_sample(item) else None


def _numbered(data: object, purpose: str) -> Iterator[tuple[int, Any]]:
    if not isinstance(data, Iterable):
        raise DataError(f"{purpose}: expected {_FORMS}, got {type(data).__name__}. Give one of these forms.")
    if _is_endless(data):
        raise DataError(
            f"{purpose}: expected a data set that ends, got one that repeats for ever. Leave out .repeat(), or take a "
            "number of its items: .take(n)."
        )
    items = iter(data)
    number = 0
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        except AutoselectError:
            raise
        except Exception as exc:  # The user's generator may raise anything.
            raise DataError(
                f"{purpose}: expected a sample, but making sample {number} (counted from 0) raised "
                f"{type(exc).__name__}: {exc}. Repair the function or data that make the samples."
            ) from exc
        yield number, item
        number += 1


def _is_endless(data: object) -> bool:
    """Whether a ``tf.data.Dataset`` says that it repeats for ever."""
    infinite = -1  # tf.data.INFINITE_CARDINALITY
    cardinality = getattr(data, "cardinality", None)
    return callable(cardinality) and hasattr(data, "element_spec") and int(cardinality()) == infinite
