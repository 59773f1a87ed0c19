"""Asks the server of a page as its script does, and starts one in a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

HEADER = {"X-Autoselect": "1"}
SECONDS = 300.0
"""A job imports TensorFlow, calibrates and does the held-out check, maybe beside many other tests."""


class Asked(contextlib.AbstractContextManager["Asked"]):
    """A browser with the page's cookie."""

    def __init__(self, url: str) -> None:
        self.url, (self.base, self.token) = url, url.split("/?token=")
        self.client = httpx.Client(base_url=self.base, headers=HEADER, timeout=60.0)
        welcome = self.client.get("/", params={"token": self.token})
        assert welcome.status_code == 200, welcome.text

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def get(self, path: str) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **body: Any) -> httpx.Response:
        """``start`` stands for ``from``, which is a word of Python's."""
        if "start" in body:
            body["from"] = body.pop("start")
        return self.client.post(path, json=body)

    def ask(self, start: Any = "recommended", **changes: Any) -> Any:
        answer = self.post("/api/ask", start=start, changes=changes)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def order(self, kind: str, start: Any = "recommended", **further: Any) -> str:
        answer = self.post("/api/jobs", kind=kind, start=start, **further)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["job"])

    def job(self, id_: str) -> Any:
        return next(job for job in self.get("/api/jobs")["jobs"] if job["id"] == id_)

    def waited(self, id_: str, until: Callable[[Any], bool] | None = None) -> Any:
        """The job, once it has ended, or once something is true of it."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            job = self.job(id_)
            if job["state"] not in ("waiting", "working") or (until is not None and until(job)):
                return job
            time.sleep(0.1)
        raise AssertionError(f"still {job}")

    def done(self, id_: str) -> Any:
        job = self.waited(id_)
        assert job["state"] == "done", job
        return job


@contextlib.contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Asked]]:
    """``autoselect explore`` in a process of its own, and a browser."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command(folder, *options), text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:"), process.communicate(timeout=SECONDS)
            with Asked(url) as asked:
                yield process, asked
        finally:
            process.kill()


def command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "autoselect", "explore", str(folder), "--no-browser", *options]
