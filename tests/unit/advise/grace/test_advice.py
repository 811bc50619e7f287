"""The advice from real Delta tables: late ledger, batches, audits, retention."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.unit.advise.grace.planted import WAITS_MS, misses_of, planted, with_misses
from tests.unit.serve.written_streams import WrittenStream, recorded_ms

from recount.advise.grace_advice import advice
from recount.advise.workload import workload

NOW_MS = recorded_ms(10)
MIN, H = 60_000, 3_600_000


def advised(stream: WrittenStream, **given: str) -> dict[str, Any]:
    options = {name: [text] for name, text in given.items()}
    return advice(stream.tables, stream.topology, workload(stream.topology, **options), NOW_MS, measures_rates=False)


@pytest.fixture
def hundred(tmp_path: Path) -> WrittenStream:
    return planted(tmp_path)


def test_each_step_says_what_it_saves_and_costs(hundred: WrittenStream) -> None:
    found = advised(hundred, rate="orders=20", keys="region=100")
    [operator] = found["operators"]
    assert (operator["records"], operator["results"], operator["waits_ms"]) == (100, 100, WAITS_MS)
    names = ("added_ms", "records", "results", "delay_ms")
    saved = [tuple(step[name] for name in names) for step in operator["steps"]]
    assert saved == [(45_000, 50, 50, 45_000), (2 * MIN, 90, 90, 2 * MIN), (3 * H, 100, 100, 3 * H)]
    # 100 keys x (ceil((5 min + 5 s + 3 h) / 5 min) + 1) windows, as many results, and the clock
    states = [found["state"], *(step["state"] for step in operator["steps"])]
    assert [round(state["rows"]) for state in states] == [605, 605, 605, 7_805]
    assert states[-1]["bytes"] == pytest.approx(13 * states[0]["bytes"], rel=0.01)
    assert operator["recommendation"]["added_ms"] == 2 * MIN


def test_a_miss_counts_once_as_the_newest_audit_says_it(hundred: WrittenStream) -> None:
    misses = misses_of(hundred)
    hundred.audit(2)
    with_misses(hundred, "night-2", misses[:10])
    hundred.audit(3)
    # of one it turned out later that another late record is missing as well, which needs hours
    [late] = misses[-1].late
    later = replace(misses[0], late=(*misses[0].late, late), late_records=2)
    with_misses(hundred, "night-3", [later, *misses[1:]])
    with_misses(hundred, "an audit that is not complete", [replace(misses[0], key="elsewhere")])
    found = advised(hundred)
    assert (found["audits"], found["misses"]) == (2, 100)
    assert [step["misses"] for step in found["operators"][0]["steps"]] == [49, 89, 100]


def test_misses_that_do_not_say_what_they_need_are_said_to_be_so(hundred: WrittenStream) -> None:
    hundred.audit(3)
    first, second, third, *_ = misses_of(hundred)
    cut = replace(first, late_records=2)
    gone = replace(second, late=("orders-0@999999 +5 ms",))
    unread = replace(third, late=("customers-0@5 read after orders-0@7",))
    with_misses(hundred, "night-3", [cut, gone, unread])
    found = advised(hundred)
    assert (found["misses"], found["misses_untold"]) == (3, 3)
    assert {step["misses"] for step in found["operators"][0]["steps"]} == {0}


def test_the_ledger_counts_from_where_retention_has_removed(hundred: WrittenStream) -> None:
    assert advised(hundred)["counted_since_ms"] is None
    released = {"before_ms": 400_000, "cut": [0, 2], "offsets": {}}
    hundred.audit(2, released=released)
    hundred.audit(3)
    DeltaTable(hundred.tables.late(hundred.topology.name)).delete("stream_time_ms < 400000")
    found = advised(hundred)
    assert found["counted_since_ms"] == 400_000
    assert found["operators"][0]["records"] == 50


def test_late_records_of_a_batch_that_is_being_written_do_not_count_yet(hundred: WrittenStream) -> None:
    late = DeltaTable(hundred.tables.late(hundred.topology.name))
    late.update(updates={"recount_batch": "4"}, predicate="recount_batch = 3")
    assert advised(hundred)["operators"][0]["records"] == 90
