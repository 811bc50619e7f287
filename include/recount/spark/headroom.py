"""Whether memory is left for one more batch, so that a stream ends with an error and not by the system's hand."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from recount.core.errors import Terminal
from recount.spark.driver_memory import DriverMemory, resident

_LOG = logging.getLogger(__name__)
_LOOKED_AT = 3
"""The last batches, most of which must have taken more than is left."""
_SAMPLE_S = 0.2
_PATIENCE_S = 30.0
_TOLD = 5
"""States that an error names, the largest first."""


class Headroom:
    """Measures by how much the driver grows in each batch, and refuses the next where less than that is left.

    ``now`` is the memory as the system tells it, ``grown`` what the driver's Python, which holds the state, has of it.
    What two of the last three batches took at least, the next one takes: no other forecast stops a stream. Beyond a
    limit of its own it ends at once; where others use the memory too, only if that stays so for ``patience_s``.
    """

    def __init__(
        self,
        now: Callable[[], DriverMemory] = DriverMemory.now,
        grown: Callable[[], int] = resident,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._now, self._grown, self._patience_s = now, grown, patience_s
        self._took: deque[int] = deque(maxlen=_LOOKED_AT)

    def require(self, held: Callable[[], Mapping[str, int]]) -> None:
        """Raise ``Terminal`` unless a batch like the last ones fits; called when none is at work.

        ``held`` says how many rows are kept, by what keeps them: an error names it.
        """
        memory = self._now()
        if self._suffices(memory):
            return
        _LOG.warning("memory is short: %s, the next batch takes %s", memory, self._needed)
        gc.collect()
        pa.default_memory_pool().release_unused()
        deadline_s = time.monotonic() + self._patience_s
        while not self._suffices(memory := self._now()):
            if memory.is_own or time.monotonic() >= deadline_s:
                raise self._refusal(memory, held())
            time.sleep(self._patience_s / 30)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Around each batch."""
        before, over = self._grown(), threading.Event()
        peak = before

        def sample() -> None:
            nonlocal peak
            while not over.wait(_SAMPLE_S):
                peak = max(peak, self._grown())

        sampling = threading.Thread(target=sample, name="headroom", daemon=True)
        sampling.start()
        try:
            yield
        finally:
            over.set()
            sampling.join()
        self._took.append(max(peak, self._grown()) - before)

    @property
    def _needed(self) -> int:
        return sorted(self._took)[_LOOKED_AT // 2] if len(self._took) == _LOOKED_AT else 0

    def _suffices(self, memory: DriverMemory) -> bool:
        # nothing at all left: below a limit of its own a driver can go on like that, and must not
        return memory.left is None or memory.left >= max(self._needed, 1)

    def _refusal(self, memory: DriverMemory, held: Mapping[str, int]) -> Terminal:
        rows = sorted(held.items(), key=lambda state: -state[1])[:_TOLD]
        kept = ", ".join(f"{name} {count:,}" for name, count in rows if count) or "none"
        said = [
            f"{_mib(memory.left)} left of {_mib(memory.limit)}",
            f"{_mib(self._grown())} held by Python in the driver",
            f"at least {_mib(self._needed)} more taken by most of the last {len(self._took)} batches",
            f"rows kept: {kept}",
        ]
        return Terminal(
            "no memory is left for another batch",
            given="; ".join(said),
            expected="as much as most of the last batches took",
            remedy="give the driver more memory, smaller batches (--max-offsets), or keep less: shorter windows, join "
            "intervals and graces; nothing is lost, the stream goes on after its last batch",
        )


def _mib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**20:,.0f} MiB"
