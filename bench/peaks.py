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
        self._seen: dict[int, tuple[Role, int]] = {}

    @property
    def bytes_of(self) -> Mapping[Role, int]:
        """The peaks of all processes of each role, added up: they need not have been at one time."""
        return {role: sum(peak for one, peak in self._seen.values() if one == role) for role in ROLES}

    def sample(self) -> None:
        """Read the peak of each process that is there."""
        with contextlib.suppress(psutil.NoSuchProcess):
            driver = psutil.Process(self._pid)
            for process in (driver, *driver.children(recursive=True)):
                self._read(process)

    def _read(self, process: psutil.Process) -> None:
        with contextlib.suppress(psutil.NoSuchProcess, OSError, StopIteration):
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            peak = next(int(line.split()[1]) * 1_024 for line in status if line.startswith("VmHWM"))
            self._seen[process.pid] = role_of(process), peak
