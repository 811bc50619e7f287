"""How many streams of one driver process a batch at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

Turn = AbstractContextManager[None]


class Turns:
    """Lets ``most`` batches be processed at once: more would not be done sooner, and take memory at the same time.

    Nobody waits longer than ``patience_s``: a batch that hangs holds up no other stream for good.
    """

    def __init__(self, most: int, patience_s: float = 120.0) -> None:
        self._free = threading.Semaphore(most)
        self._patience_s = patience_s

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Around a batch."""
        has_turn = self._free.acquire(timeout=self._patience_s)
        try:
            yield
        finally:
            if has_turn:
                self._free.release()


def at_once() -> Turn:
    """The turn of a stream that has its driver for itself."""
    return nullcontext()
