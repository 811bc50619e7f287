"""A batch is refused where what most of the last three took is not left, and for no other reason."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np
import pytest

from recount.engine.upkeep.memory import DriverMemory, Headroom
from recount.runtime.errors import Terminal

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


def test_the_error_names_what_keeps_most_rows_first() -> None:
    said = refusal(after_batches(Machine(MIB), [2 * MIB] * 3))
    kept = "rows kept: operator 2 StreamStreamJoin right 1,234,567, operator 2 StreamStreamJoin left 7"
    assert str(said.given).endswith(kept)
    assert "--max-offsets" in said.remedy


@pytest.mark.parametrize("took", [[], [900 * MIB], [900 * MIB, 900 * MIB], [900 * MIB, 0, 900 * MIB, 0]])
def test_fewer_than_three_batches_or_one_large_one_of_three_foretell_nothing(took: list[int]) -> None:
    after_batches(Machine(1), took).require(lambda: HELD)


def test_a_system_that_does_not_tell_refuses_nothing() -> None:
    after_batches(Machine(None), [900 * MIB] * 3).require(lambda: HELD)


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
            time.sleep(0.5)
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
