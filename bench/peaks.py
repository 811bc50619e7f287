"""The highest resident memory that each process of a driver ever had, as the kernel noted it (VmHWM)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import psutil

from bench.processes import ROLES, Role, role_of
from bench.sampling import Sampling


class Peaks(Sampling):
    """Reads the peaks of a driver's processes until it ends; a context manager. Pages that are shared count in each."""

    interval_s = 0.2

    def __init__(self, pid: int) -> None:
        super().__init__()
        self._pid = pid
        self._highest = dict.fromkeys(ROLES, 0)

    @property
    def bytes_of(self) -> Mapping[Role, int]:
        """The peaks so far of the processes of each role that ran at one time, added up, where they were highest."""
        return self._highest

    def sample(self) -> None:
        """Read the peak of each process that is there."""
        found = dict.fromkeys(ROLES, 0)
        with contextlib.suppress(psutil.NoSuchProcess):
            driver = psutil.Process(self._pid)
            for process in (driver, *filter(_has_memory_of_its_own, driver.children(recursive=True))):
                self._read(process, found)
        self._highest = {role: max(self._highest[role], peak) for role, peak in found.items()}

    def _read(self, process: psutil.Process, found: dict[Role, int]) -> None:
        with contextlib.suppress(psutil.NoSuchProcess, OSError, StopIteration):
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            peak = next(int(line.split()[1]) * 1_024 for line in status if line.startswith("VmHWM"))
            found[role_of(process)] += peak


def _has_memory_of_its_own(process: psutil.Process) -> bool:
    """Whether it is more than a copy, which until it becomes another program has the peak of the one that started it.

    Spark's Python workers stay copies.
    """
    with contextlib.suppress(psutil.Error):
        parent = process.parent()
        return role_of(process) == "workers" or parent is None or process.exe() != parent.exe()
    return False
