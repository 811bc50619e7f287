"""A driver knows what it uses, and what is left before the system ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from recount.spark.driver_memory import DriverMemory

GIB = 2**30


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, Path]:
    """A machine of 16 GiB with 10 GiB left, on which this process holds 2 GiB; and a place for a container's limits."""
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    cgroup.mkdir()
    (proc / "self" / "status").write_text(f"Name:\tpython\nVmRSS:\t {2 * GIB // 1024} kB\n")
    (proc / "meminfo").write_text(f"MemTotal: {16 * GIB // 1024} kB\nMemAvailable: {10 * GIB // 1024} kB\n")
    return proc, cgroup


def test_without_a_container_the_machine_is_the_limit(machine: tuple[Path, Path]) -> None:
    assert DriverMemory.now(*machine) == DriverMemory(used=2 * GIB, left=10 * GIB, limit=16 * GIB)
    (machine[1] / "memory.max").write_text("max\n")
    assert DriverMemory.now(*machine).limit == 16 * GIB


def test_a_container_with_less_than_the_machine_is_the_limit(machine: tuple[Path, Path]) -> None:
    (machine[1] / "memory.max").write_text(f"{4 * GIB}\n")
    (machine[1] / "memory.stat").write_text(f"anon {3 * GIB}\nfile {GIB}\n")
    assert DriverMemory.now(*machine) == DriverMemory(used=2 * GIB, left=GIB, limit=4 * GIB)


def test_a_system_that_does_not_tell_is_no_error(tmp_path: Path) -> None:
    assert DriverMemory.now(tmp_path, tmp_path) == DriverMemory(used=None, left=None, limit=None)
