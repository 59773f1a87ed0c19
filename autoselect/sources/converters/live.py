"""Live models of other frameworks, as the bytes of the file that they would be saved as; imports none of these."""

from __future__ import annotations

import copy
import inspect
import io
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from autoselect.data.sources import numbered_items, stacks_in, unwrap
from autoselect.errors import ModelError, UsageError, first_line, sentence
from autoselect.sources.wishes import Wishes

_PURPOSE = "representative dataset"


def saved(source: Any, wishes: Wishes, calibration: object) -> bytes | None:
    """Bytes of an ONNX model, a program of ``torch.export``, or a module that is exported here; None for all else.

    Args:
        source: Anything. A module is copied to the CPU first, and its copy set to inference.
        wishes: Sizes of a module's inputs by the name of the argument.
        calibration: Where they come from if nobody wishes any: the first sample.

    Raises:
        UsageError: If a module's inputs are not known.
        ModelError: If it cannot be exported.
    """
    classes = {(base.__module__.split(".")[0], base.__name__) for base in type(source).__mro__}
    if ("onnx", "ModelProto") in classes:
        return bytes(source.SerializeToString())
    if ("torch", "ExportedProgram") in classes:
        return _written(source)
    if ("torch", "Module") in classes:
        return _written(_exported(source, wishes, calibration))
    return None


def _written(program: Any) -> bytes:
    import torch

    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def _exported(module: Any, wishes: Wishes, calibration: object) -> Any:
    import torch

    given = _example(inspect.signature(module.forward), dict(wishes.shapes), calibration)
    try:
        work = copy.deepcopy(module).cpu().eval()
    except Exception as exc:
        raise ModelError(
            f"The module cannot be copied to the CPU: {sentence(first_line(exc))} A module on the device 'meta' has no "
            "weights: make it with to_empty(device='cpu') and load its weights first."
        ) from exc
    try:
        return torch.export.export(work, tuple(torch.from_numpy(array) for array in given))
    except Exception as exc:  # torch.export raises errors of many kinds.
        raise ModelError(
            f"torch.export cannot export the module: {sentence(first_line(exc))} Export it yourself, and pass the "
            "program or its .pt2 file."
        ) from exc


def _example(
    signature: inspect.Signature, shapes: Mapping[str, tuple[int, ...]], calibration: object
) -> list[np.ndarray]:
    """One value for each argument of a module, with its batch axis."""
    names = list(signature.parameters)
    if shapes:
        return [np.zeros(shapes[name], np.float32) for name in names if name in shapes]
    data = None if calibration is None else unwrap(calibration, purpose=_PURPOSE)
    if data is None or (data is calibration and hasattr(data, "__next__")):
        raise UsageError(
            "A PyTorch module does not say what its inputs are. Give their sizes (shapes=..., by the name of the "
            "argument), or calibration samples that can be read more than once."
        )
    required = [
        name
        for name, argument in signature.parameters.items()
        if argument.default is argument.empty and argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
    ]
    stacks = stacks_in(data, required, purpose=_PURPOSE)
    if stacks is not None:
        opened = {name: stack() for name, stack in stacks.items() if name in names or len(stacks) == 1 or name == "x"}
        order = [name for name in names if name in opened] or list(opened)[:1]
        return [np.asarray(next(iter(opened[name].rows())))[np.newaxis] for name in order]
    _, raw = next(itertools.islice(numbered_items(data, purpose=_PURPOSE), 1))
    if isinstance(raw, Mapping):
        return [np.asarray(raw[name]) for name in names if name in raw]
    return [np.asarray(part) for part in (raw if isinstance(raw, (list, tuple)) else [raw])]
