"""What passes say of themselves, what they leave alone, and what else a candidate costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zoo

from autoselect.domain.recipe import Recipe
from autoselect.quantize.building import left_out, passes
from autoselect.quantize.building.wholes import make_wholes
from autoselect.quantize.repairing.built import Pass
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb


@pytest.mark.parametrize(
    "step", dict.fromkeys(passes.HYBRID + passes.INTEGER + passes.CANDIDATE), ids=lambda step: step.__name__
)
def test_every_pass_says_what_it_needs_and_gives(step: Pass) -> None:
    said = step.__doc__ or ""
    assert 0 <= said.find("Needs ") < said.find(" Gives ")


def test_passes_leave_the_calibrated_model_as_it_was() -> None:
    prepared = zoo.cnn().prepared
    kit = RepairKit(prepared.calibrated, prepared.fed)
    for repairs in ((), ("bias", "weights-mse")):
        make_wholes(kit, Recipe(repairs=repairs))
    assert fb.serialise(kit.float_model()) == fb.serialise(fb.parse(prepared.calibrated.content))


def test_edits_of_a_copy_do_not_reach_the_model() -> None:
    model = fb.parse(zoo.cnn().float_model)
    before, twin = fb.serialise(model), editing.copied(model)
    op = twin.subgraphs[0].operators[0]
    op.inputs[0], op.builtinOptions.strideH, twin.operatorCodes[0].version = 0, 7, 99
    twin.subgraphs[0].tensors[0].name, twin.buffers[1].data = b"other", np.zeros(3, np.uint8)
    assert fb.serialise(twin) != before
    assert fb.serialise(model) == before


def test_a_further_candidate_is_resolved_and_serialised_once_and_parses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builder = zoo.cnn().prepared.builder
    first = builder.build(Recipe(denylisted_ops=frozenset({"CONV_2D"}))).sha256
    calls: Counter[str] = Counter()

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            calls[function.__name__] += 1
            return function(*args)

        return call

    for module, name in ((fb, "parse"), (fb, "serialise"), (left_out, "resolve")):
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    assert builder.build(Recipe(denylisted_ops=frozenset({"SOFTMAX"}))).sha256 != first
    assert calls == {"serialise": 1, "resolve": 1}
