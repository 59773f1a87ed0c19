from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial
from reviewing import Reviewed
from synthetic import chain_of

from autoselect.domain.recipe import Fallback, Recipe
from autoselect.domain.search_space import ALTERNATIVE, BoundSpace, Cut, Toggle
from autoselect.errors import UsageError
from autoselect.runs.records import Partial, Scores
from autoselect.study.proposing.mask import Mask, Units
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem
from autoselect.study.proposing.proposers import Listed, all_masks
from autoselect.study.recording.samplers import (
    PROPOSERS,
    SAMPLERS,
    ProposerSampler,
    check_sampler,
    make_sampler,
    sampler_in_use,
)

FIVE = chain_of([0.3, 0.1, 0.02, 0.2, 0.05])
NAMES = [f"n{i}" for i in range(5)]
TOGGLES = BoundSpace(dimensions=tuple(Toggle(name=n, nodes=frozenset({n})) for n in NAMES))
EITHER = BoundSpace(
    dimensions=(Cut(name="cut", ranking=("n0", "n3", "n1", "n4", "n2"), at_most=5), *TOGGLES.dimensions),
    alternatives=(("prefix", ("cut",)), ("nodes", tuple(NAMES))),
)
SPACES = {"toggles": TOGGLES, "alternatives": EITHER}
THREE_LOSSES = ["minimize"] * 3


@pytest.fixture(autouse=True)
def quiet_optuna() -> Iterator[None]:
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(level)


def suggested(trial: optuna.Trial, space: BoundSpace) -> frozenset[str]:
    """What somebody else's objective function asks for."""
    dimensions = space.dimensions
    if space.alternatives:
        dimensions = space.of_alternative(
            trial.suggest_categorical(ALTERNATIVE, [name for name, _ in space.alternatives])
        )
    values = {
        d.name: trial.suggest_categorical(d.name, [False, True])
        if isinstance(d, Toggle)
        else trial.suggest_int(d.name, 0, d.at_most)
        for d in dimensions
    }
    return space.decode(values)


def losses_of(nodes: frozenset[str]) -> tuple[float, float, float]:
    found = FIVE.forecast(FIVE.mask_of(nodes))
    return 1.0 - 0.2 * len(nodes), float(found.size_bytes), found.penalty


def driven(name: str, space: BoundSpace, trials: int, seed: int = 0) -> list[frozenset[str]]:
    """A plain study of three losses that somebody else drives; the nodes of its trials, all finished."""
    sampler = make_sampler(name, seed=seed, problem=FIVE, space=space, template=Recipe(), budget=trials)
    study = optuna.create_study(directions=THREE_LOSSES, sampler=sampler)
    found = []

    def objective(trial: optuna.Trial) -> tuple[float, float, float]:
        found.append(suggested(trial, space))
        return losses_of(found[-1])

    study.optimize(objective, n_trials=trials)
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * trials
    return found


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("name", ["surrogate", "random"])
def test_a_plain_study_is_filled_without_repeats(name: str, space: BoundSpace) -> None:
    found = driven(name, space, 20)
    assert len(set(found)) == 20


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_drives_a_plain_study_past_its_end(name: str) -> None:
    """Five units make 32 sets; where a proposer has no more, chance decides and the study goes on."""
    found = driven(name, TOGGLES, 36)
    if name in ("surrogate", "random"):
        assert len(set(found[:32])) == 32


def test_the_same_seed_gives_the_same_study() -> None:
    assert driven("surrogate", TOGGLES, 12, seed=3) == driven("surrogate", TOGGLES, 12, seed=3)
    assert driven("random", TOGGLES, 12, seed=3) != driven("random", TOGGLES, 12, seed=4)


def test_trials_under_way_are_not_proposed_again() -> None:
    sampler = make_sampler("surrogate", seed=0, problem=FIVE, space=TOGGLES, template=Recipe(), budget=None)
    study = optuna.create_study(directions=THREE_LOSSES, sampler=sampler)
    found = []
    for _ in range(8):
        under_way = [study.ask() for _ in range(3)]
        nodes = [suggested(trial, TOGGLES) for trial in under_way]
        for trial, chosen in zip(under_way, nodes, strict=True):
            study.tell(trial, losses_of(chosen))
        found += nodes
    assert len(set(found)) == 24


class Recorder:
    """Proposes one mask always, and keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.pending: list[Mask] = []

    def propose(self, seen: Sequence[Seen], pending: Sequence[Mask]) -> Mask | None:
        self.seen, self.pending = list(seen), list(pending)
        return Mask(0b10101)


def told(trials: Sequence[FrozenTrial], template: Recipe | None = None, problem: Problem = FIVE) -> Recorder:
    study = optuna.create_study(directions=THREE_LOSSES)
    study.add_trials(trials)
    recorder = Recorder()
    assert ProposerSampler(recorder, problem, TOGGLES, template).propose(study, Recipe())
    return recorder


def trial_of(out: str, state: TrialState = TrialState.COMPLETE, **made: Any) -> FrozenTrial:
    if state == TrialState.COMPLETE:
        made.setdefault("values", [9.0, 9.0, 9.0])
    if "user_attrs" in made:  # As the search tells its trials.
        recipe = Recipe(denylisted_nodes=frozenset(n for n in NAMES if n[1] in out))
        made["user_attrs"] = {"origin": "surrogate", "recipe": recipe.to_json()} | made["user_attrs"]
    return create_trial(
        state=state,
        params={n: n[1] in out for n in NAMES},
        distributions={n: CategoricalDistribution([False, True]) for n in NAMES},
        **made,
    )


def scores(**changed: Any) -> dict[str, Any]:
    values: dict[str, Any] = dict.fromkeys(Scores.__dataclass_fields__, 0)
    return asdict(
        Scores(
            **values
            | {
                "sha256": "a",
                "off_chip": None,
                "fallbacks": {},
                "compiled": {},
                "quantities": {},
                "drop": 0.25,
                "sqnr_db": 20.0,
                "divergence": math.nan,
                "drop_noise": 0.125,
                "drop_bound": 0.5,
                "size_bytes": 300,
                "penalty": 1.5,
                "samples": 120,
            }
            | changed
        )
    )


def partial(**changed: Any) -> dict[str, Any]:
    values: dict[str, Any] = dict.fromkeys(Partial.__dataclass_fields__, 0.0)
    return asdict(
        Partial(
            **values
            | {"sha256": "a", "samples": 30, "total": 120, "sqnr_db": 10.0, "size_bytes": 200, "penalty": 2.5}
            | {"quantities": {}, "drop": 0.375, "divergence": math.nan}
            | changed
        )
    )


def seen(left_out: Units, loss: float | None, divergence: float, size: float, penalty: float, **more: Any) -> Seen:
    shared: dict[str, Any] = {"share": 1.0} | more
    return Seen(mask=Mask(left_out), loss=loss, log_divergence=divergence, size_bytes=size, penalty=penalty, **shared)


FROM_SCORES = {
    "scores": ({"scores": scores()}, seen(0b00011, 0.25, math.log(0.01), 300, 1.5)),
    "limits that are kept": (
        {"scores": scores(), "violations": {"max_drop": -1.0, "max_size": 0.0}},
        seen(0b00011, 0.25, math.log(0.01), 300, 1.5),
    ),
    "a broken limit": (
        {"scores": scores(), "violations": {"max_drop": -1.0, "max_size": 0.1}},
        seen(0b00011, 0.25, math.log(0.01), 300, 1.5, feasible=False),
    ),
    "the recipe counts, not the parameters": (
        {"scores": scores(), "recipe": Recipe(denylisted_nodes=frozenset({"n4"})).to_json()},
        seen(0b10000, 0.25, math.log(0.01), 300, 1.5),
    ),
    "no error at all": ({"scores": scores(sqnr_db=math.inf)}, seen(0b00011, 0.25, -25.0, 300, 1.5)),
    "nothing but error": ({"scores": scores(sqnr_db=-99.0)}, seen(0b00011, 0.25, 10.0, 300, 1.5)),
}


@pytest.mark.parametrize(("attributes", "expected"), FROM_SCORES.values(), ids=FROM_SCORES)
def test_history_from_scores(attributes: dict[str, Any], expected: Seen) -> None:
    (found,) = told([trial_of("01", user_attrs=attributes)]).seen
    assert found.log_divergence == pytest.approx(expected.log_divergence)
    evidence: dict[str, float] = {"noise": 0.125, "bound": 0.5}
    assert found == seen(
        expected.mask.left_out, expected.loss, found.log_divergence, 300, 1.5, feasible=expected.feasible, **evidence
    )


def test_the_penalty_of_a_compiled_candidate_is_its_compilers_and_what_no_forecast_said_is_known() -> None:
    compiled, plain = ({"scores": scores(compiled=made)} for made in ({"predicted_cost": 1.0, "cost": 1.5}, {}))
    found = [told([trial_of("01", user_attrs=attributes)]).seen[0] for attributes in (compiled, plain)]
    assert [one.penalty for one in found] == [1.5, 1.5]
    assert found[0].unforeseen == 0.5
    assert math.isnan(found[1].unforeseen)


def test_the_power_of_the_error_counts_where_it_is_known() -> None:
    """Independent errors add up in powers; a mean of decibels is a power's logarithm only where samples are alike."""
    found = told(
        [
            trial_of("01", user_attrs={"scores": scores(divergence=0.03)}),
            trial_of("2", TrialState.PRUNED, user_attrs={"partial": partial(divergence=0.5)}),
        ]
    ).seen
    assert [s.log_divergence for s in found] == pytest.approx([math.log(0.03), math.log(0.5)])


def test_history_from_dropped_candidates() -> None:
    """10 dB are an error power of a tenth of the signal's; 30 of 120 samples are a quarter."""
    (found,) = told([trial_of("2", TrialState.PRUNED, user_attrs={"partial": partial()})]).seen
    assert found == seen(0b00100, None, pytest.approx(math.log(0.1)), 200, 2.5, share=0.25, estimated_loss=0.375)


def test_history_from_bare_values() -> None:
    """No divergence is known, so the loss stands in: the log of where it lies between the least and the largest."""
    found = told([trial_of("", values=[0.9, 100, 0.0]), trial_of("0", values=[0.4, 160, 0.8])]).seen
    assert found[0] == seen(0b00000, 0.9, pytest.approx(math.log(1.01)), 100, 0.0)
    assert found[1] == seen(0b00001, 0.4, pytest.approx(math.log(0.01)), 160, 0.8)
    (alone,) = told([trial_of("1", values=[0.4, 160, 0.8])]).seen
    assert alone == seen(0b00010, 0.4, 0.0, 160, 0.8)


def test_the_loss_does_not_stand_in_where_a_divergence_is_known() -> None:
    found = told(
        [trial_of("0", values=[0.4, 160, 0.8]), trial_of("01", user_attrs={"scores": scores(sqnr_db=20.0)})]
    ).seen
    assert math.isnan(found[0].log_divergence)
    assert found[1].log_divergence == pytest.approx(math.log(0.01))


def test_what_an_evaluator_scored_has_losses_and_divergences_that_learned_of_each_other() -> None:
    """It runs no samples that the search knows of. By closeness the second should lose most, by the score the third."""
    known = [("0", -0.5, 30.0), ("1", 0.5, 10.0), ("2", 1.5, 20.0)]
    found = told(
        [trial_of(n, user_attrs={"scores": scores(samples=0, drop=drop, sqnr_db=db)}) for n, drop, db in known]
    ).seen
    assert [s.loss for s in found] == pytest.approx([-0.5, 1.0, 1.0])
    assert [s.log_divergence for s in found] == pytest.approx([math.log(v) for v in (0.001, 10**-1.5, 10**-1.5)])


def test_one_that_an_evaluator_scored_is_taken_as_it_is() -> None:
    (found,) = told([trial_of("0", user_attrs={"scores": scores(samples=0, drop=0.5, sqnr_db=10.0)})]).seen
    assert (found.loss, found.log_divergence) == pytest.approx((0.5, math.log(0.1)))


def recipe_attributes(fallback: Fallback, *nodes: str, repairs: tuple[str, ...] = ()) -> dict[str, Any]:
    recipe = Recipe(denylisted_nodes=frozenset(nodes), fallback=fallback, repairs=repairs)
    return {"recipe": recipe.to_json(), "scores": scores()}


FALLBACKS: dict[str, tuple[Fallback | None, Fallback, tuple[str, ...], list[Mask]]] = {
    "the same": ("drq", "drq", ("n0",), [Mask(0b00001)]),
    "another": ("drq", "float", ("n0",), []),
    "another, the other way": ("float", "drq", ("n0", "n1"), []),
    "another, but nothing falls back": ("float", "drq", (), [Mask()]),
    "none is asked for": (None, "float", ("n1",), [Mask(0b00010)]),
}


@pytest.mark.parametrize(("own", "theirs", "nodes", "masks"), FALLBACKS.values(), ids=FALLBACKS)
def test_candidates_of_another_fallback_are_no_news(
    own: Fallback | None, theirs: Fallback, nodes: tuple[str, ...], masks: list[Mask]
) -> None:
    template = None if own is None else Recipe(fallback=own)
    recorder = told([trial_of("01", user_attrs=recipe_attributes(theirs, *nodes))], template)
    assert [s.mask for s in recorder.seen] == masks


REPAIRED: dict[str, tuple[tuple[tuple[str, ...], ...], tuple[str, ...], list[Mask]]] = {
    "none": (((),), (), [Mask(0b00001)]),
    "the same": ((("ranges-mse",),), ("ranges-mse",), [Mask(0b00001)]),
    "another of the sets": ((("bias",), ()), (), [Mask(0b00001, repairs=1)]),
    "biases corrected in sequence": ((("bias",), ("bias-sequential",)), ("bias-sequential",), [Mask(1, repairs=1)]),
    "others": ((("bias",),), (), []),
}


@pytest.mark.parametrize(("own", "theirs", "masks"), REPAIRED.values(), ids=REPAIRED)
def test_candidates_of_repairs_that_are_not_the_searchs_are_no_news(
    own: tuple[tuple[str, ...], ...], theirs: tuple[str, ...], masks: list[Mask]
) -> None:
    trial = trial_of("0", user_attrs=recipe_attributes("drq", "n0", repairs=theirs))
    problem = Problem(FIVE.units, FIVE.neighbours, FIVE.forecast_of, repair_sets=own)
    recorder = told([trial], Recipe(repairs=own[0]), problem)
    assert [s.mask for s in recorder.seen] == masks


STATES = {
    "running": (TrialState.RUNNING, [], [Mask(0b01000)]),
    "failed": (TrialState.FAIL, [], []),
    "waiting": (TrialState.WAITING, [], []),
    "dropped without a word": (TrialState.PRUNED, [], []),
    "complete": (TrialState.COMPLETE, [Mask(0b01000)], []),
}


@pytest.mark.parametrize(("state", "masks", "pending"), STATES.values(), ids=STATES)
def test_what_counts_as_known_and_as_under_way(state: TrialState, masks: list[Mask], pending: list[Mask]) -> None:
    recorder = told([trial_of("3", state)])
    assert [s.mask for s in recorder.seen] == masks
    assert recorder.pending == pending


def test_a_mask_is_put_into_the_terms_of_the_space() -> None:
    """The recorder always proposes n0, n2 and n4."""
    study = optuna.create_study(directions=THREE_LOSSES, sampler=ProposerSampler(Recorder(), FIVE, EITHER))
    trial = study.ask()
    assert suggested(trial, EITHER) == {"n0", "n2", "n4"}
    assert trial.params == {ALTERNATIVE: "nodes", "n0": True, "n1": False, "n2": True, "n3": False, "n4": True}


def test_pinned_nodes_are_in_every_candidate() -> None:
    space = BoundSpace(dimensions=TOGGLES.dimensions[:3], keep_float=frozenset({"n4"}), keep_int=frozenset({"n3"}))
    problem = Problem(
        FIVE.units[:3],
        FIVE.neighbours[:3],
        lambda nodes, float_nodes, _repairs: FIVE.forecast(FIVE.mask_of(nodes)),
        space=BoundSpace(dimensions=(), keep_float=frozenset({"n4"})),
    )
    sampler = ProposerSampler(Listed(all_masks(problem)), problem, space)
    study = optuna.create_study(directions=THREE_LOSSES, sampler=sampler)
    found = set()
    for _ in range(8):
        trial = study.ask()
        nodes = suggested(trial, space)
        found.add(nodes)
        study.tell(trial, losses_of(nodes))
    assert len(found) == 8
    assert all("n4" in nodes and "n3" not in nodes for nodes in found)


def test_a_parameter_that_is_none_of_the_spaces_is_left_to_chance() -> None:
    sampler = make_sampler("surrogate", seed=0, problem=FIVE, space=TOGGLES, template=Recipe(), budget=None)
    study = optuna.create_study(directions=THREE_LOSSES, sampler=sampler)
    trial = study.ask()
    assert suggested(trial, TOGGLES) == frozenset()
    assert 0.0 <= trial.suggest_float("mine", 0.0, 1.0) <= 1.0


def test_check_sampler_names_all(reviewed: Reviewed) -> None:
    with pytest.raises(UsageError) as caught:
        check_sampler("annealing")
    reviewed("a sampler that there is not", str(caught.value))
    for name in SAMPLERS:
        check_sampler(name)


MADE = {
    "surrogate": (FIVE, ProposerSampler),
    "random": (FIVE, ProposerSampler),
    "tpe": (FIVE, optuna.samplers.TPESampler),
    "nsga2": (FIVE, optuna.samplers.NSGAIISampler),
}


@pytest.mark.parametrize(("name", "made"), MADE.items(), ids=MADE)
def test_a_sampler_by_name(name: str, made: tuple[Problem, type[optuna.samplers.BaseSampler]]) -> None:
    problem, kind = made
    found = make_sampler(name, seed=0, problem=problem, space=TOGGLES, template=Recipe(), budget=10)
    assert type(found) is kind


@pytest.mark.parametrize("name", PROPOSERS)
def test_without_a_problem_the_projects_own_are_tpe(name: str) -> None:
    found = make_sampler(name, seed=0, problem=None, space=TOGGLES, template=Recipe(), budget=10)
    assert type(found) is optuna.samplers.TPESampler
    assert (sampler_in_use(name, None), sampler_in_use(name, FIVE)) == ("tpe", name)


def test_a_sampler_of_no_name_is_refused() -> None:
    with pytest.raises(UsageError, match="no sampler 'grid'"):
        make_sampler("grid", seed=0, problem=FIVE, space=TOGGLES, template=Recipe(), budget=None)
