"""Searches on a Dask cluster with certificates whose worker, scheduler and driver are killed; real processes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from faults import assert_ended, complete, driver, environment, said, told

pytest.importorskip("distributed", reason="needs autoselect[distributed]")

RUNS = int(os.environ.get("AUTOSELECT_TLS_FAULT_RUNS", "1"))
TRIALS = 60
WORKERS = 2
NEWS = {
    "lost a worker": "Slots of the cluster: 1 now, 2 before",
    "lost the scheduler": "The scheduler is lost",
    "had it back": "The scheduler is back",
}


def certificates(folder: Path, name: str) -> dict[str, str]:
    """A key and a certificate that is its own authority, as settings of Dask in the environment."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make certificates")
    files = {"KEY": str(folder / f"{name}.key"), "CERT": str(folder / f"{name}.pem")}
    form = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    subprocess.run(["openssl", *form, "-keyout", files["KEY"], "-out", files["CERT"]], check=True, capture_output=True)
    prefix = "DASK_DISTRIBUTED__COMM__"
    ends = {f"{end}__{part}": path for end in ("SCHEDULER", "WORKER", "CLIENT") for part, path in files.items()}
    tls = {f"{prefix}TLS__{part}": path for part, path in {**ends, "CA_FILE": files["CERT"]}.items()}
    return {**tls, f"{prefix}REQUIRE_ENCRYPTION": "True"}


def killed(process: subprocess.Popen[str]) -> None:
    """Kill a process and all of its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


class Machines:
    """A scheduler and two workers of one slot each, each in a process group of its own."""

    def __init__(self, settings: Mapping[str, str], folder: Path) -> None:
        self._environment, self._folder = {**environment(), **settings}, folder
        with socket.create_server(("127.0.0.1", 0)) as server:
            self._port = str(server.getsockname()[1])
        self.address = f"tls://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        self.scheduler = self._started("scheduler", "--port", self._port)
        slots = ("--nworkers", "1", "--nthreads", "1")
        self.workers = [self._started("worker", self.address, *slots) for _ in range(WORKERS)]

    def _started(self, kind: str, *arguments: str) -> subprocess.Popen[str]:
        own = [*arguments, "--host", "127.0.0.1", "--protocol", "tls", "--no-dashboard"]
        with (self._folder / f"{kind}.log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{kind}", *own],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def kill_worker(self, rng: random.Random) -> None:
        """Kill what a nanny watches over, which starts another."""
        nanny = psutil.Process(rng.choice(self.workers).pid)
        (worker,) = (p for p in nanny.children() if any("spawn_main" in word for word in p.cmdline()))
        worker.kill()

    def close(self) -> None:
        for process in (self.scheduler, *self.workers):
            killed(process)


def finished_until(news: str, process: subprocess.Popen[str], folder: Path) -> int:
    """How many trials a search finishes until it tells the news; to its end where it never does."""
    finished = 0
    while news not in said(folder).read_text() and all(told(process, 1)):
        finished += 1
    return finished


def cut_short(folder: Path, seed: int, settings: Mapping[str, str], cluster: Machines) -> Counter[str]:
    """A search that loses a worker, then the scheduler for a while, then its own process."""
    rng, counts = random.Random(seed), Counter[str]()
    process = driver(folder, seed, trials=TRIALS, scheduler=cluster.address, changes=settings)
    try:
        told(process, rng.randint(1, 8))
        time.sleep(rng.uniform(0, 0.3))
        cluster.kill_worker(rng)
        counts["trials until a lost worker was noticed"] = finished_until(NEWS["lost a worker"], process, folder)
        told(process, rng.randint(0, 8))
        cluster.close()
        counts["trials without scheduler"] = finished_until(NEWS["lost the scheduler"], process, folder)
        time.sleep(rng.uniform(0, 3))
        cluster.start()
        counts["trials without scheduler"] += finished_until(NEWS["had it back"], process, folder)
        counts["trials with the new scheduler"] = len(told(process, rng.randint(1, 8)))
        counts["drivers killed"] = int(process.poll() is None)
    finally:
        killed(process)
    return counts + Counter({name: int(news in said(folder).read_text()) for name, news in NEWS.items()})


@pytest.mark.slow
@pytest.mark.own_workers
def test_a_certificate_of_others_is_refused(tmp_path: Path) -> None:
    with contextlib.closing(Machines(certificates(tmp_path, "owner"), tmp_path)) as cluster:
        assert cluster.scheduler.poll() is None
        settings = certificates(tmp_path, "stranger")
        process = driver(tmp_path / "run", 0, scheduler=cluster.address, changes=settings)
        process.communicate(timeout=120)
    assert process.returncode != 0
    assert "UsageError: scheduler: it does not know this certificate" in said(tmp_path / "run").read_text()


@pytest.mark.slow
@pytest.mark.own_workers
@pytest.mark.usefixtures("finished")  # Its calibration is in the cache.
def test_nothing_is_lost_on_a_cluster_with_certificates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    settings = certificates(tmp_path, "campaign")
    for number in range(RUNS):
        folder = tmp_path / f"run-{number}"
        with contextlib.closing(Machines(settings, tmp_path)) as cluster:
            counts += cut_short(folder, number, settings, cluster)
            known = complete(folder)
            last = driver(folder, number, trials=TRIALS, scheduler=cluster.address, changes=settings)
            last.communicate(timeout=600)
        counts["finished trials before the resume"] += len(known)
        counts["finished trials at the end"] += assert_ended(last, folder, known)
    with capsys.disabled():
        sys.stdout.write(f"\n{RUNS} runs: {dict(counts)}\n")
    assert counts["lost a worker"] == counts["lost the scheduler"] == RUNS
    assert counts["finished trials before the resume"] > 0
