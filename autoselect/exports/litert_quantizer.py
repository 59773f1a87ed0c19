"""A candidate as a recipe of litert-quantizer: a list of rules; knows the format, not the package.

A rule has a regular expression, which is searched for in an op's scope: the names of its outputs, each followed by
``;``. Of the rules that match an op, the last one that suits its type holds. The format is that of the package's own
``recipes/*.json``: https://github.com/google-ai-edge/litert-quantizer
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from autoselect.domain.recipe import Recipe
from autoselect.exports.member_ops import MemberOp

_MIN_MAX, _NOTHING = "min_max_uniform_quantize", "no_quantize"
_OPERATIONS = {"TRANSPOSE_CONV": "CONV_2D_TRANSPOSE"}
"""Op types that the package calls otherwise."""
DYNAMIC_OPERATIONS = frozenset(
    {"FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "BATCH_MATMUL", "EMBEDDING_LOOKUP"}
)
"""Op types that the package can make dynamic-range quantized."""


def litert_recipe(ops: Sequence[MemberOp], recipe: Recipe) -> list[dict[str, Any]]:
    """Express a candidate as rules.

    8-bit integers are the rule, and what has none in the candidate is an exception: quantized with 16-bit activations
    or dynamic-range quantized, where the candidate has it so and the package can, else left as it is. The package
    refuses a rule that names an op type that it cannot quantize so, and passes over such ops where none is named.

    Returns:
        What ``Quantizer(float_model, rules)`` takes, calibrated where ``need_calibration`` says so.
    """
    rules = _integers(recipe) if any(op.kind == "integer" for op in ops) else []
    for op in ops:
        if op.kind in ("integer", "neutral", "folded"):
            continue
        scope = f"^{re.escape(''.join(f'{name};' for name in op.outputs))}$"
        rules.append(_rule(scope, "*", None))
        if op.kind == "hybrid" and op.op_type in DYNAMIC_OPERATIONS:
            rules.append(_rule(scope, _OPERATIONS.get(op.op_type, op.op_type), _dynamic()))
        if op.kind == "int16":
            rules.append(_rule(scope, "*", _static(_granularity(recipe), bits=16)))
    return rules


def _integers(recipe: Recipe) -> list[dict[str, Any]]:
    """Everything in integers, but for inputs and outputs that are float; a model without integers has no such rule."""
    rules = [_rule(".*", "*", _static(_granularity(recipe)))]
    if recipe.io_type == "float32":
        rules += [_rule(".*", side, None) for side in ("INPUT", "OUTPUT")]
    return rules


def _granularity(recipe: Recipe) -> str:
    return "CHANNELWISE" if recipe.per_channel else "TENSORWISE"


def _rule(regex: str, operation: str, config: dict[str, Any] | None) -> dict[str, Any]:
    """One rule; without a configuration it leaves the op as it is."""
    if config is None:
        return {"regex": regex, "operation": operation, "algorithm_key": _NOTHING, "op_config": {}}
    return {"regex": regex, "operation": operation, "algorithm_key": _MIN_MAX, "op_config": config}


def _static(granularity: str, bits: int = 8) -> dict[str, Any]:
    return {
        "activation_tensor_config": {**_tensor("TENSORWISE", symmetric=bits == 16), "num_bits": bits},
        **_dynamic(granularity),
    }


def _dynamic(granularity: str = "CHANNELWISE") -> dict[str, Any]:
    """Weights alone; autoselect's dynamic-range weights are per channel, whatever the integer ones are."""
    return {
        "weight_tensor_config": _tensor(granularity, symmetric=True),
        "compute_precision": "INTEGER",
        "explicit_dequantize": False,
        "skip_checks": False,
        "min_weight_elements": 0,
    }


def _tensor(granularity: str, *, symmetric: bool) -> dict[str, Any]:
    return {"num_bits": 8, "symmetric": symmetric, "granularity": granularity, "dtype": "INT"}
