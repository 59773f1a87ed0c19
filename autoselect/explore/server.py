"""The routes of the page: JSON in and out. Answers are worked out in threads, so that the server stays awake."""

from __future__ import annotations

import contextlib
import secrets

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from autoselect.errors import AutoselectError
from autoselect.explore.asking import Cheapest, Order, Question, read
from autoselect.explore.guard import Guard, policy_of
from autoselect.explore.jobs import Job, Jobs
from autoselect.explore.orders import Orders
from autoselect.explore.page import page_of
from autoselect.explore.session import Session

_MOST_BYTES = 4_000_000
"""The largest question: a recipe of a thousand nodes has 100 kB."""


def application(session: Session, jobs: Jobs, orders: Orders, *, token: str, port: int) -> Starlette:
    """What is served.

    Args:
        session: Answers.
        jobs: Works.
        orders: Makes jobs.
        token: Who has it may ask.
        port: Of the loopback address.
    """
    routes = _Routes(session, jobs, orders)
    return Starlette(
        routes=[
            Route("/", routes.page, methods=["GET"]),
            Route("/api/run", routes.run, methods=["GET"]),
            Route("/api/ask", routes.ask, methods=["POST"]),
            Route("/api/cheapest", routes.cheapest, methods=["POST"]),
            Route("/api/jobs", routes.order, methods=["POST"]),
            Route("/api/jobs", routes.jobs, methods=["GET"]),
            Route("/api/jobs/{id}", routes.stop, methods=["DELETE"]),
            Route("/api/jobs/{id}/file", routes.file, methods=["GET"]),
        ],
        middleware=[Middleware(Guard, token=token, port=port)],
        exception_handlers={AutoselectError: _mistake, HTTPException: _unknown, Exception: _bug},
    )


class _Routes:
    def __init__(self, session: Session, jobs: Jobs, orders: Orders) -> None:
        self._session, self._jobs, self._orders = session, jobs, orders

    async def page(self, _request: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        text = await run_in_threadpool(lambda: page_of(self._session.run(), nonce))
        return HTMLResponse(text, headers={"content-security-policy": policy_of(nonce)})

    async def run(self, _request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._session.run))

    async def ask(self, request: Request) -> Response:
        asked = read(Question, await _body(request))
        return JSONResponse(await run_in_threadpool(self._session.ask, asked))

    async def cheapest(self, request: Request) -> Response:
        asked = read(Cheapest, await _body(request))
        return JSONResponse(await run_in_threadpool(self._session.cheapest, asked))

    async def order(self, request: Request) -> Response:
        asked = read(Order, await _body(request))
        job = await run_in_threadpool(self._orders.take, asked)
        return JSONResponse({"job": job.id})

    async def jobs(self, _request: Request) -> Response:
        await run_in_threadpool(self._look)
        return JSONResponse({"revision": self._session.revision, "jobs": self._jobs.rows()})

    def _look(self) -> None:
        """See whether another process has changed the run; a job of this one is seen at its end."""
        if not self._jobs.are_busy:
            with contextlib.suppress(AutoselectError):  # It is at work there: what was read stays.
                self._session.refresh()

    async def stop(self, request: Request) -> Response:
        job = self._job(request)
        await run_in_threadpool(self._jobs.stop, job)
        return JSONResponse({"job": job.id})

    async def file(self, request: Request) -> Response:
        job = self._job(request)
        if job.file is None or not job.row()["file"]:
            raise HTTPException(404, "This job has made no file.")
        return FileResponse(job.file, filename=job.file.name, media_type="application/octet-stream")

    def _job(self, request: Request) -> Job:
        job = self._jobs.get(request.path_params["id"])
        if job is None:
            raise HTTPException(404, "There is no such job; the server may have been started again since.")
        return job


async def _body(request: Request) -> bytes:
    """The body of a request.

    Raises:
        HTTPException: If it is larger than any question.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            raise HTTPException(413, f"A question has at most {_MOST_BYTES:,} bytes.")
    return bytes(body)


def _mistake(_request: Request, exc: Exception) -> Response:
    return JSONResponse({"error": str(exc)}, status_code=400)


def _unknown(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    return JSONResponse({"error": exc.detail}, status_code=exc.status_code)


def _bug(_request: Request, exc: Exception) -> Response:
    # Starlette raises it once more, and uvicorn logs it.
    return JSONResponse({"error": f"{type(exc).__name__}: {exc}. This is a bug, please report it."}, status_code=500)
