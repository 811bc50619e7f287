"""How much memory a driver uses and how much is left to it, so that it can say so before the system ends it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


@dataclass(frozen=True, kw_only=True)
class DriverMemory:
    """Bytes. ``used`` is the resident memory of this process, in which the state of a stream lies.

    ``limit`` is that of the container where there is one, else of the machine, and ``left`` what of it nobody uses;
    beyond it the system kills a process, without a word. None where the system does not tell.
    """

    used: int | None
    left: int | None
    limit: int | None

    @classmethod
    def now(cls, proc: Path = _PROC, cgroup: Path = _CGROUP) -> DriverMemory:
        """As of this moment; reads three small files."""
        used = _kilobytes(proc / "self" / "status", "VmRSS")
        machine = _kilobytes(proc / "meminfo", "MemTotal")
        left = _kilobytes(proc / "meminfo", "MemAvailable")
        container = _number(cgroup / "memory.max")
        if container is None or (machine is not None and container >= machine):
            return cls(used=used, left=left, limit=machine)
        anonymous = _field(cgroup / "memory.stat", "anon")
        free = None if anonymous is None else max(0, container - int(anonymous))
        return cls(used=used, left=free, limit=container)


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
