"""Answers what-if questions about one run; everything that they have in common is made once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from autoselect.data.kinds import Samples
from autoselect.domain.graph import Graph, peak_activation_bytes
from autoselect.domain.limits import allowed_drops, limits, worst_ratios
from autoselect.domain.quantities import BY_COLUMN, stored_bytes
from autoselect.domain.recipe import Recipe
from autoselect.domain.rule import Rule, Standing
from autoselect.errors import RecipeError, UsageError, sentence
from autoselect.quantize.building.blueprint import Plan
from autoselect.quantize.building.left_out import left_out
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import TrialRecord
from autoselect.scoring.fragmentation import Fragmentation
from autoselect.scoring.target_pieces import Pieces, pieces_of
from autoselect.study.finishing.limits_file import as_kept
from autoselect.study.proposing.expectation import Likely
from autoselect.study.setup.problem import Judged, judged
from autoselect.study.what_if.answer import WhatIf, answered_by, spec_of
from autoselect.study.what_if.changes import Changes
from autoselect.study.what_if.tried import WHOLES, Member, Tried, front_gap, whole_recipe
from autoselect.study.what_if.workshop import Place, Scored, Workshop

NO_CHANGES = Changes()
_FORECASTS_KEPT = 256
Named = str | int | Recipe | WhatIf
"""A recipe, an answer that has one, or a name: a pick, a whole model, an id, the number of a trial."""


_EXPECTED = ("drop", "drop_low", "drop_high", "far", "chance_within", "on_front", "gap", "chance_on_front", "preferred")
"""What an answer does not say where nobody knows what a candidate loses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """A planned candidate on a target.

    Attributes:
        plan: Its parts.
        known: What the target makes of it.
    """

    plan: Plan
    known: Judged

    @property
    def cut(self) -> Fragmentation:
        """Segments, crossings and penalty."""
        return self.known.fragmentation

    def cost(self, column: str) -> float:
        """A cost that the graph gives."""
        if column == "size_bytes":
            return float(self.plan.size_bytes)
        return _arena(self.plan.graph) if column == "arena_bytes" else float(getattr(self.cut, column))


def _arena(graph: Graph) -> float:
    return float(peak_activation_bytes(graph))


class Questions:
    """Answers them; see :meth:`ask`.

    Attributes:
        workshop: Where candidates are planned and built.
        tried: What the trials tell.
    """

    def __init__(self, folder: RunFolder, workshop: Workshop | None = None) -> None:
        """Open a run; nothing is planned yet.

        Args:
            folder: Of the run.
            workshop: What was opened of it before, if only its trials are others by now.

        Raises:
            RunFolderError: If the folder holds no run.
            UsageError: If candidates of the run can no longer be planned: it keeps no calibrated model, or another
                version made it.
        """
        self.workshop = workshop or Workshop(folder)
        self.tried = Tried(folder, self.workshop)
        self._forecasts: dict[tuple[Recipe, str], Forecast] = {}
        self._fronts: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def ask(
        self, what: Named = "recommended", changes: Changes = NO_CHANGES, target: str | Path | None = None
    ) -> WhatIf:
        """What a candidate costs, and probably loses.

        Args:
            what: A recipe or a name.
            changes: To it.
            target: That of the run by default.

        Raises:
            UsageError: If a name, a node or a target is not known, or a node has no form in the state that is asked
                for.
            RecipeError: If the recipe names what the model does not have.
        """
        prepared = self.workshop.prepared
        place = self.workshop.place(target)
        try:
            base = self._recipe(what)
            resolved = left_out(base, prepared.layers.nodes, prepared.graph).recipe
        except RecipeError as exc:
            raise exc if isinstance(what, Recipe) else UsageError(str(exc)) from exc
        recipe = changes.applied(resolved, prepared.layers, prepared.graph)
        forecast = self.forecast(recipe, place)
        self._refuse_formless(recipe, changes, forecast.plan, place)
        name = what if isinstance(what, str | int) else what.name if isinstance(what, WhatIf) else "recipe"
        full_name = "; ".join(filter(None, (str(name), changes.told)))
        return answered_by(self._answer(full_name, recipe, place, forecast), self, place.spec)

    def drawn(self, answer: WhatIf) -> tuple[Graph, Pieces]:
        """The graph of an answer's candidate as it would be built, and what its target makes of it."""
        place = self.place_of(answer)
        graph = self.forecast(answer.recipe, place).plan.graph
        return graph, pieces_of(graph, place.target)

    def _recipe(self, what: Named) -> Recipe:
        if isinstance(what, Recipe):
            return what
        if isinstance(what, WhatIf):
            return what.recipe
        if what in WHOLES:
            nodes = [node.name for node in self.workshop.prepared.layers.nodes]
            template = self.workshop.settings.template
            wide: list[str] = []
            if what == "int16":
                blueprint = self.workshop.blueprint(
                    replace(template, int16_nodes=frozenset(nodes)), self.workshop.place()
                )
                wide = [nodes[i] for i in blueprint.int16_nodes]
            return whole_recipe(str(what), nodes, wide, template)
        return self.tried.recipe_of(what)

    def forecast(self, recipe: Recipe, place: Place) -> Forecast:
        """What is exactly known of a resolved recipe's candidate on a target; the last ones are remembered."""
        key = recipe, place.spec
        if key not in self._forecasts:
            if len(self._forecasts) >= _FORECASTS_KEPT:
                self._forecasts.clear()
            plan = self.workshop.plan(recipe, place)
            judgement = judged(plan.graph, place.target, self.workshop.settings.runtime)
            self._forecasts[key] = Forecast(plan=plan, known=judgement)
        return self._forecasts[key]

    def _refuse_formless(self, recipe: Recipe, changes: Changes, plan: Plan, place: Place) -> None:
        """Refuse a state that a node is asked to have and has not.

        Raises:
            UsageError: With the node and the reason.
        """
        if not changes.int16:
            return
        nodes, kinds = self.workshop.prepared.layers.nodes, plan.kinds
        blueprint = self.workshop.blueprint(recipe, place)
        asked = changes.applied(Recipe(), self.workshop.prepared.layers, self.workshop.prepared.graph).int16_nodes
        lacking = [i for i, node in enumerate(nodes) if node.name in asked and kinds[i] not in ("int16", "folded")]
        if lacking:
            first = lacking[0]
            why = blueprint.no_int16.get(first, "it has no such kernel")
            more = f" ({len(lacking) - 1} more of the nodes likewise)" if len(lacking) > 1 else ""
            raise UsageError(
                f"int16: the {nodes[first].op_type} {nodes[first].name!r} cannot have 16-bit activations: "
                f"{why.rstrip('.')}{more}. Leave it out, or deny it."
            )

    def _answer(self, name: str, recipe: Recipe, place: Place, forecast: Forecast) -> WhatIf:
        nodes, plan, cut, tried = self.workshop.prepared.layers.nodes, forecast.plan, forecast.cut, self.tried
        trial = tried.scored_as(recipe, plan)
        is_own = place.spec == self.workshop.settings.target
        likely, unknown = self._likely(recipe, plan, trial)
        compiled = tried.compiled(trial) if trial is not None and is_own else {}
        figures = {
            "penalty": cut.penalty,
            "segments": cut.segments,
            "crossing_bytes": cut.crossing_bytes,
            **compiled,
        }
        return WhatIf(
            name=name,
            recipe=recipe,
            size_bytes=plan.size_bytes,
            forecast_penalty=cut.penalty,
            kinds=dict(Counter(plan.kinds)),
            nodes={node.name: kind for node, kind in zip(nodes, plan.kinds, strict=True)},
            fallbacks=self._fallbacks(recipe, plan, place),
            float_ops=cut.float_ops,
            left_ops=cut.left_ops,
            crossing_tensors=cut.crossing_tensors,
            float_macs_share=cut.float_macs_share,
            arena_bytes=int(_arena(plan.graph)),
            target=place.target.name,
            refusal=self.refusal(recipe, place, forecast),
            metric=tried.metric,
            unknown=unknown,
            approximate=likely is not None and trial is None and not tried.is_expressed(recipe, plan),
            allowed_drop=tried.rule.allowed_drop,
            trial=None if trial is None else trial.number,
            scored_drop=trial.scores.drop if trial is not None and trial.scores else None,
            compiled=bool(compiled),
            **figures,
            **self._chances(recipe, place, forecast, likely, trial),
        )

    def refusal(self, recipe: Recipe, place: Place, forecast: Forecast) -> str:
        """Why the target refuses a recipe: by its rules, or because the search saw it refused; empty if it takes it."""
        is_own = place.spec == self.workshop.settings.target
        return forecast.known.refusal or (self.tried.refused(recipe, forecast.plan) if is_own else "")

    def _likely(self, recipe: Recipe, plan: Plan, trial: TrialRecord | None) -> tuple[Likely | None, str]:
        """What it is expected to lose; None with the reason if nobody knows."""
        if measured := self.measured(recipe, plan, trial):
            return measured, ""
        why = self.tried.why_unknown(recipe, plan.kinds)
        return (None, why) if why else (self.tried.likely(recipe), "")

    def measured(self, recipe: Recipe, plan: Plan, trial: TrialRecord | None) -> Likely | None:
        """What a candidate is expected to lose by its own score, or because it is the float model; None otherwise.

        Args:
            recipe: Of the candidate.
            plan: What becomes of its nodes.
            trial: That scored it, if any.
        """
        if trial is not None and trial.scores is not None:
            return self.tried.after_scoring(trial.scores)
        if recipe.io_type == "float32" and {*plan.kinds} <= {"float", "folded"}:
            return Likely(drop=0.0, low=0.0, high=0.0, log_divergence=-math.inf)
        return None

    def _fallbacks(self, recipe: Recipe, plan: Plan, place: Place) -> dict[str, str]:
        nodes = self.workshop.prepared.layers.nodes
        left = left_out(recipe, nodes)
        reasons = self.workshop.blueprint(recipe, place).no_int16 if recipe.int16_nodes else {}
        fallbacks = {}
        for i, (node, kind) in enumerate(zip(nodes, plan.kinds, strict=True)):
            if node.name in recipe.int16_nodes and kind not in ("int16", "folded"):
                fallbacks[node.name] = reasons.get(i, "no 16-bit form")
            if kind == "float" and node.name in left.names - left.in_float:
                fallbacks[node.name] = "no hybrid form"
        return fallbacks

    def _chances(
        self, recipe: Recipe, place: Place, forecast: Forecast, likely: Likely | None, trial: TrialRecord | None
    ) -> dict[str, Any]:
        """What it is expected to lose, and how it compares with the front."""
        if likely is None:
            return {**dict.fromkeys(_EXPECTED), "dominated_by": ()}
        members, (costs, drops) = self.tried.members, self._front(place)
        is_member = trial is not None and any(trial.id == member.record.id for member in members)
        if is_member and place.spec == self.workshop.settings.target:
            costs, drops = costs[:0], drops[:0]  # The front is no matter of expected drops alone.
        elif trial is not None:  # On another target it is none of its own rivals.
            own_place = np.array([trial.id == member.record.id for member in members], dtype=bool)
            costs = np.where(own_place[:, None], math.inf, costs)
        own = self._costs(recipe, forecast)
        cheaper, least = front_gap(own, costs, drops)
        is_less = (drops < likely.drop) | ((drops == likely.drop) & (costs < own).any(axis=-1))
        ahead: list[int] = np.flatnonzero(cheaper & is_less).tolist()
        ahead.sort(key=lambda i: float(drops[i]))
        ours = self._expected_standing(recipe, forecast, likely, trial)
        is_far = self._rule(place).is_far(ours)
        is_refused = bool(self.refusal(recipe, place, forecast))
        # If nothing keeps the limits, the front has what breaks them least.
        is_out = is_refused or (self._breaks_limits(place, forecast, trial) and not is_member)
        # A score on the search samples says already whether a candidate keeps the limit of the drop.
        limit = math.inf if trial is not None else self._max_drop
        is_sure = likely.low == likely.high or math.isinf(min(least, limit))
        chance: float | None = float(not ahead and likely.drop <= limit)
        if not is_sure:
            chance = self._chance(recipe, likely, min(least, limit), trial, ours)
        return {
            "drop": likely.drop,
            "drop_low": likely.low,
            "drop_high": likely.high,
            "far": is_far,
            "chance_within": 0.0 if is_far else self._chance(recipe, likely, self.tried.rule.allowed_drop, trial, ours),
            "on_front": not ahead and not is_out and likely.drop <= limit,
            "dominated_by": tuple(members[i].record.id for i in ahead),
            "gap": max(likely.drop - least, 0.0) if ahead else 0.0,
            "chance_on_front": 0.0 if is_out else chance,
            "preferred": None if is_refused else self._is_preferred(ours, place, forecast),
        }

    @property
    def _max_drop(self) -> float:
        """What a candidate may lose at most to be on the front."""
        most = self.tried.yardstick.constraints.max_drop
        return math.inf if most is None else most

    def _breaks_limits(self, place: Place, forecast: Forecast, trial: TrialRecord | None) -> bool:
        """Whether a candidate breaks a limit of the user's for sure: as its trial says, or by its size or penalty."""
        limits, scores = self.tried.yardstick.constraints, None if trial is None else trial.scores
        costs = {name: forecast.cost(name) for name in ("size_bytes", "penalty")}
        if place.spec != self.workshop.settings.target:
            limits = replace(limits, max_penalty=None)  # It is in the unit of the run's target.
        elif scores is not None:
            costs = {"size_bytes": scores.size_bytes, "penalty": scores.penalty}
        drop = -math.inf if scores is None else scores.drop  # What an unscored one loses nobody knows for sure.
        return max(limits.violations(drop=drop, **costs).values()) > 0.0

    def _chance(
        self, recipe: Recipe, likely: Likely, limit: float, trial: TrialRecord | None, standing: Standing
    ) -> float | None:
        """How likely it loses no more than a limit."""
        if likely.low == likely.high:
            return float(likely.drop <= limit)
        if trial is None:
            return self.tried.chance_within(recipe, limit)
        if math.isnan(likely.high):
            return None
        own = replace(standing, drop=likely.drop, bound=likely.high, is_bounded=True)  # What is far has a score, too.
        return 1.0 - replace(self.tried.rule, allowed_drop=limit).chance_to_break(own)

    def _costs(self, recipe: Recipe, forecast: Forecast) -> np.ndarray:
        """Costs of a candidate in the objectives, then whether it leaves ops off the accelerator, shape (1 + n,)."""
        measured = self.tried.measured_costs(recipe)
        columns = self.workshop.settings.cost_columns
        return np.array(
            [*(measured.get(c, 0.0) if c in measured else forecast.cost(c) for c in columns), self._leaves(forecast)]
        )

    @staticmethod
    def _leaves(forecast: Forecast) -> float:
        return float(forecast.cut.left_ops > 0)

    def _front(self, place: Place) -> tuple[np.ndarray, np.ndarray]:
        """Costs of the members on a target, as :meth:`_costs`, and what is expected of their drops."""
        if place.spec not in self._fronts:
            rows = [self._member_costs(member, place) for member in self.tried.members]
            drops = np.array([member.standing.drop for member in self.tried.members])
            width = 1 + len(self.workshop.settings.cost_columns)
            self._fronts[place.spec] = np.array(rows).reshape(-1, width), drops
        return self._fronts[place.spec]

    def _member_costs(self, member: Member, place: Place) -> np.ndarray:
        """Costs of a member: forecast, as those of what is compared with it; measured ones as they were measured."""
        recipe, scores = member.record.recipe, member.record.scores
        if recipe is None or scores is None:
            raise ValueError("a failed trial is no member")
        forecast = self.forecast(recipe, place)
        columns = self.workshop.settings.cost_columns
        if self.refusal(recipe, place, forecast):  # On another target than the run's.
            return np.full(1 + len(columns), math.inf)
        values = (forecast.cost(c) if BY_COLUMN[c].from_graph else scores.costs.get(c, math.inf) for c in columns)
        return np.array([*values, self._leaves(forecast)])

    def _rule(self, place: Place) -> Rule:
        return replace(self.tried.rule, float_penalty=place.float_penalty)

    def _expected_standing(
        self, recipe: Recipe, forecast: Forecast, likely: Likely, trial: TrialRecord | None
    ) -> Standing:
        """How a candidate stands by the figures that the rule goes by: its own if it was scored, else expected ones."""
        scored = None if trial is None else self.tried.standings.get(trial.id)
        if scored is not None:
            return _standing_at(scored, forecast)
        fidelity = -10.0 * likely.log_divergence / math.log(10.0)
        return Standing(
            id="",
            drop=likely.drop,
            bound=likely.high if likely.low == likely.high else max(likely.high, likely.drop + self._margin(fidelity)),
            fidelity=fidelity,
            size_bytes=stored_bytes(forecast.plan.size_bytes, self.tried.measured_costs(recipe)),  # As that of members.
            penalty=forecast.cut.penalty,
            left_ops=forecast.cut.left_ops,
            is_bounded=self.tried.are_bounded,
        )

    def _margin(self, fidelity: float) -> float:
        """The distance from a score to its bound on other samples, of the scored candidate of nearest fidelity."""
        standings = [s for s in self.tried.standings.values() if s.is_bounded and math.isfinite(s.bound)]
        near = min(standings, key=lambda s: abs(s.fidelity - fidelity), default=None)
        return 0.0 if near is None else near.bound - near.drop

    def _is_preferred(self, ours: Standing, place: Place, forecast: Forecast) -> bool | None:
        chosen = next((m for m in self.tried.members if m.record.id == self.tried.picks.get("recommended")), None)
        if chosen is None or chosen.record.recipe is None or math.isnan(ours.bound):
            return None
        rule, theirs = self._rule(place), _standing_at(chosen.standing, self.forecast(chosen.record.recipe, place))
        return rule.cost(ours) < rule.cost(theirs)

    def limits(
        self, targets: Sequence[str] | None = None, allowed: Sequence[float] | None = None
    ) -> list[dict[str, Any]]:
        """What would be recommended at each allowed drop, on each target; and one member for all of several.

        Args:
            targets: That of the run by default.
            allowed: By default those of :func:`autoselect.domain.limits.allowed_drops`.

        Returns:
            Rows with the fields of :class:`autoselect.domain.limits.Limit` and ``target``. Of several targets there are
            further rows, whose target has all names: of the member whose worst ratio to each target's least expected
            cost is least, with this ``worst_ratio`` and without a penalty.

        Raises:
            UsageError: If a drop is below 0 or not finite, a target is not known, two have one name, or the run has no
                member, or none that the targets take.
        """
        tried = self.tried
        most = tried.yardstick.constraints.max_drop
        drops = allowed_drops(tried.metric, tried.yardstick.float_score, tried.rule.allowed_drop, most)
        drops = tuple(drops if allowed is None else allowed)
        if wrong := [drop for drop in drops if not 0.0 <= drop < math.inf]:
            raise UsageError(f"allowed: expected drops of 0 or more, got {wrong[0]}.")
        if most is not None and max(drops, default=0.0) > most:
            raise UsageError(
                f"allowed: expected drops of at most {most:g}, the --max-drop of the run, got {max(drops):g}. No model "
                "of its front loses more: search with a larger --max-drop."
            )
        if not tried.members:
            raise UsageError("The run has no member that could be recommended.")
        places = {place.spec: place for place in map(self.workshop.place, targets or (None,))}
        rows, members_by_target = [], dict[str, tuple[Rule, list[Standing]]]()
        for place in places.values():
            if place.target.name in members_by_target:
                raise UsageError(
                    f"Two of the targets are called {place.target.name!r}. Give one of the profiles another name, or "
                    "ask for one after the other."
                )
            members = self._standings(place)
            members_by_target[place.target.name] = self._rule(place), members
            for limit in limits(
                members, [as_kept(members, resample) for resample in tried.resamples], self._rule(place), drops
            ):
                rows.append({"target": place.target.name, **asdict(limit), "worst_ratio": None})
        return rows + ([self._for_all(members_by_target, drop) for drop in drops] if len(members_by_target) > 1 else [])

    def _standings(self, place: Place) -> list[Standing]:
        """The members that a target takes, with what they cost there.

        Raises:
            UsageError: If it takes none.
        """
        if place.spec == self.workshop.settings.target:
            return [member.standing for member in self.tried.members]
        standings, refusal = [], ""
        for member in self.tried.members:
            if member.record.recipe is None:
                continue
            forecast = self.forecast(member.record.recipe, place)
            if not forecast.known.refusal:
                standings.append(_standing_at(member.standing, forecast))
            refusal = refusal or forecast.known.refusal or ""
        if not standings:
            raise UsageError(f"Target {place.target.name!r} takes no member of the front. {sentence(refusal)}")
        return standings

    @staticmethod
    def _for_all(members_by_target: Mapping[str, tuple[Rule, list[Standing]]], drop: float) -> dict[str, Any]:
        """One member for all targets, at one allowed drop."""
        ids = {member.id: member for _, members in members_by_target.values() for member in members}
        costs = dict[str, dict[str, float]]()
        for target, (rule, members) in members_by_target.items():
            asked = replace(rule, allowed_drop=drop)
            costs[target] = dict.fromkeys(ids, math.inf) | {member.id: asked.cost(member) for member in members}
        ratios = worst_ratios(costs)
        chosen = min(ratios, key=lambda id_: (ratios[id_], id_))
        member, (rule, _) = ids[chosen], next(iter(members_by_target.values()))
        return {
            "target": ",".join(members_by_target),
            "allowed_drop": drop,
            "id": chosen,
            "penalty": None,
            "penalty_low": None,
            "penalty_high": None,
            "size_bytes": int(member.size_bytes),
            "expected_drop": member.drop,
            "expected_drop_bound": member.bound,
            "chance_to_break": replace(rule, allowed_drop=drop).chance_to_break(member),
            "resampled": None,
            "worst_ratio": ratios[chosen],
        }

    def content_of(self, answer: WhatIf) -> bytes:
        """The bytes of an answer's candidate."""
        return self.workshop.build(answer.recipe, self.place_of(answer))[0]

    def score_of(self, answer: WhatIf, samples: Samples | None, live: Mapping[str, Any]) -> Scored:
        """The score of an answer's candidate."""
        return self.workshop.score(answer.recipe, self.place_of(answer), samples, live)

    def place_of(self, answer: WhatIf) -> Place:
        """The target that an answer is for."""
        return self.workshop.place(spec_of(answer))


def _standing_at(standing: Standing, forecast: Forecast) -> Standing:
    """The standing with what the candidate costs on the target that it was planned for."""
    return replace(standing, penalty=forecast.cut.penalty, left_ops=forecast.cut.left_ops)
