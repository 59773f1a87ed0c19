"""What workers do to say what is broken in each node, and its cheapest cure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoselect.cases.divergence import samples_of
from autoselect.cases.open_case import OpenCase, open_case
from autoselect.domain.findings import ErrorParts
from autoselect.domain.recipe import Recipe
from autoselect.domain.targets import Target
from autoselect.quantize.diagnosing.cures import Cure, Model, cures
from autoselect.quantize.diagnosing.twins import error_parts
from autoselect.tflite.tflite_file import TfliteFile

MOST_SAMPLES = 8
"""Samples on which the parts of errors are measured: powers over all values settle soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cured:
    """A node whose parts were measured."""

    parts: ErrorParts
    cure: Cure


def parts(
    root: Path, content: bytes, places: Mapping[int, int], samples: str, rows: Sequence[int]
) -> dict[str, ErrorParts]:
    """What rounded weights and rounded activations do; see :func:`autoselect.quantize.diagnosing.twins.error_parts`."""
    case = open_case(root)
    prepared, built = case.prepared, TfliteFile(content)
    return error_parts(prepared.normalised, built, places, prepared.layers.nodes, samples_of(case, samples, rows))


def forms(
    root: Path, recipe_json: str, *, int16: bool = True, target: Target | None = None
) -> dict[int, dict[str, str | None]]:
    """Which forms each op has, see :attr:`autoselect.quantize.building.blueprint.Blueprint.forms`.

    Args:
        root: The case.
        recipe_json: Of the granularity, the interface and the repairs.
        int16: Whether forms with 16-bit activations are asked for.
        target: Whose compiler is asked; that of the case if left out.

    Raises:
        TrialError: If the target's compiler fails.
    """
    case, recipe = open_case(root), Recipe.from_json(recipe_json)
    builder = case.builder if target is None else case.builder_for(target)
    return builder.blueprint(recipe, int16=int16).forms


def cured(root: Path, recipe_json: str, int16: bool) -> dict[str, Cured]:
    """The parts of every node's error in a recipe's model, on calibration samples, and the cures; by node name."""
    case = open_case(root)
    built = case.builder.build(Recipe.from_json(recipe_json))
    parts_by_node = parts(root, built.content, dict(built.places), "calibration", range(_sample_count(case)))
    model = Model(
        nodes=case.prepared.layers.nodes,
        graph=case.prepared.graph,
        target=case.target,
        forms=forms(root, recipe_json, int16=int16),
        int16=int16,
    )
    return {name: Cured(parts=parts_by_node[name], cure=cure) for name, cure in cures(model, parts_by_node).items()}


def _sample_count(case: OpenCase) -> int:
    graph = case.prepared.graph
    values = sum(graph.tensors[tensor].size_bytes // 4 for op in graph.ops for tensor in op.outputs)
    # Most values of all outputs of all nodes on all samples: each is rounded some ten times.
    return max(min(MOST_SAMPLES, len(case.samples("calibration")), 10**8 // max(values, 1)), 1)
