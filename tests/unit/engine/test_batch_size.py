"""How large a batch may be: a target of time, what batches have cost, how far the stream is behind."""

from __future__ import annotations

import pytest

from recount.engine.source.kafka_source import BatchCost, BatchSize

FIXED_MS, MS_PER_RECORD = 300, 0.01
LARGEST, TARGET_MS = 1_000_000, 1_000
WITHIN_TARGET = 70_000
"""Records that take the target: (1,000 - 300) / 0.01."""
CAUGHT_UP, FAR_BEHIND = 0, 10_000_000


def cost_ms(records: int) -> int:
    return round(FIXED_MS + MS_PER_RECORD * records)


def after(size: BatchSize, *batches: int, lag: int | None = CAUGHT_UP) -> BatchSize:
    for records in batches:
        size = size.after(records, cost_ms(records), lag)
    return size


@pytest.fixture
def warm() -> BatchSize:
    """After the first batch, whose time does not count."""
    return BatchSize.first(LARGEST, TARGET_MS).after(10, 9_000, FAR_BEHIND)


@pytest.fixture
def small(warm: BatchSize) -> BatchSize:
    """After a backlog, with batches that stay within the target."""
    return after(after(warm, LARGEST, lag=FAR_BEHIND), 300_000)


def test_the_fixed_part_and_that_of_a_record_are_told_apart() -> None:
    cost = BatchCost()
    for records in (1_000_000, 20_000, 60_000, 1_000_000):
        cost = cost.and_of(records, cost_ms(records))
    assert cost.records_within(TARGET_MS) == pytest.approx(WITHIN_TARGET)
    assert cost.records_within(FIXED_MS) == pytest.approx(0)


@pytest.mark.parametrize(("second", "within"), [((1_000, 400), 2_500), ((9_000, 350), 12_500)])
def test_of_batches_alike_or_where_large_ones_were_no_dearer_all_the_cost_is_the_records(
    second: tuple[int, int], within: int
) -> None:
    cost = BatchCost().and_of(1_000, 400 if second[0] == 1_000 else 450).and_of(*second)
    assert cost.records_within(TARGET_MS) == pytest.approx(within)


def test_far_behind_a_batch_is_as_large_as_it_may_be(warm: BatchSize) -> None:
    assert after(warm, LARGEST, LARGEST, lag=FAR_BEHIND).records == LARGEST


def test_a_stream_that_has_caught_up_takes_what_the_target_allows(small: BatchSize) -> None:
    assert small.records == pytest.approx(WITHIN_TARGET, rel=0.01)


@pytest.mark.parametrize(("batches_behind", "large"), [(9.9, False), (10.1, True)])
def test_ten_batches_behind_is_far(small: BatchSize, batches_behind: float, large: bool) -> None:
    behind = after(small, 70_000, lag=round(batches_behind * WITHIN_TARGET))
    assert (behind.records == LARGEST) is large


def test_a_replayed_batch_whose_lag_is_not_known_does_not_count_as_behind(warm: BatchSize) -> None:
    assert after(after(warm, LARGEST, lag=FAR_BEHIND), 300_000, lag=None).records < LARGEST


@pytest.mark.parametrize(("records", "smaller"), [(139_000, False), (141_000, True)])
def test_the_cap_shrinks_when_a_batch_was_twice_too_large(warm: BatchSize, records: int, smaller: bool) -> None:
    assert (after(after(warm, LARGEST, lag=FAR_BEHIND), records).records < LARGEST) is smaller


@pytest.mark.parametrize(("target_ms", "larger"), [(1_690, False), (1_710, True)])
def test_the_cap_grows_when_twice_as_much_would_do_and_records_were_left(
    small: BatchSize, target_ms: int, larger: bool
) -> None:
    patient = BatchSize(largest=LARGEST, target_ms=target_ms, records=WITHIN_TARGET, cost=small.cost)
    assert (after(patient, 70_000, lag=1).records > WITHIN_TARGET) is larger
    assert after(patient, 70_000, lag=0).records == WITHIN_TARGET, "nothing was left: it does not matter"


def test_small_batches_that_a_pause_makes_slow_leave_the_cap_as_it_is(warm: BatchSize) -> None:
    assert after(warm, 2_000, 2_100, 2_050).after(2_000, 1_500, 0).records == LARGEST


def test_where_no_size_stays_within_the_target_batches_are_small_until_the_stream_is_behind(warm: BatchSize) -> None:
    slow = warm.after(500_000, 12_000, 0).after(5_000, 2_000, 0)
    assert slow.records == 1_000
    assert slow.after(1_000, 1_900, 10_001).records == LARGEST


def test_a_cap_below_the_smallest_stays() -> None:
    size = BatchSize.first(500, TARGET_MS)
    for _ in range(3):
        size = size.after(500, 9_000, 0)
    assert size.records == 500


def test_without_a_target_the_cap_stays() -> None:
    size = BatchSize.first(LARGEST, 0)
    assert after(size, LARGEST, LARGEST) == size


def test_a_batch_without_records_tells_nothing(warm: BatchSize) -> None:
    assert warm.after(0, 5_000, 0) == warm


def test_a_stream_whose_records_become_dear_gets_smaller_batches(small: BatchSize) -> None:
    dear = small
    for records in (70_000, 40_000) * 8:
        dear = dear.after(records, round(FIXED_MS + 4 * MS_PER_RECORD * records), 0)
    assert dear.records == pytest.approx(17_500, rel=0.15)
