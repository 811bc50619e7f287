"""Rates on the edges of a graph: what the ledger says, and where one row in is one row out."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from tests.batch_proofs import a_proof

from recount.declare.registry import declared
from recount.declare.topology import Topology
from recount.pages.stream_detail import MOST_BATCHES, SPAN_MS, Rates, leaving
from recount.tables.ledger import BatchProof, PartitionProof

MINUTE_MS = 60_000


def batch(number: int, read: Mapping[str, int], written: Mapping[str, int], **fates: int) -> BatchProof:
    """One a minute."""
    parts = [
        PartitionProof(topic=topic, partition=0, start=0, end=records, records=records, **fates)
        for topic, records in read.items()
    ]
    return a_proof(number, *parts, batch_timestamp_ms=number * MINUTE_MS, emitted=dict(written))


def labels(topology: Topology, rates: Rates) -> dict[str, float]:
    """The rates by the beginning of what an operator is called."""
    return {" ".join(str(node).split()[:2]): rate for node, rate in leaving(topology, rates).items()}


def test_rates_are_of_the_time_since_the_oldest_batch_which_itself_came_before() -> None:
    newest_first = [
        batch(2, {"orders": 60}, {"t": 6}),
        batch(1, {"orders": 120}, {"t": 0}),
        batch(0, {"orders": 9_999}, {}),
    ]
    rates = Rates.of(newest_first)
    assert rates == Rates(since_ms=0, until_ms=2 * MINUTE_MS, read={"orders": 1.5}, written={"t": 0.05})


def test_records_without_a_value_and_dead_letters_do_not_leave_the_source() -> None:
    rates = Rates.of([batch(1, {"orders": 60}, {}, dead_lettered=20, null_value=10), batch(0, {}, {})])
    assert rates is not None
    assert rates.read == {"orders": 0.5}


def test_there_are_no_rates_without_two_batches_of_different_times() -> None:
    assert Rates.of([]) is None
    assert Rates.of([batch(0, {}, {})]) is None
    assert Rates.of([batch(0, {}, {}), batch(0, {}, {})]) is None


def test_only_recent_batches_count_and_an_old_one_only_where_there_is_no_other() -> None:
    minutes = SPAN_MS // MINUTE_MS
    long_ago = batch(0, {"orders": 10**9}, {})
    now, before = batch(500, {"orders": 60}, {}), batch(500 - minutes, {"orders": 10**9}, {})
    assert Rates.of([now, before, long_ago]) == Rates.of([now, before])
    assert Rates.of([now, long_ago]) is not None


@given(st.integers(0, 5 * MOST_BATCHES))
def test_no_more_of_the_ledger_is_read_than_is_shown(batches: int) -> None:
    read = 0

    def ledger() -> object:
        nonlocal read
        for number in range(batches, 0, -1):
            read += 1
            yield a_proof(number, batch_timestamp_ms=number)

    Rates.of(ledger())  # type: ignore[arg-type]
    assert read <= MOST_BATCHES + 1


def test_rows_are_followed_through_operators_that_hand_on_each_as_one_from_above_and_from_below() -> None:
    stream = declared().topologies["revenue-by-region"]
    rates = Rates(since_ms=0, until_ms=1_000, read={"orders": 40.0}, written={"windowed_revenue": 0.5})
    assert labels(stream, rates) == {"source orders": 40.0, "select key": 40.0, "orders =": 0.5}


def test_what_a_filter_lets_through_is_known_from_what_is_written_below_it() -> None:
    stream = declared().topologies["high-value-orders"]
    written = {written.table: 3.0 for written in stream.written}
    found = leaving(stream, Rates(since_ms=0, until_ms=1_000, read={"orders": 40.0}, written=written))
    filtered = [rate for node, rate in found.items() if str(node).startswith("filter")]
    assert filtered and set(filtered) == {3.0}


def test_a_filter_with_nothing_written_below_it_says_nothing() -> None:
    stream = declared().topologies["section-visits"]
    rates = Rates(since_ms=0, until_ms=1_000, read={"page-views": 2.0, "click-events": 3.0}, written={"visits": 4.0})
    found = {str(node): rate for node, rate in leaving(stream, rates).items()}
    assert found["merge"] == 5.0
    assert found["filter (page != '')"] == 4.0
    assert "filter (page != '/')" not in found
