"""The embedded model, prepared with samples of a test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from settling import settled

from autoselect.cases import build_jobs
from autoselect.cases.events import ignore
from autoselect.cases.ingredients import Ingredients
from autoselect.cases.prepare import Case, prepare_case
from autoselect.domain.recipe import Recipe
from autoselect.embedded import make_windows, model_bytes
from autoselect.isolation.pool import WorkerPool
from autoselect.scoring.metrics import make_metric


def calibration() -> Iterator[list[np.ndarray]]:
    for window in make_windows(np.random.default_rng(9), 10)[0]:
        yield [window[np.newaxis]]


@pytest.fixture(scope="module")
def embedded_case(
    tmp_path_factory: pytest.TempPathFactory, session_workers: WorkerPool
) -> Callable[..., tuple[Case, str]]:
    """Makes a case of these samples; gives it with the hash of the all-integer candidate, which is built."""

    def make(*, evaluation: Any, heldout: Any) -> tuple[Case, str]:
        root = tmp_path_factory.mktemp("case")
        ingredients = Ingredients(
            model=model_bytes(),
            calibration=calibration,
            evaluation=evaluation,
            heldout=heldout,
            metric=make_metric("accuracy"),
            evaluator=None,
        )
        with session_workers.lent(root / "worker.log") as pool:
            settings = settled(debug_samples=1)
            case = prepare_case(
                ingredients, settings, root=root, pool=pool, quantizer=pool, cache_root=None, listener=ignore
            )
            return case, pool.call(build_jobs.build, root, Recipe().to_json(), timeout_seconds=300).sha256

    return make
