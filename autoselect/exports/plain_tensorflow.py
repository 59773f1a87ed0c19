"""A candidate's integer part as a short script that needs TensorFlow and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoselect.domain.recipe import Recipe
from autoselect.domain.states import STOOD_FOR
from autoselect.exports.member_ops import MemberOp
from autoselect.quantize.repairing.repairs import before_quantizing
from autoselect.rewrites.for_quantizer import STANDS_IN

_SCRIPT = '''\
"""Build the integer part of {member}.tflite from {calibrated}, with TensorFlow alone.

    python {member}.build.py out.tflite

The script reads {calibrated} in the folder above its own, as the run folder has it.

{words}
"""
import pathlib
import sys

import tensorflow as tf
from tensorflow.lite.python.convert import mlir_quantize

DENYLISTED = {{{denylisted}}}  # name in {calibrated}: name in the float model
calibrated = pathlib.Path(__file__).resolve().parents[1] / "{calibrated}"
if len(sys.argv) != 2 or not calibrated.is_file():
    sys.exit(f"{{__doc__}} {{calibrated}}: {{'there' if calibrated.is_file() else 'not there'}}")
model = mlir_quantize(
    calibrated.read_bytes(),
    disable_per_channel={disable_per_channel},
    input_data_type=tf.{io_type},
    output_data_type=tf.{io_type},
    denylisted_nodes=list(DENYLISTED) or None,
)
pathlib.Path(sys.argv[1]).write_bytes(model)
'''


def build_script(
    member: str, ops: Sequence[MemberOp], recipe: Recipe, canonical: Mapping[int, str], calibrated: str
) -> str:
    """Write the script.

    Args:
        member: Id of the candidate.
        ops: The ops of the float model, with what the candidate made of them.
        recipe: For its granularity, its fallback and the type of inputs and outputs.
        canonical: By index of an op the name that all its outputs have in the calibrated model.
        calibrated: Name of the file that holds it, after the repairs that come before quantizing, one folder higher.

    Returns:
        Python source. What plain TensorFlow cannot express of the recipe, its docstring says in words.
    """
    denied = [op for op in ops if op.denylisted]
    entries = "".join(f"\n    {canonical[op.index]!r}: {op.outputs[0]!a}," for op in denied)
    return _SCRIPT.format(
        member=member,
        calibrated=calibrated,
        words="\n".join(_words(member, denied, ops, recipe)),
        denylisted=f"{entries}\n" if entries else "",
        disable_per_channel=not recipe.per_channel,
        io_type=recipe.io_type,
    )


def _words(member: str, denied: Sequence[MemberOp], ops: Sequence[MemberOp], recipe: Recipe) -> list[str]:
    hybrid, wide = sum(op.kind == "hybrid" for op in denied), sum(op.kind == "int16" for op in ops)
    apart = sorted({op.op_type for op in ops if op.kind == "integer" and op.op_type in {*STOOD_FOR, *STANDS_IN}})
    words = [f"Nodes left out of integers: {len(denied)}. Every op has a name here that the quantizer cannot change."]
    if denied:
        words.append("The quantizer may keep one of them in integers beside neighbours that share its scale, and may")
        words.append(f"round a value twice where ops of both kinds meet; {member}.tflite does neither.")
    lacking = []
    if hybrid:
        lacking.append(f"{hybrid} of them, float here, are dynamic-range quantized in {member}.tflite")
    if wide:
        lacking.append(f"nodes with 16-bit activations in {member}.tflite, which have 8 bits here: {wide}")
    if apart:
        lacking.append(f"ops that are float here and in integers in {member}.tflite: {', '.join(apart)}")
    late = sorted(set(recipe.repairs) - set(before_quantizing(recipe.repairs)))
    if late:
        lacking.append(f"{member}.tflite has repairs that this model lacks: {', '.join(late)}")
    if recipe.io_type != "float32" and denied:
        lacking.append(f"an output that is float here is {recipe.io_type} in {member}.tflite")
    if lacking:
        words.append("What plain TensorFlow cannot express of the recipe:")
        words += [f"* {difference}." for difference in lacking]
    else:
        words.append("Plain TensorFlow expresses the whole recipe.")
    return [*words, f"In {member}.tflite the ops have the float model's names again, and equal constants are shared."]
