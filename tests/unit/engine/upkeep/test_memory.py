"""A driver knows what it uses and what is left, and refuses a batch that would take more."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from recount.engine.upkeep.memory import DriverMemory, Headroom, resident, taken
from recount.runtime.errors import Terminal

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


def test_the_machine_or_a_container_with_less_is_the_limit(machine: tuple[Path, Path]) -> None:
    of_machine = DriverMemory(used=2 * GIB, left=10 * GIB, limit=16 * GIB)
    assert DriverMemory.now(*machine) == of_machine
    (machine[1] / "memory.max").write_text("max\n")
    assert DriverMemory.now(*machine) == of_machine
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
    # the machine has less left
    assert DriverMemory.now(*machine).within(taken() + 11 * GIB) == DriverMemory.now(*machine)


def test_a_system_that_does_not_tell_is_no_error_and_refuses_nothing(tmp_path: Path) -> None:
    after_batches(Machine(None), [900 * MIB] * 3).require(lambda: HELD)
    assert DriverMemory.now(tmp_path, tmp_path) == DriverMemory(used=None, left=None, limit=None)


MIB = 2**20
HELD = {"operator 2 StreamStreamJoin left": 7, "operator 2 StreamStreamJoin right": 1_234_567, "time of clock": 0}


class Machine:
    """Memory as a test says: ``left`` one after the other, the last for ever; ``size`` is that of the driver."""

    def __init__(self, *left: int | None, is_own: bool = False) -> None:
        self.left, self._is_own = list(left), is_own
        self.size = 100 * MIB

    def now(self) -> DriverMemory:
        left = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return DriverMemory(used=self.size, left=left, limit=1_000 * MIB, is_own=self._is_own)


def after_batches(machine: Machine, took: Sequence[int], patience_s: float = 0.0) -> Headroom:
    headroom = Headroom(machine.now, lambda: machine.size, patience_s)
    for size in took:
        with headroom.measured():
            machine.size += size
    return headroom


def refusal(headroom: Headroom) -> Terminal:
    with pytest.raises(Terminal) as caught:
        headroom.require(lambda: HELD)
    return caught.value


def test_what_two_of_the_last_three_batches_took_at_least_must_be_left() -> None:
    took = [500 * MIB, 40 * MIB, 30 * MIB, 50 * MIB]
    after_batches(Machine(40 * MIB), took).require(lambda: HELD)
    said = refusal(after_batches(Machine(40 * MIB - 1), took))
    assert "40 MiB left of 1,000 MiB" in str(said.given)
    assert "at least 40 MiB more" in str(said.given)
    kept = "rows kept: operator 2 StreamStreamJoin right 1,234,567, operator 2 StreamStreamJoin left 7"
    assert str(said.given).endswith(kept)
    assert "--max-offsets" in said.remedy


@pytest.mark.parametrize("took", [[], [900 * MIB], [900 * MIB, 900 * MIB], [900 * MIB, 0, 900 * MIB, 0]])
def test_fewer_than_three_batches_or_one_large_one_of_three_foretell_nothing(took: list[int]) -> None:
    after_batches(Machine(1), took).require(lambda: HELD)


def test_memory_that_others_give_back_in_time_is_waited_for() -> None:
    after_batches(Machine(MIB, MIB, MIB, 100 * MIB), [50 * MIB] * 3, patience_s=0.5).require(lambda: HELD)
    refusal(after_batches(Machine(MIB), [50 * MIB] * 3, patience_s=0.1))


def test_a_limit_of_its_own_is_not_waited_for_nor_passed_though_batches_take_nothing() -> None:
    refusal(after_batches(Machine(0, 0, 500 * MIB, is_own=True), [], patience_s=0.5))
    after_batches(Machine(1, is_own=True), []).require(lambda: HELD)


def test_a_batch_is_measured_at_its_peak() -> None:
    """Each allocates 300 MiB, and gives them back before it ends."""
    headroom = Headroom(lambda: DriverMemory(used=0, left=60 * MIB, limit=0), patience_s=0)
    for _ in range(3):
        with headroom.measured():
            block = np.ones(300 * MIB, np.int8)
            time.sleep(0.2)
            del block
    assert "rows kept: " in str(refusal(headroom).given)


_A_STATE_THAT_GROWS = """
from pathlib import Path
import polars as pl
from recount.runtime.errors import Terminal
from recount.engine.upkeep.memory import DriverMemory, taken
from recount.engine.upkeep.memory import Headroom
from recount.engine.state.keyed_rows import KeyedRows
state = KeyedRows({"id": pl.Int64(), "text": pl.String()}, ["id"])
limit = taken() + 400 * 2**20
headroom = Headroom(lambda: DriverMemory.now().within(limit))
for batch in range(1_000):
    try:
        headroom.require(lambda: {"a state": state.height})
    except Terminal as error:
        [peak] = [line.split()[1] for line in Path("/proc/self/status").open() if line.startswith("VmHWM")]
        print(batch, limit, int(peak) * 1024, error.given)
        break
    with headroom.measured():
        ids = pl.int_range(batch * 100_000, (batch + 1) * 100_000, eager=True).alias("id")
        texts = ("a text that is two hundred bytes long" * 5 + ids.cast(pl.String)).alias("text")
        state.put(pl.DataFrame([ids, texts]))
"""


def test_a_state_that_grows_ends_with_an_error_before_it_exceeds_its_limit() -> None:
    """Each batch adds 20 MiB to it, and now and then copies a part."""
    program = [sys.executable, "-c", _A_STATE_THAT_GROWS]
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=100)
    batch, limit, peak, said = done.stdout.split(maxsplit=3)
    assert int(batch) > 3
    assert int(peak) < int(limit) + 20 * MIB
    assert f"a state {int(batch) * 100_000:,}" in said
