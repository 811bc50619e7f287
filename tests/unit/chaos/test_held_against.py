"""The reckoning of a long run sees a result that is missing, doubled or wrong, and a batch that read offsets again."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.chaos.held_against import Interpreted, ranges_not_in_line, unequal
from tests.chaos.long_streams import ORDERS, revenue
from tests.chaos.order_desk import Sent

from recount.core.ledger import BatchProof, PartitionProof

[SINK] = revenue.sinks
NOW_MS = 10_000_000


def order(number: int, at_s: int, region: str = "EU", partition: int = 0) -> Sent:
    value = f'{{"order_id":"{number}","region":"{region}","amount":{number}.50}}'.encode()
    return Sent(ORDERS.name, partition, b"user", value, at_s * 1_000)


SENT = [
    order(1, 1),
    order(2, 2, "US"),
    Sent(ORDERS.name, 0, b"user", b"{broken", 3_000),
    *(order(9, 60, partition=partition) for partition in range(ORDERS.partitions)),
    order(3, 4),
]
"""Two windows that close, a bad record, and a late one; the last window stays open."""


def truth(sent: list[Sent]) -> Interpreted:
    return Interpreted(revenue, sent, NOW_MS)


def test_the_truth_has_results_late_and_bad_records() -> None:
    assert sorted(row[0] for row in truth(SENT).results(SINK)) == [b"EU", b"US"]
    assert [row[2] for row in truth(SENT).late] == [4]
    assert list(truth(SENT).bad) == [(ORDERS.name, 0, 2, "undecodable")]


@pytest.mark.parametrize("left_out", [0, 1])
def test_a_record_that_was_sent_and_not_counted_shows(left_out: int) -> None:
    less = [one for number, one in enumerate(SENT) if number != left_out]
    expected, actual = truth(SENT).results(SINK), truth(less).results(SINK)
    [difference] = unequal("results", expected, actual)
    assert difference.startswith("results: 1 missing, 0 surplus of 2")
    assert len(unequal("late", truth(SENT).late, truth(less).late)) == 1
    assert len(unequal("bad", truth(SENT).bad, truth(less).bad)) == 1


def test_a_result_that_is_there_twice_or_changed_shows() -> None:
    expected = truth(SENT).results(SINK)
    assert unequal("results", expected, Counter(expected)) == []
    [doubled] = unequal("results", expected, expected + Counter(list(expected)[:1]))
    assert doubled.startswith("results: 0 missing, 1 surplus of 2")
    key, value, *rest = next(iter(expected))
    changed = expected - Counter([(key, value, *rest)]) + Counter([(key, value.replace(b".50", b".51"), *rest)])
    assert unequal("results", expected, changed)[0].startswith("results: 1 missing, 1 surplus of 2")


def batch(number: int, start: int, end: int, generation: int = 0) -> BatchProof:
    return BatchProof(
        stream="revenue",
        generation=generation,
        batch=number,
        checkpoint_id="c",
        lease_epoch=1,
        batch_timestamp_ms=0,
        partitions=(PartitionProof(topic="orders", partition=0, start=start, end=end),),
        frontier_ms=None,
    )


@pytest.mark.parametrize(
    ("batches", "out_of_line"),
    [
        ([batch(1, 5, 9), batch(0, 0, 5), batch(0, 9, 12, generation=1)], 0),
        ([batch(0, 0, 5), batch(1, 5, 9), batch(0, 5, 9, generation=1)], 1),
        ([batch(0, 0, 5), batch(1, 6, 9)], 1),
        ([batch(0, 1, 5)], 1),
    ],
    ids=["each once", "read again", "left out", "begins too late"],
)
def test_batches_that_read_offsets_twice_or_leave_some_out_show(batches: list[BatchProof], out_of_line: int) -> None:
    assert len(ranges_not_in_line("revenue", batches)) == out_of_line
