"""A server of this process that listens at a real port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import uvicorn
from starlette.types import ASGIApp
from tests.eventually import eventually

from recount.profile.daemon import LOOPBACK, free_ports
from recount.serve.listening import listening


@contextmanager
def listened(app: ASGIApp) -> Iterator[tuple[str, int]]:
    """Where ``app`` listens, as `recount serve` lets it listen."""
    [port] = free_ports(1)
    server = uvicorn.Server(listening(app, LOOPBACK, port))
    thread = Thread(target=server.run)
    thread.start()
    assert eventually(lambda: server.started, expected=True, limit_s=60)
    yield LOOPBACK, port
    server.should_exit = True
    thread.join(30)
