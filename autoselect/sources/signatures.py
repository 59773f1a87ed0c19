"""Which signature of a TFLite file is the model: its subgraph becomes the main one, with what it reaches."""

from __future__ import annotations

from collections.abc import Sequence

from autoselect.errors import ModelError, UsageError
from autoselect.rewrites.subgraphs import make_main
from autoselect.tflite import flatbuffer as fb


def choose(model: fb.Model, key: str | None) -> None:
    """Make the subgraph of a signature the main one and drop what it does not reach, in place.

    Args:
        model: Changed where the signature's subgraph is not the main one already.
        key: Of the signature; None for the only one.

    Raises:
        UsageError: If there is no such signature.
        ModelError: If there are several and none is chosen.
    """
    keys = {_key(signature): int(signature.subgraphIndex or 0) for signature in model.signatureDefs or []}
    if key is None and len(set(keys.values())) > 1:
        raise ModelError(several(tuple(keys)))
    if key is not None and key not in keys:
        raise UsageError(unknown(key, tuple(keys)))
    if not keys:
        return
    taken = key if key is not None else next(iter(keys))
    make_main(model, keys[taken])
    model.signatureDefs = [
        s
        for s in model.signatureDefs or []
        # LiteRT runs a model whose signature names no outputs, and TensorFlow's calibrator refuses it.
        if (key is None or _key(s) == key) and s.subgraphIndex == 0 and s.outputs
    ]


def several(keys: Sequence[str]) -> str:
    """The message where a source has several signatures and none is chosen."""
    return (
        f"The model has several signatures: {', '.join(keys)}. Choose the one to quantize with --signature "
        f"(signature=... in Python), for example --signature {keys[0]}."
    )


def unknown(key: str, keys: Sequence[str]) -> str:
    """The message where a source has no such signature."""
    if not keys:
        return f"--signature: the model has no signatures, got {key!r}. Leave the option out."
    return f"--signature: the model has no signature {key!r}. Its signatures: {', '.join(keys)}."


def _key(signature: fb.SignatureDef) -> str:
    return (signature.signatureKey or b"").decode("utf-8", "replace")
