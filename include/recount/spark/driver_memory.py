"""How much memory a driver uses and how much is left to it, so that it can say so before the system ends it."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


@dataclass(frozen=True, kw_only=True)
class DriverMemory:
    """Bytes. ``used`` is the resident memory of this process, in which the state of a stream lies.

    ``limit`` is that of the container where there is one, else of the machine, and ``left`` what of it nobody uses;
    beyond it the system kills a process, without a word. None where the system does not tell. ``is_own``: the limit
    is one that the driver was given for itself (``within``), and others have no share in it.
    """

    used: int | None
    left: int | None
    limit: int | None
    is_own: bool = False

    @classmethod
    def now(cls, proc: Path = _PROC, cgroup: Path = _CGROUP) -> DriverMemory:
        """As of this moment; reads three small files."""
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
    """The resident memory of the driver: Python, its JVM and the workers beside them; shared pages count in each."""
    here = psutil.Process()
    # spark-submit starts the JVM, and the JVM Python; without it Python starts the JVM
    root = here.parent() or here if "PYSPARK_GATEWAY_PORT" in os.environ else here
    total = 0
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
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
