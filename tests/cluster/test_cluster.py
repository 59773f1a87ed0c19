"""What the local pool promises a Dask cluster keeps too, and workers that die, leave, or are of another kind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoselect.cases.events import TrialFinished, Warned
from autoselect.errors import JobFailed, ModelError, StorageError, UsageError, WorkerDied
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import WorkerPool, result_of
from autoselect.isolation.worker import TOOK_TOO_LONG

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))
from at_once import AtOnce

distributed = pytest.importorskip("distributed", reason="needs autoselect[distributed]")

from autoselect.cluster import engine, host, members  # noqa: E402 - only where Dask is
from autoselect.cluster.engine import Cluster  # noqa: E402
from autoselect.cluster.jobs import Local  # noqa: E402
from autoselect.cluster.opening import opened  # noqa: E402

pytestmark = [
    pytest.mark.own_workers,
    # Dask's own, of sockets and loops that it leaves to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NEWS: list[str] = []


def same_everywhere() -> dict[str, str]:
    return {"numpy": "1"}


def other_in_each_process() -> dict[str, str]:
    return {"numpy": "1", "tensorflow": str(os.getpid())}


@contextlib.contextmanager
def cluster_of(scheduler: object, folder: Path, **changes: Any) -> Iterator[Cluster]:
    NEWS.clear()
    if isinstance(scheduler, distributed.Client):  # An earlier test may have killed its worker.
        scheduler.wait_for_workers(1, timeout=60)
    local = Local(workers=1, log=folder / "worker.log", warm_up=None)
    told = {"describe": same_everywhere, "local": local, "insecure": False, "tell": NEWS.append, **changes}
    with opened(scheduler, **told) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A scheduler with one worker, which a nanny starts again when it dies."""
    with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs="CRITICAL",
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as made,
    ):
        yield made


@pytest.fixture(scope="module", params=["at once", "pool", "cluster"])
def workers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("workers")
    if request.param == "at once":
        yield AtOnce()
    elif request.param == "pool":
        with WorkerPool(1, log=folder / "worker.log") as pool:
            yield pool
    else:
        with cluster_of(request.getfixturevalue("client"), folder) as cluster:
            yield cluster


# -------------------------------------------------------------------------------------------------- contract


def refuse() -> None:
    raise ModelError("the model is no model")


def stumble() -> None:
    raise ValueError("unexpected")


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def copied(root: Path, source: str, target: str) -> bytes:
    content = (root / source).read_bytes()
    (root / target).parent.mkdir(exist_ok=True)
    (root / target).write_bytes(content)
    return content


def test_jobs_give_values_and_errors(workers: Workers) -> None:
    factor = 3
    assert workers.call(pow, 2, 5) == 32
    assert workers.call(lambda x: factor * x, 5) == 15
    with pytest.raises(ModelError, match=r"^the model is no model$"):
        workers.call(refuse)
    with pytest.raises(JobFailed, match=r"^ValueError: unexpected$"):
        workers.call(stumble)


def test_a_crash_costs_one_job(workers: Workers) -> None:
    if isinstance(workers, AtOnce):
        pytest.skip("it has no process of its own that could crash")
    futures = [workers.submit(pow, 2, 1), workers.submit(crash), workers.submit(pow, 2, 3)]
    assert (result_of(futures[0]), result_of(futures[2])) == (2, 8)
    with pytest.raises(WorkerDied, match="SIGSEGV"):
        result_of(futures[1])


def test_a_job_that_hangs_is_stopped(workers: Workers) -> None:
    if isinstance(workers, AtOnce):
        pytest.skip("it has no process of its own that could be stopped")
    with pytest.raises(WorkerDied, match=re.escape(TOOK_TOO_LONG)):
        workers.call(time.sleep, 60, timeout_seconds=0.5)


def test_jobs_find_the_folders_files_and_leave_theirs_in_it(workers: Workers, tmp_path: Path) -> None:
    key = "c" * 64
    (tmp_path / "first").write_bytes(b"1")
    assert workers.call(copied, tmp_path, "first", f"kept/{key}.npy") == b"1"
    assert (tmp_path / "kept" / f"{key}.npy").read_bytes() == b"1"
    (tmp_path / "second").write_bytes(b"22")
    (tmp_path / "first").unlink()
    (tmp_path / "first").write_bytes(b"another first")
    assert workers.call(copied, tmp_path, "second", "kept/third") == b"22"
    assert workers.call(copied, tmp_path, "first", "kept/third") == b"another first"
    assert (tmp_path / "kept" / "third").read_bytes() == b"another first"


def test_one_worker_has_one_candidate_under_way(workers: Workers) -> None:
    assert workers.slots(1) == 1


def test_a_piece_of_work_that_ends_costs_others_no_job(workers: Workers, tmp_path: Path) -> None:
    with workers.lent(tmp_path / "log") as mine:
        with workers.lent(tmp_path / "log") as theirs:
            running, waiting = theirs.submit(time.sleep, 0.5), mine.submit(pow, 2, 5)
        assert running.done()
        assert waiting.result(timeout=30) == 32
        assert mine.submit(pow, 2, 6).result(timeout=30) == 64


# ------------------------------------------------------------------------------------------- only of a cluster


def kill_the_dask_worker(marks: str) -> None:
    """Kill the process that asked for this one; not before its nanny has seen it start, which else gives it up."""
    (Path(marks) / str(os.getpid())).touch()
    time.sleep(4.0)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


def memory_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")}


def test_jobs_do_not_give_memory_back_after_each_tensor(client: Any, tmp_path: Path) -> None:
    """Dask's nanny sets this for its workers; a slot that was there before has taken it away."""
    client.run(os.environ.update, {"MALLOC_TRIM_THRESHOLD_": "65536"})
    with cluster_of(client, tmp_path) as cluster:
        assert not cluster.call(memory_settings)


@pytest.mark.slow
def test_a_job_that_kills_two_workers_fails(client: Any, tmp_path: Path) -> None:
    with cluster_of(client, tmp_path) as cluster:
        with pytest.raises(WorkerDied, match=r"^2 workers "):
            cluster.call(kill_the_dask_worker, str(tmp_path))
        assert len(list(tmp_path.iterdir())) == 2
        assert cluster.call(pow, 2, 5) == 32
    assert any("0 now, 1 before" in told for told in NEWS)


def test_a_worker_with_other_versions_is_refused_by_name(client: Any, tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"Worker \S+ is refused: tensorflow \d+ there, \d+ here"),
        cluster_of(client, tmp_path, describe=other_in_each_process),
    ):
        pass


def test_open_schedulers_and_nobody_are_refused(tmp_path: Path) -> None:
    for scheduler, message in (
        ("tcp://192.0.2.1:8786", "neither on this machine nor"),
        ("tcp://127.0.0.1:9", "nobody"),
        ("tls://127.0.0.1:9", "needs a certificate.*TLS__CA_FILE"),
    ):
        with pytest.raises(UsageError, match=message), cluster_of(scheduler, tmp_path):
            pass
    with pytest.raises(UsageError, match=r"distributed\.Client"), cluster_of(3, tmp_path):
        pass


def _allowed_failures(cluster: Any) -> Any:
    return cluster._client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.allowed_failures)


@pytest.mark.slow
def test_a_lost_scheduler_is_done_without_until_it_is_back(tmp_path: Path) -> None:
    def started(port: int = 0) -> Any:
        return distributed.LocalCluster(
            n_workers=1, host="127.0.0.1", scheduler_port=port, dashboard_address="127.0.0.1:0", silence_logs="CRITICAL"
        )

    with contextlib.ExitStack() as stack:
        first = stack.enter_context(started())
        cluster = stack.enter_context(cluster_of(first.scheduler_address, tmp_path))
        caught = cluster.submit(time.sleep, 600, timeout_seconds=3.0)
        time.sleep(0.5)
        first.close()
        with pytest.raises(WorkerDied, match="time limit"):
            result_of(caught)
        assert cluster.call(os.getcwd) == os.getcwd()
        cluster.slots(1)
        assert any("is lost" in told for told in NEWS)
        stack.enter_context(started(int(first.scheduler_address.rpartition(":")[2])))
        limit = time.monotonic() + 60
        while not any("is back" in told for told in NEWS) and time.monotonic() < limit:
            cluster.slots(1)
            time.sleep(0.1)
        assert cluster.call(pow, 2, 5) == 32
        while (allowed := _allowed_failures(cluster)) and time.monotonic() < limit:  # Until the worker has joined.
            time.sleep(0.1)
        assert allowed == 0
    assert any("is back" in told for told in NEWS)


@pytest.mark.slow
def test_a_search_on_a_cluster_gives_the_front_of_a_local_one_though_its_worker_dies(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pump

    events: list[Any] = []

    def listener(event: Any) -> None:
        events.append(event)
        if isinstance(event, TrialFinished) and event.number == 4:
            (pid,) = client.run(os.getpid).values()
            os.kill(pid, signal.SIGKILL)

    here = pump.search(tmp_path / "here", trials=12)
    # Two processes here have TensorFlow in a third one alone, and those of the cluster need none.
    there = pump.search(
        tmp_path / "there",
        trials=12,
        objectives="accuracy,size,penalty",
        workers=2,
        scheduler=client,
        listener=listener,
    )
    assert there.status == "complete"
    assert len(there.trials) == 12
    assert any(isinstance(event, Warned) and "Slots of" in event.message for event in events)
    assert pump.tree(tmp_path / "there" / "front") == pump.tree(tmp_path / "here" / "front")
    assert here.summary["picks"] == there.summary["picks"]
    kept = (tmp_path / "there" / "manifest.json").read_text()
    assert client.scheduler.address not in kept


def test_an_error_that_nobody_expects_costs_one_job(client: Any, tmp_path: Path) -> None:
    (tmp_path / "vanished").symlink_to(tmp_path / "nowhere")
    with cluster_of(client, tmp_path) as cluster:
        for job, error in (
            ((len, threading.Lock()), "TypeError: cannot pickle"),
            ((copied, tmp_path, "vanished", "copy"), "FileNotFoundError: .*vanished"),
        ):
            with pytest.raises(JobFailed, match=error):
                raise cluster.submit(*job).exception(timeout=30) or AssertionError("no error")
        assert cluster.submit(pow, 2, 5).result(timeout=30) == 32


class _Slow:
    """An answer that takes its time on the way."""

    def __reduce__(self) -> Any:
        time.sleep(3.0)
        return int, ()


def _answer_slowly(marks: str) -> _Slow:
    (Path(marks) / uuid.uuid4().hex).touch()
    return _Slow()


def test_a_slow_answer_is_waited_for(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "_PATIENCE_SECONDS", 0.1)
    (member,) = members.members_of(client).values()
    assert member.ask(_answer_slowly, str(tmp_path)) == 0
    assert len(list(tmp_path.iterdir())) == 1


def test_a_worker_that_is_there_and_sends_nothing_counts(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, submit = [], client.submit

    def lost(function: Any, *args: Any, **options: Any) -> Any:
        if function is not host.work:
            return submit(function, *args, **options)
        asked.append(function)
        raise OSError("the way is lost")

    with cluster_of(client, tmp_path) as cluster:
        with monkeypatch.context() as broken:
            broken.setattr(client, "submit", lost)
            with pytest.raises(WorkerDied, match=r"^2 workers "):
                raise cluster.submit(pow, 2, 5).exception(timeout=30) or AssertionError("no error")
        assert len(asked) == 2
        assert cluster.submit(pow, 2, 5).result(timeout=30) == 32


def _without_room(marks: str, most: int) -> int:
    """The first ones that get it cannot write."""
    if len(list(Path(marks).iterdir())) < most:
        (Path(marks) / uuid.uuid4().hex).touch()
        raise StorageError("/there could not be written: No space left on device. Choose another --output.")
    return 7


@pytest.mark.slow
def test_a_worker_whose_disk_is_full_gets_no_more_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_LOOK_AGAIN_SECONDS", 0.5)
    (marks := tmp_path / "marks").mkdir()
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs="CRITICAL"
        ) as workers,
        cluster_of(workers.scheduler_address, tmp_path) as cluster,
    ):
        limit = time.monotonic() + 30
        while cluster.slots(1) < 2 and time.monotonic() < limit:
            time.sleep(0.1)
        assert cluster.call(_without_room, str(marks), 1) == 7
        time.sleep(2.0)
        assert [cluster.call(pow, 2, 5) for _ in range(3)] == [32] * 3
        assert sum("is refused: /there" in told for told in NEWS) == 1
        assert cluster.slots(1) == 1


@pytest.mark.slow
def test_a_job_for_which_two_workers_have_no_room_ends_in_that_error(tmp_path: Path) -> None:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs="CRITICAL"
        ) as workers,
        cluster_of(workers.scheduler_address, tmp_path) as cluster,
    ):
        (marks := tmp_path / "marks").mkdir()
        with pytest.raises(StorageError, match=r"^/there"):
            cluster.call(_without_room, str(marks), 9)
        assert len(list(marks.iterdir())) == 2


def test_a_refused_worker_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_LOOK_AGAIN_SECONDS", 0.5, raising=False)
    driver, is_old = os.getpid(), tmp_path / "old"
    is_old.touch()

    def describe() -> dict[str, str]:
        return {"numpy": "0" if os.getpid() != driver and is_old.exists() else "1"}

    with (
        distributed.LocalCluster(
            n_workers=0, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs="CRITICAL"
        ) as workers,
        cluster_of(workers.scheduler_address, tmp_path, describe=describe) as cluster,
    ):
        workers.scale(1)
        waiting = cluster.submit(pow, 2, 5)
        threading.Thread(target=result_of, args=(waiting,), daemon=True).start()  # Who waits is told why.
        limit = time.monotonic() + 30
        while not any("refused" in told for told in NEWS) and time.monotonic() < limit:
            time.sleep(0.1)
        assert any("refused" in told for told in NEWS)
        time.sleep(2.0)
        cluster.slots(1)
        assert sum("is refused: numpy 0 there, 1 here" in told for told in NEWS) == 1
        is_old.unlink()
        assert waiting.result(timeout=30) == 32
