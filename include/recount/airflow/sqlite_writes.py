"""Requests that write, one after another, while Airflow's metadata database is SQLite.

Airflow 3.3 writes its audit log on the event loop of the api-server (``log_action``), and SQLite takes one writer at
a time. When another request of the same process has written and not yet committed, the event loop waits for that
commit, and the commit waits for the event loop. Both wait until SQLite's timeout; one is answered 500 then, and every
other process of Airflow has waited too.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_READING = ("GET", "HEAD", "OPTIONS")
_PATIENCE_S = 20.0
"""Less than SQLite's timeout. A request that calls another of the same server is over only when that one is."""


class OneWriteAtATime:
    """ASGI middleware: a request that may write starts when the former one has been answered, or after 20 s.

    It takes its turn once its body is there: who sends half of one keeps nobody waiting.
    """

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._app = app
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _READING:
            await self._app(scope, receive, send)
            return
        body = [await receive()]
        while body[-1].get("more_body"):
            body.append(await receive())
        if body[-1]["type"] == "http.disconnect":
            return
        unread = iter(body)

        async def replay() -> Message:
            return next(unread, None) or await receive()

        has_turn = await self._wait()
        try:
            await self._app(scope, replay, send)
        finally:
            if has_turn:
                self._turn.release()

    async def _wait(self) -> bool:
        has_turn = False
        try:
            async with asyncio.timeout(_PATIENCE_S):
                has_turn = await self._turn.acquire()
        except TimeoutError:
            pass
        return has_turn
