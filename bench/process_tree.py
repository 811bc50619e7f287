"""What a process and all it started cost: processor time and memory, sampled while it runs."""

from __future__ import annotations

import contextlib

import psutil

from bench.sampling import Sampling


class ProcessTree(Sampling):
    """Samples a process tree twice a second; a context manager.

    CPU seconds include processes that ended, as of their last sample. Memory is the proportional set size, which counts
    a page that forked workers share once.
    """

    interval_s = 0.5

    def __init__(self, pid: int, *, memory: bool = True) -> None:
        super().__init__()
        self._root = psutil.Process(pid)
        self._looks_at_memory = memory
        self._cpu_s: dict[int, float] = {}
        self._peak_bytes = 0

    @property
    def cpu_s(self) -> float:
        """Processor seconds, user and system, until now."""
        self._look(memory=False)
        return sum(self._cpu_s.values())

    @property
    def peak_bytes(self) -> int:
        """The largest memory of the tree at any sample."""
        return self._peak_bytes

    def sample(self) -> None:
        """Look at processor time, and at memory unless that is left out: it takes milliseconds a process."""
        self._look(memory=self._looks_at_memory)

    def _look(self, *, memory: bool) -> None:
        total = 0
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in (self._root, *self._root.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    times = process.cpu_times()
                    self._cpu_s[process.pid] = times.user + times.system
                    total += process.memory_full_info().pss if memory else 0
        self._peak_bytes = max(self._peak_bytes, total)


def busy_s() -> float:
    """Processor seconds that the whole machine has spent on anything so far."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)
