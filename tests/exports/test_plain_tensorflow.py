"""What a script of plain TensorFlow says that it lacks."""

from __future__ import annotations

import pytest

from autoselect.domain.recipe import Recipe
from autoselect.exports.member_ops import MemberOp
from autoselect.exports.plain_tensorflow import build_script


@pytest.mark.parametrize("op_type", ["CAST", "ELU"])
@pytest.mark.parametrize(("kind", "is_told"), [("integer", True), ("neutral", False)])
def test_an_op_that_plain_tensorflow_leaves_in_float_is_told(op_type: str, kind: str, is_told: bool) -> None:
    op = MemberOp(index=0, op_type=op_type, outputs=("x",), kind=kind, denylisted=False)
    script = build_script("member", (op,), Recipe(), {0: "op_0000_x"}, "calibrated.tflite")
    assert (op_type in script) is is_told
