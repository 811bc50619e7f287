"""What the join is held to is counted apart from it, and the memory of a driver by what the kernel noted."""

from __future__ import annotations

import subprocess
import sys
import time

from bench.join_memory import Side, pairs_of
from bench.join_program import CLICKS, SALES
from bench.peaks import Peaks

MIB = 2**20


def test_the_pairs_expected_are_those_that_trying_all_finds() -> None:
    left, right = Side(topic=CLICKS, field="click", records=3_000), Side(topic=SALES, field="sale", records=700)
    rows = [list(zip(side.keys.tolist(), side.times_ms.tolist(), strict=True)) for side in (left, right)]
    near = sum(key == other and abs(at_ms - then_ms) <= 5_000 for key, at_ms in rows[0] for other, then_ms in rows[1])
    assert pairs_of(left, right) == near > 0


def test_a_peak_counts_though_the_memory_was_given_back_between_two_looks() -> None:
    program = "block = bytearray(200 * 2**20); del block; print(flush=True); import time; time.sleep(30)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with Peaks(process.pid) as peaks:
            time.sleep(0.6)
        process.kill()
    assert 200 * MIB < peaks.bytes_of["driver"] < 260 * MIB
    assert peaks.bytes_of["JVM"] == 0
