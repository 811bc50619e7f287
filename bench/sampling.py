"""Something looked at again and again while other work runs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self


class Sampling(ABC):
    """A context manager that calls ``sample`` in a thread of its own, every ``interval_s``, until it is left."""

    interval_s: float

    def __init__(self) -> None:
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()

    @abstractmethod
    def sample(self) -> None:
        """Look once."""

    def _run(self) -> None:
        while not self._left.wait(self.interval_s):
            self.sample()
