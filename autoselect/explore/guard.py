"""Who may talk to the server: this machine's browser with the token, and nobody else. Knows no run.

A page of another site cannot read the token, but it can send requests to any port of this machine, and a name of its
own can lead there (DNS rebinding). So the names of the host and of the page that asks count as well.
"""

from __future__ import annotations

import hmac
import secrets

from starlette.datastructures import Headers, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = "127.0.0.1"
HEADER = "x-autoselect"
"""A page of another site can send it only after it has asked the server, which grants that to nobody."""

_READING = ("GET", "HEAD")


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(32)


class Guard:
    """Lets through what a request of the page may be, and says no in words to all else."""

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        """Guard an application that listens on a port of the loopback address."""
        self._app, self._token = app, token
        self._cookie = f"autoselect-{port}"
        self._hosts = {f"{name}:{port}" for name in (LOOPBACK, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # Nothing else is served: uvicorn closes it.
        refused = self._answer(scope)
        if refused is not None:
            await refused(scope, receive, send)
            return

        async def closed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_ALWAYS]
            await send(message)

        await self._app(scope, receive, closed)

    def _answer(self, scope: Scope) -> Response | None:
        """What a request gets that does not go on; None for those that do."""
        headers, method = Headers(scope=scope), scope["method"]
        if headers.get("host", "") not in self._hosts:
            return _refusal("This server is for the address that it printed.")
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self._hosts}:
            return _refusal("A page of another site asked. Only the page of this server may.")
        asked = QueryParams(scope.get("query_string", b""))
        if scope["path"] == "/" and method in _READING and "token" in asked:
            return self._welcome(asked["token"])
        if not self._knows(headers):
            return _refusal("The token is missing or wrong. Open the address that autoselect explore printed.")
        if method not in _READING and headers.get(HEADER) != "1":
            return _refusal(f"The header {HEADER.title()}: 1 is missing.")
        return None

    def _welcome(self, token: str) -> Response:
        """Keep the token in a cookie that no script reads, and take it out of the address.

        The next request comes from this answer, not from a page with a link to it: to those no strict cookie is sent.
        """
        if not _is_equal(token, self._token):
            return _refusal("The token is wrong. Open the address that autoselect explore printed.")
        response = HTMLResponse(_ON, headers={"cache-control": "no-store", "referrer-policy": "no-referrer"})
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
        return response

    def _knows(self, headers: Headers) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = bearer if scheme.lower() == "bearer" else cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        return _is_equal(given, self._token)


_ON = (
    '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>autoselect</title>'
    '<meta http-equiv="refresh" content="0; url=/">'
)

_ALWAYS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


def policy_of(nonce: str) -> str:
    """What a page may load: its own scripts, which have the nonce, and answers of this server."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _is_equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _refusal(words: str) -> Response:
    return JSONResponse({"error": words}, status_code=403, headers={"cache-control": "no-store"})
