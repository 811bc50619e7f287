"""Which records a batch takes: by a target of time, and by layers that let lookups find the same whatever it takes."""

from __future__ import annotations

import pytest

from recount.engine.source.kafka_source import BatchLimit, BatchSize, layer_to_read

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


def test_a_stream_takes_what_it_may_while_far_behind_and_what_the_target_allows_once_caught_up(
    warm: BatchSize, small: BatchSize
) -> None:
    assert after(warm, LARGEST, LARGEST, lag=FAR_BEHIND).records == LARGEST
    assert small.records == pytest.approx(WITHIN_TARGET, rel=0.01)


@pytest.mark.parametrize(("lag", "large"), [(9.9, False), (10.1, True)])
def test_ten_batches_behind_is_far(small: BatchSize, lag: float, large: bool) -> None:
    assert (after(small, 70_000, lag=round(lag * WITHIN_TARGET)).records == LARGEST) is large


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


def test_what_says_nothing_of_the_cost_leaves_the_cap_as_it_is(warm: BatchSize) -> None:
    """A batch without records, one that is replayed, small ones that a pause made slow; or there is no target."""
    assert warm.after(0, 5_000, 0) == warm
    assert after(after(warm, LARGEST, lag=FAR_BEHIND), 300_000, lag=None).records < LARGEST, "it is not behind"
    assert after(warm, 2_000, 2_100, 2_050).after(2_000, 1_500, 0).records == LARGEST
    without = BatchSize.first(LARGEST, 0)
    assert after(without, LARGEST, LARGEST) == without


def test_where_no_size_stays_within_the_target_batches_are_small_until_the_stream_is_behind(warm: BatchSize) -> None:
    slow = warm.after(500_000, 12_000, 0).after(5_000, 2_000, 0)
    assert slow.records == 1_000
    assert slow.after(1_000, 1_900, 10_001).records == LARGEST
    tiny = BatchSize.first(500, TARGET_MS)
    for _ in range(3):
        tiny = tiny.after(500, 9_000, 0)
    assert tiny.records == 500, "a cap below the smallest stays"


@pytest.mark.parametrize(
    ("lags", "layer"),
    [([0, 0, 90], 2), ([10, 10, 90], 2), ([11, 0, 90], 0), ([10, 11, 0], 1)],
    ids=["nothing left of the tables", "as much as a batch takes", "more of the first", "more of the second"],
)
def test_the_first_layer_of_which_more_is_left_than_a_batch_takes_is_read(lags: list[int], layer: int) -> None:
    assert layer_to_read(lags, 10) == layer


def test_layers_before_are_read_to_their_end_and_those_after_are_held() -> None:
    limit = BatchLimit(records=10, layer=1)
    assert [limit.of(layer) for layer in range(3)] == [None, 10, 0]
