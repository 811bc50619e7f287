"""What running processes cost and hold, by what they are to a driver: its JVM, its Python, its workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import psutil

Role = Literal["JVM", "driver", "workers"]
ROLES: tuple[Role, ...] = ("JVM", "driver", "workers")


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Memory and open files of the processes of one role. Memory counts a page that forked workers share once."""

    memory_bytes: int = 0
    open_files: int = 0


def cpu_s(pids: Iterable[int]) -> float:
    """Processor seconds, user and system, of ``pids`` and what they started, if it runs or was waited for."""
    total = 0.0
    for process in _families(pids):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def footprints(pid: int) -> Mapping[Role, Footprint]:
    """The footprint of every role in a driver that was submitted as ``pid``."""
    found = dict.fromkeys(ROLES, Footprint())
    for process in _families([pid]):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            role, memory = role_of(process), process.memory_full_info().pss
            found[role] = Footprint(
                memory_bytes=found[role].memory_bytes + memory,
                open_files=found[role].open_files + process.num_fds(),
            )
    return found


def role_of(process: psutil.Process) -> Role:
    """What a process is to the driver that started it."""
    if process.name().startswith("java"):
        return "JVM"
    return "workers" if any("daemon" in word for word in process.cmdline()) else "driver"


def _families(pids: Iterable[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(pid)
            yield from (parent, *parent.children(recursive=True))
