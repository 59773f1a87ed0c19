"""Which repairs a search decides on, by divergences that a fake pool knows."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import table
from settling import settled

from autoselect.cases import build_jobs, evidence_jobs, score_jobs
from autoselect.cases.divergence import Looked
from autoselect.cases.events import Event, Listener, Warned, ignore
from autoselect.cases.files import CaseFiles
from autoselect.cases.prepare import Case
from autoselect.cases.references import References
from autoselect.cases.settings import make_settings
from autoselect.cases.settled import RepairChoice
from autoselect.domain.graph import Graph
from autoselect.domain.layers import LayerTable
from autoselect.domain.recipe import Recipe
from autoselect.domain.rule import Rule
from autoselect.domain.search_space import BoundSpace
from autoselect.errors import TrialError, UsageError, WorkerDied
from autoselect.quantize.repairing import ranges
from autoselect.study.setup.repair_choice import DECIDING_SAMPLES, with_repairs


class Pool:
    """Answers with the error's share of samples by repairs, 1 where none is given; NaN is of no sample."""

    def __init__(
        self,
        known: Mapping[tuple[str, ...], float | list[float] | Exception],
        scores: Mapping[tuple[str, ...], float | Exception] | None = None,
        noise: float = 0.0,
        closeness: Mapping[tuple[str, ...], float] | None = None,
    ) -> None:
        self.closeness = closeness or {}
        self.sizes: dict[tuple[str, ...], int] = {}
        self.known, self.scores, self.noise = known, scores or {}, noise
        self.asked: list[tuple[str, ...]] = []
        self.left_out: set[frozenset[str]] = set()
        self.rows: list[tuple[str, list[int]]] = []
        self.scored: list[str] = []
        self.jobs: Counter[str] = Counter()

    def submit(self, job: Any, _root: Path, *arguments: Any, **_: Any) -> Any:
        """Builds give the repairs' names as hash; scores are 0 where none is given."""
        future: Future[Any] = Future()
        answer = self.answer(job, *arguments)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    def answer(self, job: Any, *arguments: Any) -> Any:
        self.jobs[job.__name__] += 1
        if job is build_jobs.build_each:
            recipes = [Recipe.from_json(recipe) for recipe in arguments[0]]
            return [SimpleNamespace(sha256="+".join((*sorted(r.denylisted_nodes), *r.repairs))) for r in recipes]
        if job is evidence_jobs.paired_noise:
            return self.noise
        if job is score_jobs.score:
            key = tuple(arguments[0].split("+")) if arguments[0] else ()
            score = self.scores.get(key, 0.0)
            self.scored.append(arguments[0])
            return (
                score
                if isinstance(score, Exception)
                else SimpleNamespace(value=score, sqnr_db=self.closeness.get(key, math.nan))
            )
        recipes, samples, rows, _ = arguments
        self.rows.append((samples, list(rows)))
        parsed = list(map(Recipe.from_json, recipes))
        found = [self.shares(one.denylisted_nodes, one.repairs, bool(one.int16_nodes)) for one in parsed]
        return next((shares for shares in found if isinstance(shares, Exception)), found)

    def shares(self, nodes: frozenset[str], repairs: tuple[str, ...], is_wide: bool = False) -> Any:
        self.asked.append(repairs)
        self.left_out.add(nodes)
        key = ("16",) if is_wide else (*sorted(nodes),)
        found = self.known.get((*key, *repairs), 1.0 if is_wide else self.known.get(repairs, 1.0))
        if isinstance(found, Exception):
            return found
        shares = [share for share in (found if isinstance(found, list) else [found]) if not math.isnan(share)]
        return Looked(shares=shares, size_bytes=self.sizes.get(repairs, 1000))


def case(root: Path, *, search: bool = True, layers: LayerTable | None = None) -> Case:
    files = CaseFiles(root=root)
    if search:
        files.split("search").parent.mkdir(parents=True)
        files.split("search").write_text(json.dumps({"samples": "evaluation", "indices": list(range(0, 80, 2))}))
    return Case(
        files=files,
        graph=Graph(tensors=(), ops=(), inputs=(), outputs=()),
        layers=layers or table(("a", "CONV_2D", 0.3)),
        counts={"calibration": 5, "search": 40},
        hashes={},
        references=References(files, None, {}, 1.0, None),
        has_heldout=True,
        warnings=(),
    )


FREE = BoundSpace(dimensions=())


def decide(
    case: Case,
    pool: Any,
    direction: Any = "maximize",
    *,
    repairs: Any = True,
    space: BoundSpace = FREE,
    allowed_drop: float = 0.0,
    listener: Listener = ignore,
    **others: Any,
) -> RepairChoice:
    settings = settled(repairs=repairs, **others)
    rule = Rule(allowed_drop=allowed_drop, float_penalty=1.0, float_size_bytes=3500.0)
    return with_repairs(case, settings, direction, pool, listener, space=space, rule=rule)


BIAS, BOTH, ROUNDING = ("bias",), ("bias", "equalization"), "rounding-gptq"
ROWS = {
    "nothing helps": ({}, ()),
    "each does harm and both together help": ({BIAS: 1.5, ("equalization",): 2.0, BOTH: 0.1}, BOTH),
    "all that helps is kept": (
        {BIAS: 0.2, BOTH: 0.1, ("bias", "equalization", "ranges-mse"): 0.05},
        (*BOTH, "ranges-mse"),
    ),
    "the best of the ranges": ({("ranges-mse",): 0.5, ("ranges-percentile",): 0.4}, ("ranges-percentile",)),
    "little is left": ({BIAS: 0.97}, ()),
    "what makes it worse is left": ({BIAS: 0.2, BOTH: 0.3}, BIAS),
    "what fails is left": ({BIAS: TrialError("died"), ("equalization",): 0.5}, ("equalization",)),
    "what is not known is left": ({BIAS: math.nan, ("ranges-observed",): 0.5}, ("ranges-observed",)),
    "a perfect model needs none": ({(): 0.0, BIAS: 0.0}, ()),
    "most samples count, not the worst": ({BIAS: [0.5, 0.5, 3.0], (): [1.0, 1.0, 1.0]}, BIAS),
    "rounding beside what helped": ({BIAS: 0.5, (*BIAS, ROUNDING): 0.3}, (*BIAS, ROUNDING)),
    "rounding alone, and then biases": ({(ROUNDING,): 0.5, (*BIAS, ROUNDING): 0.3}, (*BIAS, ROUNDING)),
    "rounding that hardly helps": ({BIAS: 0.5, (*BIAS, ROUNDING): 0.49}, BIAS),
    "with other ranges it helps after all": (
        {BIAS: 0.97, ("ranges-mse",): 0.5, ("bias", "ranges-mse"): 0.3},
        ("bias", "ranges-mse"),
    ),
}


@pytest.mark.parametrize(("size", "expected"), [(1019, BIAS), (1050, ())])
def test_a_repair_is_worth_its_bytes(size: int, expected: tuple[str, ...], tmp_path: Path) -> None:
    """It leaves 0.91 of the power, 0.954 of the amplitude; a file larger by 5 % is no price for that."""
    pool = Pool({BIAS: 0.91})
    pool.sizes[BIAS] = size
    assert decide(case(tmp_path), pool).common == expected


@pytest.mark.parametrize(("share", "expected"), [(0.1, BIAS), (1e-3, ())], ids=["far", "near"])
def test_next_to_float_error_is_worth_few_bytes(share: float, expected: tuple[str, ...], tmp_path: Path) -> None:
    """A quarter of the error for 6 % more bytes is cheap at 10 dB; at 30 dB hardly anything is left of it."""
    pool = Pool({(): share, BIAS: 0.75 * share})
    pool.sizes[BIAS] = 1060
    assert decide(case(tmp_path), pool).common == expected


@pytest.mark.parametrize(("known", "expected"), ROWS.values(), ids=ROWS)
def test_a_repair_is_kept_where_it_lowers_the_divergence(
    tmp_path: Path, known: dict[tuple[str, ...], Any], expected: tuple[str, ...]
) -> None:
    pool: Any = Pool(known)
    assert decide(case(tmp_path), pool).common == expected


EQUALIZATION = ("equalization",)
SCORED = {
    "equal scores": ("maximize", {}, BOTH),
    "a higher score": ("maximize", {BIAS: 0.1, BOTH: 0.2}, BOTH),
    "a lower score is passed over": ("maximize", {BOTH: -0.1}, BIAS),
    "none is as good as plain": ("maximize", {BOTH: -0.1, BIAS: -0.1, EQUALIZATION: -0.2}, ()),
    "a higher error is passed over": ("minimize", {BOTH: 0.1, BIAS: 0.1, EQUALIZATION: -0.1}, EQUALIZATION),
    "what cannot be scored": ("maximize", {BOTH: TrialError("died")}, BIAS),
}


@pytest.mark.parametrize(("direction", "scores", "expected"), SCORED.values(), ids=SCORED)
def test_a_repair_is_kept_where_the_score_is_no_worse(
    tmp_path: Path, direction: Any, scores: dict[tuple[str, ...], Any], expected: tuple[str, ...]
) -> None:
    pool: Any = Pool({BIAS: 0.5, BOTH: 0.2, ("equalization",): 0.5}, scores)
    assert decide(case(tmp_path), pool, direction).common == expected


GOING_FURTHER = {
    "biases are corrected": ({BIAS: 0.5}, {}, BIAS, True),
    "they make it worse": ({BIAS: 1.1, ("ranges-mse",): 0.5}, {}, ("ranges-mse",), False),
    "they lower the score": ({BIAS: 0.5}, {BIAS: -0.1}, (), False),
}


@pytest.mark.parametrize(("known", "scores", "repairs", "further"), GOING_FURTHER.values(), ids=GOING_FURTHER)
def test_biases_may_be_corrected_in_sequence_where_correcting_them_helped(
    tmp_path: Path, known: Any, scores: Any, repairs: tuple[str, ...], further: bool
) -> None:
    pool: Any = Pool(known, scores)
    decided = decide(case(tmp_path), pool)
    assert (decided.common, any("bias-sequential" in names for names in decided.alternatives)) == (repairs, further)


FOUR = table(("mild", "CONV_2D", 0.3), ("worst", "CONV_2D", 2.0), ("bad", "ADD", 0.9), ("good", "CONV_2D", 0.1))
MSE = ("ranges-mse",)
JUDGES = {
    "a little worse without float nodes, far better with them": (
        {MSE: 1.5, ("bad", "worst", *MSE): 0.5, ("bad", "mild", "worst", *MSE): 0.5},
        {},
        MSE,
    ),
    "better without, far worse with": ({MSE: 0.8, ("bad", "worst", *MSE): 2.0}, {}, ()),
    "each score rises": ({MSE: 0.5}, {MSE: 0.1, ("bad", "worst", *MSE): 0.2}, MSE),
    "one score rises more than another falls": (
        {MSE: 0.5},
        {("bad", "mild", "worst", *MSE): -0.1, ("bad", "worst", *MSE): 0.2},
        (),
    ),
    "only the score of the all-integer model falls": ({MSE: 0.5}, {MSE: -0.1}, ()),
    "the score falls near float only": ({MSE: 0.5}, {("bad", "mild", "worst", *MSE): -0.1}, ()),
    "rounding lowers the score of one that leaves nodes out": (
        {BIAS: 0.5, (*BIAS, ROUNDING): 0.3},
        {("bad", "worst", *BIAS, ROUNDING): -0.1},
        BIAS,
    ),
    "one cannot be scored": ({MSE: 0.5}, {("bad", "worst", *MSE): TrialError("died")}, ()),
    "one cannot be scored either way": (
        {MSE: 0.5},
        {("bad", "worst"): TrialError("died"), ("bad", "worst", *MSE): TrialError("died")},
        MSE,
    ),
}


@pytest.mark.parametrize(("known", "scores", "expected"), JUDGES.values(), ids=JUDGES)
def test_three_models_stand_for_all_candidates(
    tmp_path: Path, known: Any, scores: Any, expected: tuple[str, ...]
) -> None:
    """The all-integer one, that without the half with the largest rmse/scale, and that of the best SQNR alone."""
    pool: Any = Pool(known, scores)
    decided = decide(case(tmp_path, layers=FOUR), pool)
    assert pool.left_out == {frozenset(), frozenset({"worst", "bad"}), frozenset({"worst", "bad", "mild"})}
    assert decided.common == expected


WEIGHED = {
    "near float it falls in doubt, all-integer it gains": ((0.047, 0.021, -0.006), 0.0058, 0.0, MSE),
    "near float it falls in doubt, and nothing is gained beyond doubt": ((0.011, 0.0, -0.006), 0.0058, 0.0, ()),
    "near float it falls beyond doubt, all others gain": ((0.068, 0.027, -0.033), 0.0084, 0.0074, ()),
    "a sure fall that nobody notices": ((0.3005, -0.02, 0.0148), 0.0001, 0.287, MSE),
    "the same where less may be lost": ((0.3005, -0.02, 0.0148), 0.0001, 0.1, ()),
    "the same where no drop is allowed": ((0.3005, -0.02, 0.0148), 0.0001, 0.0, ()),
    "of unknown noise, within the limit": ((0.0, -0.006, 0.0), math.nan, 0.01, MSE),
    "of unknown noise, beyond the limit": ((0.0, -0.011, 0.0), math.nan, 0.01, ()),
}


@pytest.mark.parametrize(("rises", "noise", "allowed_drop", "expected"), WEIGHED.values(), ids=WEIGHED)
def test_a_fall_counts_by_how_sure_it_is_and_by_what_may_be_lost(
    tmp_path: Path, rises: tuple[float, ...], noise: float, allowed_drop: float, expected: Any
) -> None:
    """Rises are of the all-integer model, of that without half of the nodes, and of that near float."""
    scores = zip((MSE, ("bad", "worst", *MSE), ("bad", "mild", "worst", *MSE)), rises, strict=True)
    pool: Any = Pool({MSE: 0.5}, dict(scores), noise)
    assert decide(case(tmp_path, layers=FOUR), pool, allowed_drop=allowed_drop).common == expected


@pytest.mark.parametrize(("noise", "expected"), [(0.09, ()), (0.11, MSE)], ids=["beyond", "within"])
def test_a_score_may_fall_within_the_noise_of_its_samples(tmp_path: Path, noise: float, expected: Any) -> None:
    pool: Any = Pool({MSE: 0.5}, {("bad", "worst", *MSE): -0.1}, noise)
    decided = decide(case(tmp_path, layers=FOUR), pool)
    assert decided.common == expected


OBSERVED = ("ranges-observed",)
RAISING = {
    "beyond doubt, though outputs are further from float": ({}, {("bad", "worst", *MSE): 0.3}, MSE),
    "within the doubt": ({}, {("bad", "worst", *MSE): 0.19}, ()),
    "the other raises more": (
        {MSE: 0.5},
        {("bad", "worst", *MSE): 0.3, ("bad", "worst", *OBSERVED): 0.4},
        OBSERVED,
    ),
    "it harms another beyond doubt": (
        {},
        {("bad", "worst", *MSE): 0.3, ("bad", "mild", "worst", *MSE): -0.21},
        (),
    ),
    "another's fall is in doubt, and smaller": (
        {},
        {("bad", "worst", *MSE): 0.3, ("bad", "mild", "worst", *MSE): -0.19},
        MSE,
    ),
    "two others' falls are in doubt, and larger together": (
        {},
        {("bad", "worst", *MSE): 0.3, ("bad", "mild", "worst", *MSE): -0.19, MSE: -0.12},
        (),
    ),
    "of the all-integer model alone": ({}, {MSE: 0.3}, MSE),
    "the all-integer model, tried without repairs too, loses less": (
        {},
        {("bad", "worst", *MSE): 0.3, MSE: -0.2},
        MSE,
    ),
    "the all-integer model loses more": ({}, {("bad", "worst", *MSE): 0.3, MSE: -0.4}, ()),
    "the all-integer model loses, and the others gain within the doubt": (
        {MSE: 0.5},
        {("bad", "worst", *MSE): 0.19, ("bad", "mild", "worst", *MSE): 0.19, MSE: -0.15},
        (),
    ),
}


@pytest.mark.parametrize(("known", "scores", "expected"), RAISING.values(), ids=RAISING)
def test_ranges_that_raise_scores_are_kept(tmp_path: Path, known: Any, scores: Any, expected: Any) -> None:
    """Of few samples that are clipped and many that are rounded a mean of divergences does not say which counts."""
    pool: Any = Pool({MSE: 1.02, OBSERVED: 1.02, **known}, scores, noise=0.1)
    decided = decide(case(tmp_path, layers=FOUR), pool)
    assert decided.common == expected


CLOSER = {
    "nearer": ({("bad", "worst", *MSE): 32.0}, MSE),
    "as near": ({}, MSE),
    "further": ({("bad", "worst", *MSE): 32.0, MSE: 27.0}, ()),
}


@pytest.mark.parametrize(("closeness", "expected"), CLOSER.values(), ids=CLOSER)
def test_what_a_few_samples_say_must_hold_on_all(tmp_path: Path, closeness: Any, expected: Any) -> None:
    models = [("bad", "worst", *end) for end in ((), MSE)] + [("bad", "mild", "worst", *end) for end in ((), MSE)]
    pool: Any = Pool({MSE: 0.5}, closeness={(): 30.0, MSE: 30.0, **dict.fromkeys(models, 30.0), **closeness})
    decided = decide(case(tmp_path, layers=FOUR), pool)
    assert decided.common == expected


def test_the_models_leave_out_what_the_user_and_the_target_decided(tmp_path: Path) -> None:
    pool: Any = Pool({MSE: 0.5}, {("good", *MSE): -0.1})
    space = BoundSpace(dimensions=(), keep_float=frozenset({"good"}), keep_int=frozenset({"worst"}))
    decided = decide(case(tmp_path, layers=FOUR), pool, space=space)
    assert pool.left_out == {frozenset({"good"}), frozenset({"good", "bad"}), frozenset({"good", "bad", "mild"})}
    assert decided.common == ()


def test_a_score_of_unknown_noise_does_not_raise_beyond_doubt(tmp_path: Path) -> None:
    pool: Any = Pool({MSE: 1.5}, {("bad", "worst", *MSE): 0.3}, noise=math.nan)
    assert decide(case(tmp_path, layers=FOUR), pool).common == ()


def test_weights_are_repaired_by_divergence_alone(tmp_path: Path) -> None:
    pool: Any = Pool({BIAS: 1.5}, {("bad", "worst", *BIAS): 0.3}, noise=0.1)
    decided = decide(case(tmp_path, layers=FOUR), pool)
    assert decided.common == ()


WIDTHS: dict[str, tuple[dict[tuple[str, ...], float], dict[str, tuple[str, ...]], tuple[tuple[str, ...], ...]]] = {
    "nothing helps": ({}, {}, ((),)),
    "each width its own": (
        {MSE: 0.5, ("16", *BIAS): 0.5},
        {"none": (), "integer": MSE, "int16": BIAS},
        (("bias", *MSE), (), BIAS, MSE, ("bias-sequential", *MSE), ("bias-sequential",)),
    ),
    "ranges are for 8 bits": ({("16", *MSE): 0.1}, {}, ((),)),
    "8 bits alone": ({MSE: 0.5}, {"none": (), "integer": MSE, "int16": ()}, (MSE, ())),
}


@pytest.mark.parametrize(("known", "sets", "choices"), WIDTHS.values(), ids=WIDTHS)
def test_the_all_16_bit_model_judges_repairs_of_its_own(
    tmp_path: Path, known: Any, sets: dict[str, tuple[str, ...]], choices: Any
) -> None:
    pool: Any = Pool(known)
    decided = decide(case(tmp_path, layers=FOUR), pool, fallback="search", int16=True)
    assert (decided.sets, decided.alternatives) == (sets, choices)
    assert decided.common == choices[0]


def test_no_combination_is_tried_twice(tmp_path: Path) -> None:
    pool: Any = Pool({BIAS: 0.5, ("bias", "ranges-mse"): 0.3})
    decide(case(tmp_path), pool)
    assert len(pool.asked) == len(set(pool.asked))
    assert sorted(pool.scored) == sorted(["", "bias", *(f"bias+{name}" for name in ranges.METHODS)])


def test_what_the_models_of_one_choice_share_is_made_for_one_job(tmp_path: Path) -> None:
    pool: Any = Pool({BIAS: 0.5})
    decide(case(tmp_path, layers=FOUR), pool)
    combinations, scored = len(set(pool.asked)), len({*map(repairs_of, pool.scored)})
    assert len(pool.left_out) == 3
    assert (pool.jobs["look_at_each"], pool.jobs["build_each"]) == (combinations, scored)


def repairs_of(sha256: str) -> tuple[str, ...]:
    """Of a model of the fake pool, whose hash begins with the nodes that it leaves out."""
    return tuple(part for part in sha256.split("+") if part not in {"", "worst", "bad", "mild"})


def test_it_is_decided_on_search_samples_from_everywhere(tmp_path: Path) -> None:
    pool: Any = Pool({})
    decide(case(tmp_path), pool)
    samples, rows = pool.rows[0]
    assert (samples, len(rows)) == ("evaluation", DECIDING_SAMPLES)
    assert set(rows) <= set(range(0, 80, 2))
    assert max(rows) >= 2 * DECIDING_SAMPLES


def test_without_search_samples_it_is_decided_on_calibration_samples(tmp_path: Path) -> None:
    pool: Any = Pool({})
    decide(case(tmp_path, search=False), pool)
    assert pool.rows[0] == ("calibration", list(range(5)))


def test_a_worker_that_dies_while_repairs_are_tried_is_told_of(tmp_path: Path) -> None:
    """What it would have said is missing, and another choice may have been the better one."""
    events = list[Event]()
    pool = Pool({BIAS: WorkerDied("SIGKILL"), ("equalization",): 0.5})
    found = decide(case(tmp_path), pool, listener=events.append)
    assert found.common == ("equalization",)
    (warning,) = (event.message for event in events if isinstance(event, Warned))
    assert "SIGKILL" in warning
    decide(case(tmp_path / "again"), Pool({BIAS: TrialError("refused")}), listener=events.append)
    assert sum(isinstance(event, Warned) for event in events) == 1


GIVEN = {"none": (False, ()), "by name": (("ranges-mse", "bias"), ("bias", "ranges-mse")), "none by name": ((), ())}


@pytest.mark.parametrize(("given", "expected"), GIVEN.values(), ids=GIVEN)
def test_what_the_user_says_is_not_tried(tmp_path: Path, given: Any, expected: tuple[str, ...]) -> None:
    pool: Any = Pool({BIAS: 0.1})
    assert (decide(case(tmp_path), pool, repairs=given).common, pool.asked) == (expected, [])


def test_an_unknown_repair_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="repairs"):
        make_settings(repairs=("biass",))
