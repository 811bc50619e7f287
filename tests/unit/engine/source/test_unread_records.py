"""A partition is blocked where all that can be read is read, and an open transaction hides the rest."""

from __future__ import annotations

from dataclasses import replace

from tests.statuses import a_status

from recount.engine.source.unread_records import Blocked, Unread, blocked_in, with_unread
from recount.kafka.lags import PartitionLag, StreamLag

READ = PartitionLag(committed=17, read=17, decided=17, end=17)
OPEN = replace(READ, end=20)
"""Records 17 to 19 are of an open transaction, or behind one."""
TWO = ("orders", 2)


def lag(at_ms: int, **parts: PartitionLag) -> StreamLag:
    return StreamLag(at_ms=at_ms, partitions={("orders", int(name[1:])): part for name, part in parts.items()})


def test_a_partition_that_can_be_read_on_is_not_blocked() -> None:
    assert blocked_in(lag(1, p0=READ, p1=replace(OPEN, read=16)), ()) == []


def test_it_is_blocked_since_it_was_first_seen_to_be() -> None:
    [first] = blocked_in(lag(1_000, p0=READ, p2=OPEN), ())
    assert (first.place, first.offset, first.since_ms) == (TWO, 17, 1_000)
    named = replace(first, by="producer 1001")
    assert blocked_in(lag(5_000, p2=replace(OPEN, end=99)), [named]) == [named]


def test_another_transaction_behind_the_first_one_counts_by_itself() -> None:
    known = Blocked(place=TWO, offset=17, since_ms=1_000, by="producer 1001")
    moved = replace(OPEN, committed=19, read=19, decided=19)
    assert blocked_in(lag(9_000, p2=moved), [known]) == [Blocked(place=TWO, offset=19, since_ms=9_000)]


def test_the_partition_that_was_blocked_first_comes_first() -> None:
    known = Blocked(place=TWO, offset=17, since_ms=1_000)
    assert [one.place[1] for one in blocked_in(lag(2_000, p0=OPEN, p2=OPEN), [known])] == [2, 0]


def test_what_is_unread_is_in_the_status_and_what_is_decided_leaves_it() -> None:
    blocked = Blocked(place=TWO, offset=17, since_ms=1_000, by="producer 1001")
    said = with_unread(a_status(), Unread(lag=lag(2_000, p2=OPEN), oldest_ms=900, blocked=blocked))
    assert (said.lag, said.lag_at_ms, said.oldest_unread_ms) == (3, 2_000, 900)
    assert (said.blocked_place, said.blocked_offset, said.blocked_since_ms, said.blocked_by) == (
        "orders-2",
        17,
        1_000,
        "producer 1001",
    )
    after = with_unread(said, Unread(lag=lag(3_000, p2=READ)))
    assert (after.lag, after.blocked_place, after.blocked_offset, after.blocked_since_ms, after.blocked_by) == (
        0,
        *[None] * 4,
    )
