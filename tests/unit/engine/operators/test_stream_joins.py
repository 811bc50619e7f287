"""Joins of two streams: the engine's matches, lonely rows, late ledger and fates are the interpreter's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from tests.unit.engine.operators.feeding import (
    LEFT,
    PARTITIONS,
    RIGHT,
    Event,
    assert_same,
    closing,
    cut,
    cuts,
    fed,
    interpreted,
    keyed,
    law,
    logs,
    read_by,
    restarts,
    topics,
    topology,
)

from recount.declare.expressions import col
from recount.declare.schema import LONG, STRING

BOUNDS = {"before": "5 ms", "after": "10 ms", "grace": "3 ms"}
left, right = keyed(LEFT), keyed(RIGHT)
twice = left.flat_map(lambda row: [{"n": row["l"]}, {"n": row["l"]}], n=LONG)
rekeyed = left.flat_map(lambda row: [{"w": row["word"]}, {"w": None}], w=STRING).select_key(k2=col("w"))
JOINS = {
    "inner": topology(left.join(right, **BOUNDS)),
    "left": topology(left.left_join(right, **BOUNDS)),
    "outer": topology(left.outer_join(right, **BOUNDS)),
    "of rows made of one record": topology(twice.outer_join(right, **BOUNDS)),
    "of rows some of which have no key": topology(rekeyed.outer_join(right, **BOUNDS)),
    "of a stream with a part of itself": topology(
        left.left_join(left.filter(col("l") > 1).select(m=col("l")), before="0 ms", after="10 ms", grace="0 ms")
    ),
    "of a join": topology(
        left.left_join(right, **BOUNDS).outer_join(
            left.filter(col("l") > 1).select(m=col("l")), before="7 ms", after="0 ms", grace="2 ms"
        )
    ),
}


@pytest.mark.parametrize("name", JOINS)
@law
@given(log=logs, at=cuts, again=restarts)
def test_the_engine_joins_what_the_interpreter_joins_however_the_log_is_cut(
    name: str, log: Sequence[Event], at: Sequence[int], again: frozenset[int]
) -> None:
    join = JOINS[name]
    # A keyless record moves the clock of the second join and not that of the first, so that the two are out of step.
    read = [e for e in read_by(join, log) if e.key is not None or name != "of a join"]
    end = closing(*topics(join))
    assert_same(fed(join, [*cut(read, at), end], again), interpreted(join, [*read, *end]))


@pytest.mark.parametrize("name", JOINS)
def test_nothing_is_held_for_good(name: str) -> None:
    join = JOINS[name]
    log = [Event(at, "a", {"l": 2, "word": "a"}, at % 2, topic) for at in range(30) for topic in topics(join)]
    running = fed(join, [log, closing(*topics(join))])
    assert sum(running.held().values()) <= 4 * PARTITIONS < len(log)


def test_an_idle_partition_that_speaks_again_still_finds_its_partners() -> None:
    log = [Event(0, "a", {"l": 1}), Event(50, "b", {"l": 2}, 1), Event(0, "c", {"r": 1}, 0, "right")]
    running = fed(JOINS["inner"], [log])
    assert running.held() == {"left": 2, "right": 1}
    running.batch([Event(90, "b", {"r": 1}, 1, "right"), Event(80, "d", {"l": 1}), Event(3, "a", {"r": 5}, 0, "right")])
    assert [(key, at) for key, _, at, _ in running.written] == [("a", 3)]
