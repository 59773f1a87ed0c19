"""What a worker does to say what the type of inputs and outputs alone costs."""

from __future__ import annotations

from pathlib import Path

from autoselect.cases import evidence_jobs, score_jobs
from autoselect.cases.open_case import open_case
from autoselect.domain.recipe import Recipe
from autoselect.runs.files import write_bytes


def score_types(root: Path, recipe_json: str) -> tuple[float, float | None]:
    """Score the float model on the search samples with the types of inputs and outputs that a recipe has.

    Args:
        root: The case.
        recipe_json: The recipe; its nodes and repairs do not count.

    Returns:
        The score, and the lower end of the 95 % interval of what these types lose, in the metric's units. This end is
        None with an evaluator that returns one number.

    Raises:
        BuildError: If it cannot be built.
        ScoreError: If it cannot be run, or has no score.
    """
    case = open_case(root)
    nodes = frozenset(node.name for node in case.prepared.layers.nodes)
    recipe = Recipe.from_json(recipe_json)
    candidate = case.builder.build(
        Recipe(denylisted_nodes=nodes, fallback="float", per_channel=recipe.per_channel, io_type=recipe.io_type)
    )
    write_bytes(case.files.candidate(candidate.sha256), candidate.content)
    value = score_jobs.score(root, candidate.sha256, "search", False).value
    with score_jobs.score_errors(candidate.sha256):
        paired = evidence_jobs.paired(root, candidate.sha256)
    return value, None if paired is None else paired.low
