"""What a candidate that is asked about is: exact costs, what it probably loses, and how far it is from the front."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoselect.data.kinds import Samples
from autoselect.domain.recipe import Recipe
from autoselect.domain.result import Result
from autoselect.study.what_if.workshop import Scored

if TYPE_CHECKING:
    from autoselect.study.what_if.questions import Questions


class _Asked(Result):
    """Remembers who answered, and for which target: by what that was asked for, since two may have one name."""

    __slots__ = ("_maker", "_spec")

    _maker: Questions
    _spec: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WhatIf(_Asked):
    """One candidate that was asked about.

    Sizes, penalty, segments and kinds are those of the file: they are exact without a build. Only of a target whose
    compiler compiles each candidate the penalty is what its rules forecast, unless ``compiled`` says otherwise.

    Attributes:
        name: Where the recipe comes from, and the changes, in words.
        recipe: Resolved: for :func:`autoselect.build`, or for another question.
        size_bytes: Size of the file.
        penalty: Fragmentation penalty, or that of the target.
        forecast_penalty: What the rules of the target forecast of the penalty. Answers and members are compared by it,
            whether they were compiled or not.
        segments: Pieces of the accelerator's work.
        kinds: Count of nodes by what becomes of them: ``integer``, ``int16``, ``hybrid``, ``float``; ``folded`` if
            nobody reads their outputs.
        nodes: What becomes of each node.
        fallbacks: For nodes that are not what the recipe asks for, why.
        float_ops: Ops that compute in float, hybrid ones included.
        left_ops: Ops that the accelerator does not run.
        crossing_tensors: Tensors between accelerator and host; for ``integer-only`` between integer and float.
        crossing_bytes: Their bytes.
        float_macs_share: Share of the multiplications that are done in float, 0 to 1.
        arena_bytes: Peak memory of activations.
        target: What all this is for.
        refusal: Why the target or the runtime does not take the model; empty if they do.
        compiled: Whether penalty and segments are those of a compiled file, as of a candidate that the run compiled.
        metric: Name of the run's metric.
        drop: Expected loss against the float model, in the metric's units; None if nobody knows, see ``unknown``.
        drop_low: Lower end of an interval that holds nine in ten of the losses that such a candidate would show on the
            search samples; if it was scored, on other samples like these.
        drop_high: Its upper end.
        unknown: Why nobody knows what it loses; empty if the trials tell.
        approximate: Whether the drop is that of the nearest candidate of whole units: the recipe parts nodes that the
            search moves together, so that no trial is like it.
        allowed_drop: What a recommended model may lose.
        far: Whether its outputs are too far from float's for a score like float's to count without a bound, see
            :meth:`autoselect.domain.rule.Rule.is_far`; None if ``drop`` is.
        chance_within: How likely it loses no more than that on the search samples, once they score it; if they have
            scored it, how likely on other samples like these. 0 if it is far; None if nobody knows.
        trial: Number of the trial that scored it; None if none did.
        scored_drop: What it lost on the search samples there; None if it was not scored.
        on_front: Whether it keeps the limits that were set, and no member of the front costs less and loses no more, or
            costs no more and loses less, by what is expected; None if nobody knows.
        dominated_by: Ids of the members that do, the least loss first.
        gap: By how much its expected drop is above that of the best of these; 0 if it is on the front.
        chance_on_front: How likely it would be on the front if it were scored; None if nobody knows.
        preferred: Whether the rule of the recommendation prefers it to the recommended member, by what is expected;
            None if nobody knows.
    """

    name: str
    recipe: Recipe
    size_bytes: int
    penalty: float
    forecast_penalty: float
    segments: int
    kinds: Mapping[str, int]
    nodes: Mapping[str, str]
    fallbacks: Mapping[str, str]
    float_ops: int
    left_ops: int
    crossing_tensors: int
    crossing_bytes: int
    float_macs_share: float
    arena_bytes: int
    target: str
    refusal: str
    compiled: bool
    metric: str
    drop: float | None
    drop_low: float | None
    drop_high: float | None
    unknown: str
    approximate: bool
    allowed_drop: float
    far: bool | None
    chance_within: float | None
    trial: int | None
    scored_drop: float | None
    on_front: bool | None
    dominated_by: tuple[str, ...]
    gap: float | None
    chance_on_front: float | None
    preferred: bool | None

    def build(self, output: str | Path | None = None, *, force: bool = False) -> bytes | Path:
        """Build the model.

        Args:
            output: File to write; None gives the bytes.
            force: Write over an existing file.

        Returns:
            The file, or the bytes.

        Raises:
            UsageError: If the file exists, or its repairs are measured on calibration samples that are not there any
                more.
            PreparationError: If it cannot be built, or the target refuses it.
            StorageError: If the file cannot be written.
        """
        from autoselect.runs.files import refuse_existing, write_bytes

        if output is not None and not force:
            refuse_existing(Path(output), "--build (output=...)")
        content = self._maker.content_of(self)
        if output is None:
            return content
        write_bytes(Path(output), content)
        return Path(output)

    def score(self, samples: Samples | None = None, **live: Any) -> Scored:
        """Build the model and score it, in a process of its own, as the run scored its candidates.

        Args:
            samples: Samples with targets, as for :func:`autoselect.search`; None takes the search samples of the run.
                An evaluator brings its own.
            live: ``metric``, ``evaluator``, ``evaluation``, ``heldout`` or ``calibration``, if the run was started with
                an object in its place.

        Returns:
            The score, and the loss against the float model on the same samples.

        Raises:
            UsageError: If such an object is missing.
            RunFolderError: If the samples of the run are others by now.
            DataError: If samples do not fit.
            PreparationError: If the model cannot be built or run.
            MetricError: If the metric has no value for it.
        """
        return self._maker.score_of(self, samples, live)

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain dictionaries and lists, for ``json.dumps``."""
        return {
            **dict(self),
            "recipe": json.loads(self.recipe.to_json()),
            "kinds": dict(self.kinds),
            "nodes": dict(self.nodes),
            "fallbacks": dict(self.fallbacks),
            "dominated_by": list(self.dominated_by),
        }

    def row(self) -> dict[str, Any]:
        """What fits in a row of a table: all but the recipe and its nodes; kinds are columns of their own."""
        left_out = {"recipe", "kinds", "nodes", "fallbacks", "dominated_by"}
        counts = {f"{kind}_nodes": self.kinds.get(kind, 0) for kind in ("integer", "int16", "hybrid", "float")}
        plain = {name: value for name, value in self.items() if name not in left_out}
        return {**plain, **counts, "dominated_by": " ".join(self.dominated_by)}


def answered_by(answer: WhatIf, maker: Questions, spec: str) -> WhatIf:
    """The answer, which knows who builds and scores it, and for which target."""
    object.__setattr__(answer, "_maker", maker)
    object.__setattr__(answer, "_spec", spec)
    return answer


def spec_of(answer: WhatIf) -> str:
    """The name or path of the target that an answer is for."""
    return answer._spec
