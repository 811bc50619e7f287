"""Memory of a driver, used and free: a stream ends with an error before the system ends the process."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pyarrow as pa

from recount.engine.exchange.part_hosts import is_executor, processes_of
from recount.runtime.errors import Terminal

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
_LOG = logging.getLogger(__name__)
_LOOKED_AT = 3
"""The last batches, most of which must have taken more than is left."""
_SAMPLE_S = 0.2
_PATIENCE_S = 30.0
_TOLD = 5
"""States that an error names, the largest first."""


@dataclass(frozen=True, kw_only=True)
class DriverMemory:
    """Bytes. ``used`` is the resident memory of this process, which holds the state of a stream.

    ``limit`` is that of the container where there is one, else of the machine, and ``left`` what of it nobody uses;
    beyond it the system kills a process, without a word. None where the system does not say. ``is_own``: the limit
    is one that the driver was given for itself (``within``), and others have no share in it.
    """

    used: int | None
    left: int | None
    limit: int | None
    is_own: bool = False

    @classmethod
    def now(cls, proc: Path = _PROC, cgroup: Path = _CGROUP) -> DriverMemory:
        """The memory at this moment; reads three small files."""
        used = _kilobytes(proc / "self" / "status", "VmRSS")
        machine = _kilobytes(proc / "meminfo", "MemTotal")
        left = _kilobytes(proc / "meminfo", "MemAvailable")
        container, anonymous = _number(cgroup / "memory.max"), _field(cgroup / "memory.stat", "anon")
        if container is None:
            older = cgroup / "memory"
            container = _number(older / "memory.limit_in_bytes")
            anonymous = _field(older / "memory.stat", "total_rss")
        if container is None or (machine is not None and container >= machine):
            return cls(used=used, left=left, limit=machine)
        free = None if anonymous is None else max(0, container - int(anonymous))
        return cls(used=used, left=free, limit=container)

    def within(self, limit: int) -> DriverMemory:
        """The same for a driver whose processes may together hold ``limit`` bytes."""
        left = max(0, limit - taken())
        if self.left is not None and self.left < left:
            return self
        return replace(self, left=left, limit=limit, is_own=True)


def resident() -> int:
    """The resident memory of this process now; 0 where the system does not tell."""
    try:
        return int((_PROC / "self" / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def taken() -> int:
    """The resident memory of the driver: Python, its JVM and the processes beside them; shared pages count in each."""
    here = psutil.Process()
    # spark-submit starts the JVM, and the JVM Python; without it Python starts the JVM
    root = here.parent() or here if "PYSPARK_GATEWAY_PORT" in os.environ else here
    family = (root, *root.children(recursive=True))
    pids = {process.pid for process in family}
    pids.update(pid for process in family if is_executor(process) for pid in processes_of(process))
    total = 0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += psutil.Process(pid).memory_info().rss
    return total


def _kilobytes(file: Path, name: str) -> int | None:
    said = _field(file, f"{name}:")
    return None if said is None else int(said) * 1_024


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _field(file: Path, name: str) -> str | None:
    """The first value of the line that begins with ``name``; None where there is none."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    return next((line.split()[1] for line in lines if line.split()[:1] == [name]), None)


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
        return Terminal.of("no-memory-for-a-batch", given="; ".join(said))


def _mib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**20:,.0f} MiB"
