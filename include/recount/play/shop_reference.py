"""What the reference interpreter expects of every stream, found out while the demo goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from recount.core.topology import Topology
from recount.play.arrival import Arrival
from recount.play.expected_shop import Expected, expected


class ShopReference:
    """The interpreter at work on ``days``, one of ``topologies`` after the other, in a thread.

    A context manager: it begins on entry and tells ``say`` when it is done; on exit it gives up what it has not begun.
    """

    def __init__(
        self,
        topologies: Mapping[str, Topology],
        days: Sequence[Sequence[Arrival]],
        partitions: Mapping[str, int],
        say: Callable[[str], None],
    ) -> None:
        self._topologies, self._days, self._partitions, self._say = topologies, days, partitions, say
        self._thread = ThreadPoolExecutor(1, "reference interpreter")
        self._found: dict[str, Future[Expected]] = {}

    def __enter__(self) -> Self:
        for name, topology in self._topologies.items():
            self._found[name] = self._thread.submit(expected, topology, self._days, self._partitions)
        self._thread.submit(self._tell)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def of(self, stream: str) -> Expected:
        """What the interpreter has said of ``stream``, or raised; waits for it."""
        return self._found[stream].result()

    def _tell(self) -> None:
        if not any(found.exception() for found in self._found.values()):
            self._say(f"the reference interpreter has said what {len(self._found)} streams must hold")
