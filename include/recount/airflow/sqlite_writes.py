"""Requests that write, one after another, while Airflow's metadata database is SQLite.

Airflow 3.3 writes its audit log on the event loop of the api-server (``log_action``), and SQLite takes one writer at
a time. When another request of the same process has written and not yet committed, the event loop waits for that
commit, and the commit waits for the event loop. Both wait until SQLite's timeout; one is answered 500 then, and every
other process of Airflow has waited too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

_READING = ("GET", "HEAD", "OPTIONS")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class OneWriteAtATime:
    """ASGI middleware: a request that may write starts when the former one has been answered."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _READING:
            await self._app(scope, receive, send)
        else:
            async with self._turn:
                await self._app(scope, receive, send)
