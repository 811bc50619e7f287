"""How the server of answers listens: a bound on each request, and no log that names keys."""

from __future__ import annotations

import math
import time

from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config

from recount.core.errors import Terminal, Transient
from recount.serve.refusals import refusal

MOST_AT_ONCE = 200
"""Connections; one more is answered with 503."""
MOST_BYTES = 64 * 1024
"""Of a request line with its headers; longer ones are answered with 400."""
_EXAMPLE = "50/second, or 1000/minute"


def listening(app: ASGIApp, host: str, port: int) -> Config:
    """``app`` at ``host`` and ``port``."""
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
        raise Terminal(
            "no such rate", given=text, expected=f"requests in a time: {_EXAMPLE}", remedy="write --rate 50/second"
        ) from error
    if rate.amount < 1:
        raise Terminal(
            "a rate that lets nobody ask",
            given=text,
            expected=f"at least 1: {_EXAMPLE}",
            remedy="write --rate 50/second",
        )
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
        error = Transient(
            "too many requests from one address",
            expected=f"at most {self._rate}",
            remedy=f"ask again in {wait_s} s, or start `recount serve` with another --rate",
        )
        return refusal(429, error, retry_after_s=wait_s)
