"""How the server of answers listens: a bound on each request, and no log that names keys."""

from __future__ import annotations

from starlette.types import ASGIApp
from uvicorn import Config

MOST_AT_ONCE = 200
"""Connections; one more is answered with 503."""
MOST_BYTES = 64 * 1024
"""Of a request line with its headers; longer ones are answered with 400."""


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
