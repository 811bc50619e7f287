"""Lookups by hand: which version a record finds, how long versions are kept, and who waits for whom."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.batch_proofs import a_proof
from tests.statuses import a_status
from tests.unit.engine.by_hand import LEFT, change, fed, held, left, rows, run
from tests.unit.engine.random_flows import TOPICS

from recount.declare.flow import stream
from recount.engine.driver.stream_query import BatchProgress
from recount.engine.driver.stream_reports import progressed
from recount.engine.exchange.work import BatchResult

RECORDS, TABLE = LEFT.select("ln"), stream(TOPICS["table"]).to_table().select("tn")
LEFT_LOOKUP, ON_ARRIVAL = RECORDS.left_join_table(TABLE), RECORDS.left_join_table(TABLE, as_of="arrival")
HISTORY = RECORDS.left_join_table(TABLE, history="9 ms")
WITH_GRACE = RECORDS.left_join_table(TABLE, grace="70 ms", history="9 ms")


def test_a_version_that_no_record_can_ask_for_any_more_is_forgotten_and_the_newest_before_that_is_not() -> None:
    #  table   10 ── 20 ── 30        left   29: 20 is the newest at 29 - 9; 28 still finds it, and so does 1
    engine = run(HISTORY, [change(at, at, partition=partition) for at in (10, 20, 30) for partition in (0, 1)], left=2)
    for at, many in ((28, 3), (29, 2)):
        assert held(engine)[-1]["table"] == 3
        assert held(fed(engine, [left(at), left(at, partition=1)]))[-1]["table"] == many
    engine.restart()
    assert [n for (n,) in rows(fed(engine, [left(1), left(20), left(30)]), "tn")][-3:] == [20, 20, 30]


def test_what_a_waiting_record_asks_for_is_kept_until_it_leaves() -> None:
    #  left   8, which waits for 78        table   1 ── 5 ── 50 ── 60: now 51 is the history's end, but 8 asks for 5
    two = {"left": 2, "table": 2}
    engine = run(WITH_GRACE, [change(1, 1), change(5, 5), left(8), left(200, partition=1)], **two)
    fed(engine, [left(200), change(50, 50), change(60, 60), change(60, 60, partition=1)])
    assert rows(engine, "tn") == [] and held(engine)[-1]["table"] == 3
    fed(engine, [change(120, 120), change(120, 120, partition=1)])
    assert rows(engine, "tn") == [(5,)] and held(engine)[-1]["table"] == 2


@pytest.mark.parametrize("kind", ["left", "inner"])
def test_a_lookup_counts_the_rows_that_asked_and_those_that_found_none(kind: str) -> None:
    lookup = LEFT_LOOKUP if kind == "left" else RECORDS.join_table(TABLE)
    asking = [left(6, key=key) for key in (b"a", b"bob", b"cy")]
    [first] = run(lookup, [change(5, 1), *asking]).computed
    name = f"{kind} lookup in table"
    assert first.lookups == {name: (3, 2)}
    results = [BatchResult(proof=a_proof(0), kafka_ms=0, delta_ms=0, lookups=first.lookups)] * 2
    both = replace(results[1].after(results[0]), newer_tables={name: "table is newer"})
    assert both.worst_lookup == (name, 6, 4)
    progress = BatchProgress(batch=1, records=8, records_per_second=1.0, duration_ms=1, lags=None)
    status = progressed(a_status(), progress, both)
    assert (status.lookup, status.lookup_cause) == (name, "table is newer")
