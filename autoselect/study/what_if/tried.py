"""What the trials of a run tell of a candidate: what it would lose, and which members of the front are ahead of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from autoselect.domain.objectives import Objective
from autoselect.domain.quantities import BY_COLUMN, objectives_of
from autoselect.domain.recipe import Recipe
from autoselect.domain.rule import Rule, Standing
from autoselect.domain.states import EXACT, SIXTEEN, further_of, left_out_of
from autoselect.domain.words import SHARES
from autoselect.errors import RunFolderError, UsageError
from autoselect.quantize.building.blueprint import Plan
from autoselect.quantize.building.left_out import left_out
from autoselect.runs.folder import RunFolder, read_json
from autoselect.runs.records import Scores, TrialRecord, distinct, scores_of
from autoselect.study import references
from autoselect.study.finishing.certainty import expected_drops, link_of, standings_of
from autoselect.study.finishing.front_members import front_of
from autoselect.study.finishing.limits_file import as_kept
from autoselect.study.proposing.costs import CostModel
from autoselect.study.proposing.expectation import Expectation, Likely
from autoselect.study.proposing.hypervolume_gain import Link
from autoselect.study.proposing.mask import Mask, bits
from autoselect.study.proposing.observations import Reader, Seen
from autoselect.study.proposing.problem import Problem
from autoselect.study.recording.kept_case import kept_standings, kept_units
from autoselect.study.recording.optuna_study import read_records
from autoselect.study.setup.problem import forecaster, neighbours_of, plain_units, repairs_that_act
from autoselect.study.what_if.workshop import Workshop
from autoselect.study.yardstick import Yardstick


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of the front, or any scored candidate.

    Attributes:
        record: Its trial.
        standing: What is expected of it on other samples.
    """

    record: TrialRecord
    standing: Standing


class Tried:
    """The trials of one run, learned from once."""

    def __init__(self, folder: RunFolder, workshop: Workshop) -> None:
        """Read the run's trials.

        Raises:
            RunFolderError: If the run was stopped before its float model was scored.
        """
        self._workshop, self._journal = workshop, folder.study
        manifest, settings = workshop.manifest, workshop.settings
        try:
            float_model = references.Reference(**manifest["float_model"])
        except (KeyError, TypeError):
            raise RunFolderError(
                f"{folder.root} holds a run that was stopped before its float model was scored, so nothing is known "
                f"yet. Run {folder.resuming}."
            ) from None
        metric, direction = manifest["metric"]["name"], manifest["metric"]["direction"]
        self.yardstick: Yardstick = references.yardstick_of(
            float_model, metric, direction, settings, in_points=True
        )  # No least difference is asked, and the profile may be gone.
        self.metric: str = metric
        self.objectives: tuple[Objective, ...] = objectives_of(settings.objectives, metric, direction)
        self.records: list[TrialRecord] = read_records(folder.study)
        summary: Any = read_json(folder.summary, missing=f"{folder.root} has no summary. Run {folder.resuming} first.")
        self.picks: Mapping[str, str] = dict(summary.get("picks") or {})
        self._on_chip: Mapping[str, Any] = (summary.get("compiler") or {}).get("members") or {}
        self._units, self._space = kept_units(folder)
        self._kept, self.resamples = kept_standings(folder)

    def scored_as(self, recipe: Recipe, plan: Plan) -> TrialRecord | None:
        """The trial that scored a candidate, or another one of the same bytes; None if none did."""
        trial = self._scored.get(recipe.fingerprint)
        return self._twins.get(self._key(recipe, plan)) if trial is None else trial

    def refused(self, recipe: Recipe, plan: Plan) -> str:
        """Why the run's target refused a candidate of the search of the same bytes; empty if it refused none."""
        return self._refused.get(self._key(recipe, plan), "")

    @cached_property
    def _refused(self) -> dict[object, str]:
        """Reasons by what equal files have in common."""
        place, reasons = self._workshop.place(), dict[object, str]()
        for record in self.records:
            if record.recipe is not None and record.error and record.error_kind in ("target", "compiler"):
                key = self._key(record.recipe, self._workshop.plan(record.recipe, place))
                reasons.setdefault(key, record.error.rstrip("."))
        return reasons

    def compiled(self, trial: TrialRecord) -> dict[str, Any]:
        """Penalty and further figures that a compiler gave; empty if none of them decides the penalty.

        It gave them during the trial, or when the run was over, to members of the front and whole models.
        """
        if trial.scores is not None and trial.scores.compiled:
            return {name: getattr(trial.scores, name) for name in ("penalty", "segments", "crossing_bytes")}
        figures = self._on_chip.get(trial.id)
        if figures is None or self._workshop.place().target.parts:  # The penalty of several chips is no chip's cost.
            return {}
        return {"penalty": figures["cost"], "segments": figures["segments"]}

    @cached_property
    def _scored(self) -> dict[str, TrialRecord]:
        """Trials with scores by their recipe's fingerprint, the first of each."""
        return {r.recipe.fingerprint: r for r in reversed(self.records) if r.recipe is not None and r.scores}

    @cached_property
    def _twins(self) -> dict[object, TrialRecord]:
        """Trials with scores by what equal files have in common, the first of each."""
        place, twins = self._workshop.place(), dict[object, TrialRecord]()
        for record in self._scored.values():
            if record.recipe is not None and not record.forecast_error:
                twins.setdefault(self._key(record.recipe, self._workshop.plan(record.recipe, place)), record)
        return twins

    def _key(self, recipe: Recipe, plan: Plan) -> object:
        """What candidates have in common that are equal once built."""
        repairs = repairs_that_act(recipe.repairs, plan.kinds, self._workshop.prepared.layers, recipe.io_type)
        return plan.kinds, plan.size_bytes, recipe.per_channel, recipe.io_type, repairs

    @cached_property
    def link(self) -> Link | None:
        """How drops follow closeness."""
        return link_of(scores_of(distinct(self.records)))

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """The front, best metric first."""
        front, _ = front_of(self.records, self.objectives, self.yardstick, self.link)
        return tuple(
            Member(record=record, standing=standing)
            for record, standing in zip(front, as_kept(standings_of(front, self.link), self._kept), strict=True)
        )

    @cached_property
    def standings(self) -> Mapping[str, Standing]:
        """What is expected of each scored candidate on other samples, by id."""
        standings = {standing.id: standing for standing in standings_of(distinct(self.records), self.link)}
        return standings | {member.standing.id: member.standing for member in self.members}

    @cached_property
    def are_bounded(self) -> bool:
        """Whether scores of this run come with bounds of their own samples, as an evaluator's single numbers do not."""
        return any(member.standing.is_bounded for member in self.members)

    @cached_property
    def problem(self) -> Problem:
        """The search as its sampler saw it."""
        settings, prepared = self._workshop.settings, self._workshop.prepared
        place = self._workshop.place()
        units = plain_units(prepared.graph, prepared.layers) if self._units is None else self._units
        return Problem(
            units,
            neighbours_of(prepared.graph, prepared.layers, units),
            forecaster(
                {key.repairs: blueprint for key, blueprint in place.blueprints.items() if self._is_searched(key)},
                prepared.layers,
                settings,
                place.target,
                self._space,
            ),
            space=self._space,
            states=settings.states,
            repair_sets=settings.repairs.alternatives,
            added_noise=settings.repairs.noise_of_alternatives,
            constraints=self.yardstick.constraints,
            rule=self.yardstick.rule,
            costs=settings.cost_columns,
            order=[node.name for node in prepared.layers.nodes],
        )

    def _is_searched(self, key: Recipe) -> bool:
        template = self._workshop.settings.template
        return (key.per_channel, key.io_type) == (template.per_channel, template.io_type)

    @cached_property
    def _seen(self) -> list[Seen]:
        """What the trials say, as they were scored: an interval is of such a score."""
        reader = Reader(problem=self.problem, template=self._workshop.settings.template)
        observations = [seen for _, seen in reader.told(self.records)]
        raw = [seen for record in self.records if (seen := reader.seen(record)) is not None and not seen.failed]
        return raw if any(math.isfinite(seen.log_divergence) for seen in raw) else observations

    @cached_property
    def expectation(self) -> Expectation | None:
        """What is expected of candidates that were not scored; None if too few were."""
        # An SQNR of 0 dB is that of outputs which say nothing.
        most = self.yardstick.float_score if self.metric in {*SHARES, "sqnr_db"} else math.inf
        return Expectation.of(self.problem, self._seen, most)

    @cached_property
    def _costs(self) -> CostModel:
        return CostModel(self.problem, self._seen)

    def why_unknown(self, recipe: Recipe, kinds: Sequence[str]) -> str:
        """Why nobody knows what a candidate loses; empty if the trials tell.

        Args:
            recipe: Resolved.
            kinds: What becomes of its nodes.
        """
        settings = self._workshop.settings
        template = settings.template
        if self.expectation is None:
            return "too few candidates were scored to learn from"
        if (recipe.per_channel, recipe.io_type) != (template.per_channel, template.io_type):
            return "the search had other scales of weights, or other types of inputs and outputs"
        if recipe.repairs not in self.problem.repair_sets:
            return "the search did not try these repairs together"
        others = {"int16": SIXTEEN, "hybrid": "hybrid", "float": EXACT}
        states = {*settings.states, *({EXACT} if "hybrid" in settings.states else ())}
        if strange := [state for kind, state in others.items() if kind in kinds and state not in states]:
            return f"the search did not try {' and '.join(strange)} nodes"
        if recipe.io_type != "float32" and {*kinds} <= {"float", "folded"}:
            return f"no trial shows what inputs and outputs of the type {recipe.io_type} alone lose"
        return ""

    def mask(self, recipe: Recipe) -> Mask:
        """What a recipe leaves out, as far as units can express it."""
        nodes = self._workshop.prepared.layers.nodes
        further = {**further_of(recipe), EXACT: left_out(recipe, nodes).in_float}
        return self.problem.mask_of(left_out_of(recipe), further, recipe.repairs)

    def is_expressed(self, recipe: Recipe, plan: Plan) -> bool:
        """Whether a candidate is one of whole units, as the search moves them; else the nearest one is looked at."""
        return self.problem.forecast(self.mask(recipe)).kinds == plan.kinds

    def likely(self, recipe: Recipe) -> Likely | None:
        """What an unscored candidate is expected to lose."""
        if self.expectation is None:
            return None
        return self.expectation.likely(self.mask(recipe), self._as_near(recipe))

    def chance_within(self, recipe: Recipe, limit: float) -> float | None:
        """How likely an unscored candidate loses at most a limit."""
        if self.expectation is None:
            return None
        return self.expectation.chance_within(self.mask(recipe), limit, self._as_near(recipe))

    def _as_near(self, recipe: Recipe) -> list[Mask]:
        """For each unit that the recipe parts the candidate with it in the other state of its nodes: one for each."""
        mask, problem, neighbours = self.mask(recipe), self.problem, list[Mask]()
        nodes, further = left_out_of(recipe), further_of(recipe)
        for place in bits(problem.split_by(nodes, *further.values())):
            names, unit = problem.units[place].nodes, 1 << place
            states = [problem.states.index(s) for s, own in further.items() if names & own and s in problem.states]
            plain = names & nodes - frozenset().union(*further.values())
            states += [0] if plain else []
            variants = [problem.put(mask, unit, state) for state in states] + [mask.without(unit)] * (
                not names <= nodes
            )
            neighbours += [variant for variant in dict.fromkeys(variants) if variant != mask]
        return neighbours

    def after_scoring(self, scores: Scores) -> Likely:
        """What a scored candidate is expected to lose on other samples like these, with an interval of nine in ten."""
        losses = expected_drops([scores], self.link)
        drop, beyond = float(losses.drops[0]), float(losses.beyond[0])
        beyond = beyond if math.isfinite(beyond) else math.nan
        db = scores.sqnr_db
        return Likely(drop=drop, low=drop - beyond, high=drop + beyond, log_divergence=-db * math.log(10.0) / 10.0)

    def measured_costs(self, recipe: Recipe) -> dict[str, float]:
        """Costs that only a measurement tells, as the trials let expect them, by column."""
        columns = [c for c in self._workshop.settings.cost_columns if not BY_COLUMN[c].from_graph]
        if not columns:
            return {}
        expected = self._costs.expected([self.mask(recipe)])
        costs = dict(zip(self.problem.costs, expected, strict=True))
        return {column: float(costs[column][0]) for column in columns}

    def recipe_of(self, name: str | int) -> Recipe:
        """The recipe of a pick, a candidate's id or a trial's number.

        Raises:
            UsageError: If there is none, with those that there are.
            RunFolderError: If the journal lacks a pick's trial.
        """
        text = self.picks.get(str(name), str(name))
        recipe = next((r.recipe for r in self.records if r.recipe is not None and r.id == text), None)
        if recipe is None and text.isdecimal():
            recipe = next((r.recipe for r in self.records if r.number == int(text) and r.recipe is not None), None)
        if recipe is not None:
            return recipe
        if str(name) in self.picks:
            raise RunFolderError(f"{self._journal} is damaged: it lacks the trial of the pick {name!r}, {text}.")
        raise UsageError(
            f"The run has no candidate {name!r}. There are its picks ({', '.join(self.picks) or 'none'}), the whole "
            f"models ({', '.join(WHOLES)}), ids as in trials.csv, and trials from 0 to "
            f"{max((record.number for record in self.records), default=0)}."
        )

    @property
    def rule(self) -> Rule:
        """The rule by which the run recommends."""
        return self.yardstick.rule


WHOLES = ("int8", "int16", "hybrid", "float")
"""Names of models whose nodes are all of a kind, without repairs."""


def whole_recipe(name: str, nodes: Sequence[str], wide: Sequence[str], template: Recipe) -> Recipe:
    """The recipe of a whole model.

    Args:
        name: One of ``WHOLES``.
        nodes: All nodes.
        wide: Those with a 16-bit form.
        template: What the search's recipes have in common.
    """
    plain = replace(template, repairs=())
    if name == "int16":
        return replace(plain, int16_nodes=frozenset(wide))
    if name == "int8":
        return plain
    left_out = replace(plain, denylisted_nodes=frozenset(nodes))
    if name == "hybrid":
        return replace(left_out, fallback="drq")
    return left_out if plain.fallback == "float" else replace(left_out, float_nodes=left_out.denylisted_nodes)


def front_gap(costs: np.ndarray, members: np.ndarray, drops: np.ndarray) -> tuple[np.ndarray, float]:
    """The members that cost no more than a candidate, and the least drop of these.

    Args:
        costs: Of the candidate, shape (n_costs,).
        members: Of each member, shape (n_members, n_costs).
        drops: Of each member, shape (n_members,).

    Returns:
        Mask of shape (n_members,), and the drop below which no member dominates the candidate; infinite if none costs
        as little.
    """
    cheaper = np.all(members <= costs, axis=1) if len(members) else np.zeros(0, dtype=bool)
    return cheaper, float(drops[cheaper].min()) if cheaper.any() else math.inf
