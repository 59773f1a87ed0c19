"""Workers with a deadline: who waits gets TimeUp, and the workers go on with other jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoselect.errors import JobFailed
from autoselect.isolation.deadline import TimeUp, until
from autoselect.isolation.pool import WorkerPool, result_of


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    with WorkerPool(1, log=tmp_path / "log") as made:
        yield made


def test_what_is_not_done_at_the_deadline_is_given_up_and_its_process_freed(pool: WorkerPool, tmp_path: Path) -> None:
    began = time.monotonic()
    with until(pool, 2.0, tmp_path / "log") as hurried:
        under_way, waiting = hurried.submit(time.sleep, 300), hurried.submit(pow, 2, 3)
        for future in (under_way, waiting):
            with pytest.raises(TimeUp):
                result_of(future)
        with pytest.raises(TimeUp):
            hurried.submit(pow, 2, 4)
    assert pool.call(pow, 2, 5) == 32
    assert 2.0 <= time.monotonic() - began < 100


def test_before_the_deadline_jobs_end_as_they_do_without_one(pool: WorkerPool, tmp_path: Path) -> None:
    with until(pool, 300.0, tmp_path / "log") as hurried:
        assert hurried.call(pow, 2, 3) == 8
        with pytest.raises(JobFailed):
            hurried.call(int, "no number")
        assert (hurried.are_here, hurried.slots(1)) == (pool.are_here, pool.slots(1))
    assert pool.call(pow, 2, 5) == 32
