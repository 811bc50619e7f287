"""The server of answers as it listens: a bound on each request, a token, HTTP codes, no log that names keys.

The token comes from a file or the environment, never from a command line. 400 is a question that means nothing, 503
what may go by, 409 what does not.
"""

import json
import math
import re
import secrets
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config

from recount.runtime.errors import RecountError, Terminal, Transient
from recount.runtime.settings import TOKEN_VARIABLE
from recount.runtime.times import NoTime
from recount.serve.asked_sink import BadQuestion

ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": ["string", "null"]} for name in ("error", "given", "expected", "remedy")},
    "required": ["error", "given", "expected", "remedy"],
}
_KNOWN_TO_HTTP = {
    404: ("no such path", "a path of /openapi.json", "GET /streams lists the streams and their sinks"),
    405: ("no such method", "GET", "ask with GET"),
}
MOST_AT_ONCE = 200
"""Connections; one more is answered with 503."""
MOST_BYTES = 64 * 1024
"""Of a request line with its headers; longer ones are answered with 400."""
_EXAMPLE = "50/second, or 1000/minute"
_TOKEN = re.compile(r"[\x21-\x7e]{16,512}")
_MAKE_ONE = "(umask 077; python -c 'import secrets; print(secrets.token_urlsafe(32))' > FILE)"


def refusal(status: int, error: RecountError, *, retry_after_s: int = 1) -> Response:
    """``error`` as a response; ``retry_after_s`` is given where a retry can help."""
    said = {
        "error": error.what,
        "given": None if error.given is None else str(error.given),
        "expected": error.expected or None,
        "remedy": error.remedy or None,
    }
    again = {"Retry-After": str(retry_after_s)}
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: again, 503: again}.get(status)
    return Response(json.dumps(said), status, headers, "application/json")


def of_error(_: Request, error: Exception) -> Response:
    """The response to an error of ours."""
    assert isinstance(error, RecountError)
    is_bad = isinstance(error, BadQuestion | NoTime)
    return refusal(400 if is_bad else 503 if isinstance(error, Transient) else 409, error)


def of_http(request: Request, error: Exception) -> Response:
    """The response to what the router refuses."""
    assert isinstance(error, HTTPException)
    what, expected, remedy = _KNOWN_TO_HTTP.get(error.status_code, (str(error.detail), "", ""))
    given = f"{request.method} {request.url.path}"[:200]
    return refusal(error.status_code, Terminal(what, given=given, expected=expected, remedy=remedy))


def listening(app: ASGIApp, host: str, port: int) -> Config:
    return Config(
        app,
        host=host,
        port=port,
        http="h11",
        h11_max_incomplete_event_size=MOST_BYTES,
        ws="none",
        lifespan="off",
        log_config=None,
        # a path has keys in it
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_AT_ONCE,
        timeout_graceful_shutdown=10,
    )


def rate_of(text: str) -> RateLimitItem:
    """``text`` as a rate; raises ``Terminal`` where it is none."""
    try:
        rate = parse(text)
    except ValueError as error:
        raise Terminal.of("no-such-rate", given=text, example=_EXAMPLE) from error
    if rate.amount < 1:
        raise Terminal.of("rate-of-nobody", given=text, example=_EXAMPLE)
    return rate


class LimitRate:
    """Hands on ``rate`` requests of each address, and answers more of them with 429 and when to ask again.

    Refused requests do not count: who asks too often is answered as often as the rate says.
    """

    def __init__(self, app: ASGIApp, rate: RateLimitItem) -> None:
        self._app, self._rate = app, rate
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            address = (scope.get("client") or ("unknown", 0))[0]
            if not self._limiter.hit(self._rate, address):
                free_s = self._limiter.get_window_stats(self._rate, address).reset_time - time.time()
                await self._refused(max(1, math.ceil(free_s)))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refused(self, wait_s: int) -> ASGIApp:
        error = Transient.of("too-many-requests", rate=self._rate, wait_s=wait_s)
        return refusal(429, error, retry_after_s=wait_s)


def token_of(file: Path | None, environ: Mapping[str, str]) -> str:
    """The token in ``file`` (None: in the environment), without white space around it; raises ``Terminal``."""
    if file is None and TOKEN_VARIABLE not in environ:
        raise Terminal.of("no-token", variable=TOKEN_VARIABLE, command=_MAKE_ONE)
    token = (environ[TOKEN_VARIABLE] if file is None else _read(file)).strip()
    if not _TOKEN.fullmatch(token):
        raise Terminal.of(
            "token-unfit", given=f"{len(token)} characters in {file or TOKEN_VARIABLE}", command=_MAKE_ONE
        )
    return token


def _read(file: Path) -> str:
    try:
        mode, text = stat.S_IMODE(file.stat().st_mode), file.read_text(errors="replace")
    except OSError as error:
        raise Terminal.of("token-unreadable", given=f"{file}: {error.strerror}", command=_MAKE_ONE) from error
    if mode & 0o077:
        raise Terminal.of("token-readable-by-others", given=f"{file}, mode {mode:o}", file=file)
    return text


class RequireToken:
    """Hands on what comes with the token, and answers anything else with 401, whatever its path is."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_known(scope):
            await refusal(401, Terminal.of("who-asks"))(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(b" ")
        return scheme.lower() == b"bearer" and secrets.compare_digest(token.strip(), self._expected)
