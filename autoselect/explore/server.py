"""The routes of the page: JSON in and out. Answers are worked out in threads, so that the server stays awake."""

from __future__ import annotations

import secrets

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from autoselect.errors import AutoselectError
from autoselect.explore.asking import Cheapest, Question, read
from autoselect.explore.guard import Guard, policy_of
from autoselect.explore.page import page_of
from autoselect.explore.session import Session

_MOST_BYTES = 4_000_000
"""Of a question: a recipe of a thousand nodes has 100 kB."""


def application(session: Session, *, token: str, port: int) -> Starlette:
    """What is served.

    Args:
        session: Answers.
        token: Who has it may ask.
        port: Of the loopback address.
    """
    routes = _Routes(session)
    return Starlette(
        routes=[
            Route("/", routes.page, methods=["GET"]),
            Route("/api/run", routes.run, methods=["GET"]),
            Route("/api/ask", routes.ask, methods=["POST"]),
            Route("/api/cheapest", routes.cheapest, methods=["POST"]),
        ],
        middleware=[Middleware(Guard, token=token, port=port)],
        exception_handlers={AutoselectError: _mistake, HTTPException: _unknown, Exception: _bug},
    )


class _Routes:
    def __init__(self, session: Session) -> None:
        self._session = session

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


async def _body(request: Request) -> bytes:
    """The body of a request.

    Raises:
        HTTPException: If it is larger than any question.
    """
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > _MOST_BYTES:
            raise HTTPException(413, f"A question has at most {_MOST_BYTES:,} bytes.")
    return bytes(found)


def _mistake(_request: Request, exc: Exception) -> Response:
    return JSONResponse({"error": str(exc)}, status_code=400)


def _unknown(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    return JSONResponse({"error": exc.detail}, status_code=exc.status_code)


def _bug(_request: Request, exc: Exception) -> Response:
    # Starlette raises it once more, and uvicorn logs it.
    return JSONResponse({"error": f"{type(exc).__name__}: {exc}. This is a bug, please report it."}, status_code=500)
