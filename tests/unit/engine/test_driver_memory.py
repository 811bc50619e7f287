"""A driver knows what it uses, and what is left before the system ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from recount.engine.upkeep.memory import DriverMemory, resident, taken

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


def test_a_container_of_the_older_kind_of_control_groups_is_the_limit(machine: tuple[Path, Path]) -> None:
    older = machine[1] / "memory"
    older.mkdir()
    (older / "memory.limit_in_bytes").write_text(f"{4 * GIB}\n")
    (older / "memory.stat").write_text(f"cache {GIB}\ntotal_rss {3 * GIB}\n")
    assert DriverMemory.now(*machine) == DriverMemory(used=2 * GIB, left=GIB, limit=4 * GIB)
    (older / "memory.limit_in_bytes").write_text(f"{2**63 - 4096}\n")
    assert DriverMemory.now(*machine).limit == 16 * GIB


def test_a_limit_of_its_own_counts_what_the_driver_has_taken(machine: tuple[Path, Path]) -> None:
    held = taken()
    assert held >= resident() > 10 * 2**20
    memory = DriverMemory.now(*machine).within(held + GIB)
    assert memory.is_own and memory.limit == held + GIB
    assert memory.left is not None and abs(memory.left - GIB) < 2**26
    assert DriverMemory.now(*machine).within(2**20).left == 0


def test_where_the_machine_has_less_left_than_the_driver_s_own_limit_the_machine_counts(
    machine: tuple[Path, Path],
) -> None:
    assert DriverMemory.now(*machine).within(taken() + 11 * GIB) == DriverMemory.now(*machine)


def test_a_system_that_does_not_tell_is_no_error(tmp_path: Path) -> None:
    assert DriverMemory.now(tmp_path, tmp_path) == DriverMemory(used=None, left=None, limit=None)
