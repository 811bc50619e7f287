"""Stream time per partition, and the frontier over them."""

from __future__ import annotations

from recount.reference.record_clock import Above, Clock
from recount.reference.records import Entry


def entry(offset: int, timestamp_ms: int, partition: int = 0) -> Entry:
    return Entry(topic="t", partition=partition, offset=offset, timestamp_ms=timestamp_ms)


def test_stream_time_is_the_largest_time_so_far_and_includes_the_record_itself() -> None:
    clock = Clock({"t"})
    assert [clock.stream_time_ms(entry(i, time)) for i, time in enumerate((10, 30, 20))] == [10, 30, 30]


def test_each_partition_has_a_stream_time_of_its_own() -> None:
    clock = Clock({"t"})
    clock.observe(entry(0, 90, partition=1))
    assert clock.stream_time_ms(entry(0, 10)) == 10


def test_a_record_keeps_the_stream_time_at_its_own_offset() -> None:
    clock = Clock({"t"})
    clock.observe(entry(0, 10))
    clock.observe(entry(1, 90))
    assert clock.stream_time_ms(entry(0, 10)) == 10


def test_a_refused_record_does_not_advance_stream_time() -> None:
    clock = Clock({"t"})
    clock.refuse(entry(0, 90))
    clock.observe(entry(0, 90))
    assert clock.stream_time_ms(entry(1, 10)) == 10


def test_a_record_of_which_only_some_rows_have_no_key_does_advance_it() -> None:
    clock = Clock({"t"})
    clock.refuse(entry(0, 90))
    assert clock.stream_time_ms(entry(0, 90)) == 90
    clock.refuse(entry(0, 90))
    assert clock.stream_time_ms(entry(1, 10)) == 90


def test_a_record_that_was_accepted_advances_it_only_once_it_has_passed() -> None:
    clock = Clock({"t"})
    clock.arriving = entry(0, 90)
    clock.accept(entry(0, 90))
    clock.refuse(entry(0, 90))
    assert clock.reached_ms(entry(0, 90)) is None
    clock.observe(entry(0, 90))
    assert clock.stream_time_ms(entry(1, 10)) == 90


def test_the_frontier_is_the_smallest_stream_time_less_the_delay() -> None:
    clock = Clock({"t"}, delay_ms=3)
    clock.observe(entry(0, 50))
    clock.observe(entry(0, 20, partition=1))
    assert clock.frontier_ms == 17


def test_a_topic_that_has_never_spoken_holds_the_frontier_back_until_it_is_idle() -> None:
    clock = Clock({"t", "silent"})
    clock.observe(entry(0, 50))
    assert clock.frontier_ms is None
    clock.declare_idle("silent", None)
    assert clock.frontier_ms == 50


def test_a_partition_that_is_known_to_be_there_is_waited_for_before_its_first_record() -> None:
    clock = Clock({"t"}, partitions={"t": 2})
    clock.observe(entry(0, 50))
    assert clock.frontier_ms is None
    clock.observe(entry(0, 20, partition=1))
    assert clock.frontier_ms == 20


def test_a_partition_that_speaks_is_not_idle_any_more() -> None:
    clock = Clock({"t"})
    clock.observe(entry(0, 50))
    clock.observe(entry(0, 20, partition=1))
    clock.declare_idle("t", 1)
    assert clock.frontier_ms == 50
    clock.observe(entry(1, 30, partition=1))
    assert clock.frontier_ms == 30


def test_a_topic_that_does_not_feed_the_operator_does_not_count() -> None:
    clock = Clock({"t"})
    clock.observe(Entry(topic="other", partition=0, offset=0, timestamp_ms=5))
    assert clock.frontier_ms is None


def test_what_the_operator_above_refused_does_not_advance_the_clocks_below_it() -> None:
    above = Clock({"t"})
    below = Clock({"t"}, above=[Above(above, 0)])
    above.refuse(entry(0, 90))
    for clock in (above, below):
        clock.observe(entry(0, 90))
        clock.observe(entry(1, 10))
    assert below.stream_time_ms(entry(1, 10)) == 10
    assert below.stream_time_ms(entry(0, 90)) == 90, "it came on another path"


def test_what_an_operator_refused_whose_records_do_not_come_here_does_advance_it() -> None:
    above = Clock({"t"})
    below = Clock({"t"}, above=[Above(above, 0, hands_on=False)])
    above.refuse(entry(0, 90))
    for clock in (above, below):
        clock.observe(entry(0, 90))
    assert below.stream_time_ms(entry(1, 10)) == 90


def test_the_frontier_waits_for_those_of_the_operators_above() -> None:
    above = Clock({"t"})
    below = Clock({"t", "other"}, delay_ms=3, above=[Above(above, 3)])
    below.advance(("other", 0), 80)
    below.advance(("t", 0), 90)
    assert below.frontier_ms is None
    above.advance(("t", 0), 50)
    assert below.frontier_ms == 47
    above.declare_idle("t", None)
    assert below.frontier_ms == 77


def test_below_an_operator_that_holds_records_back_every_record_counts() -> None:
    above = Clock({"t"})
    clock = Clock({"t"}, above=[Above(above, 0)], holds_back=True)
    for one in (above, clock):
        one.refuse(entry(0, 90))
        one.observe(entry(0, 90))
    assert clock.stream_time_ms(entry(1, 10)) == 90
