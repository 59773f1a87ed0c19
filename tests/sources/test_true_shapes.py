"""What is told of a finished model whose file leaves sizes free."""

from __future__ import annotations

from pathlib import Path

import nets
import pytest

import autoselect
from autoselect.embedded import model_path
from autoselect.errors import UsageError
from autoselect.sources import loading


@pytest.mark.parametrize("name", ["mixer", "transformer"])
def test_costs_are_by_the_shapes_that_a_model_has_when_it_runs(name: str) -> None:
    original = nets.converted(name)
    settled = loading.float_model(original).content
    found, expected = (autoselect.inspect(content, target="litert-cpu").target for content in (original, settled))
    assert (found["penalty"], found["arena_bytes"]) == (expected["penalty"], expected["arena_bytes"])
    assert found["notes"] == []


@pytest.mark.real
def test_sizes_are_given_or_told_to_be_missing(real_data: Path) -> None:
    path = real_data / "zoo" / "melspectrogram.tflite"
    unknown = autoselect.inspect(path, target="litert-cpu").target
    assert "--shape" in unknown["notes"][0]
    costs = [
        autoselect.inspect(path, target="litert-cpu", shapes={"input": (1, size)}).target["penalty"]
        for size in (1280, 12800)
    ]
    assert unknown["penalty"] < costs[0] < costs[1] / 8


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="window"):
        autoselect.inspect(model_path(), shapes={"window": (1, 128, 12)})
