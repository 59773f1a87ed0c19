"""Whom a model harms, of the embedded model on a few samples, against what its outputs say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autoselect.cases import effect_jobs, prepare_jobs, score_jobs
from autoselect.cases.files import FLOAT
from autoselect.cases.open_case import OpenCase
from autoselect.cases.prepare import Case, write_scoring
from autoselect.embedded import make_windows
from autoselect.scoring.metrics import make_metric

HELDOUT = make_windows(np.random.default_rng(8), 60)


@pytest.fixture(scope="module")
def made(embedded_case: Callable[..., tuple[Case, str]]) -> tuple[Case, str]:
    return embedded_case(evaluation=make_windows(np.random.default_rng(7), 20), heldout=HELDOUT)


def test_the_counts_and_the_worst_samples_are_those_of_the_outputs(made: tuple[Case, str]) -> None:
    case, integer = made
    found = effect_jobs.effects(case.files.root, integer, "heldout")
    assert found is not None
    opened = OpenCase(case.files.root)
    runners = [opened.runner(sha) for sha in (FLOAT, integer)]
    store = opened.part("heldout")
    outputs = np.array([[next(iter(run(store.inputs(i)).values())).ravel() for run in runners] for i in range(60)])
    labels = np.array([store.target(i) for i in range(60)])
    theirs, ours = outputs.argmax(axis=2).T
    assert [(c.number, c.support) for c in found.classes] == [(k, (labels == k).sum()) for k in np.unique(labels)]
    for one in found.classes:
        mine = labels == one.number
        assert one.float_right == (theirs[mine] == one.number).sum()
        assert one.right == (ours[mine] == one.number).sum()
        assert one.agreed == (ours[mine] == theirs[mine]).sum()
    noise = ((outputs[:, 0] - outputs[:, 1]) ** 2).sum(axis=1) / (outputs[:, 0] ** 2).sum(axis=1)
    order = np.argsort(-noise)[: effect_jobs.MOST_SAMPLES]
    assert [s.index for s in found.samples] == order.tolist()
    for one, place in zip(found.samples, order, strict=True):
        assert (one.label, one.float_answer, one.answer) == (labels[place], theirs[place], ours[place])
        assert one.sqnr_db == pytest.approx(-10 * np.log10(noise[place]), abs=1e-6)


def test_of_other_models_than_classifiers_the_worst_samples_are_known(made: tuple[Case, str]) -> None:
    case, integer = made
    scoring = case.files.scoring.read_bytes()
    try:
        write_scoring(case.files, make_metric("sqnr_db"), None)
        found = effect_jobs.compare(OpenCase(case.files.root), integer, "heldout")
        write_scoring(case.files, None, lambda runner: 1.0)
        assert effect_jobs.compare(OpenCase(case.files.root), integer, "heldout") is None
    finally:
        case.files.scoring.write_bytes(scoring)
    assert found is not None
    assert found.classes == ()
    assert [s.label for s in found.samples] == [None] * effect_jobs.MOST_SAMPLES
    values = [s.sqnr_db for s in found.samples]
    assert values == sorted(values)


def test_what_its_score_left_is_not_run_again(made: tuple[Case, str], monkeypatch: pytest.MonkeyPatch) -> None:
    case, integer = made
    files, scoring = case.files, case.files.scoring.read_bytes()
    try:
        write_scoring(files, make_metric("sqnr_db"), None)
        expected = effect_jobs.compare(OpenCase(files.root), integer, "heldout")
        prepare_jobs.run_reference(files.root, "heldout")
        score_jobs.score(files.root, integer, "heldout", False)
        monkeypatch.setattr(OpenCase, "runner", None)
        assert effect_jobs.compare(OpenCase(files.root), integer, "heldout") == expected
    finally:
        files.scoring.write_bytes(scoring)
