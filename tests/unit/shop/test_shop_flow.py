"""The shop's records: the same from the same seed, in the declared shares, and broken as often as is promised."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest
from examples.shop.shop_records import SHARES, TABLES, Pace, Planted, ShopFlow, last_records

from recount.declare.plain_values import PlainValue
from recount.declare.registry import declared
from recount.declare.schema import BadRecord
from recount.runtime.times import milliseconds

SOURCES = {one.topic.name: one.topic for stream in declared().topologies.values() for one in stream.sources}
FLOW = ShopFlow(
    partitions={name: topic.partitions for name, topic in SOURCES.items()},
    begin_ms=1_800_000_000_000,
    pace=Pace(rate=100),
)
COUNT = 101 * 151 * 7


@pytest.fixture(scope="module")
def records() -> list[Planted]:
    return list(islice(FLOW, COUNT))


def test_the_same_seed_gives_the_same_records() -> None:
    one, same, other = (list(islice(replace(FLOW, seed=seed), 2_000)) for seed in (1, 1, 2))
    assert one == same != other


def test_every_source_topic_of_the_shop_gets_its_share(records: list[Planted]) -> None:
    assert SHARES.keys() == SOURCES.keys()
    assert sum(SHARES.values()) == 100
    sent = Counter(one.arrival.topic for one in records[: len(records) // 100 * 100])
    assert sent == {topic: share * (len(records) // 100) for topic, share in SHARES.items()}


def test_exactly_the_records_that_are_planted_bad_cannot_be_decoded(records: list[Planted]) -> None:
    wrong = [one for one in records if is_bad(one) != (one.fault == "bad")]
    assert not wrong
    bad = Counter(one.arrival.topic for one in records if one.fault == "bad")
    assert sum(bad.values()) == COUNT // 151
    assert {topic for topic, share in SHARES.items() if share > 1} <= bad.keys()


def is_bad(one: Planted) -> bool:
    value = SOURCES[one.arrival.topic].value
    assert value is not None
    if one.arrival.value is None:
        return False
    try:
        value.decode(one.arrival.value)
    except BadRecord:
        return True
    return False


def test_late_records_are_ten_minutes_old_or_more_and_no_others_are(records: list[Planted]) -> None:
    late = [one for one in records if one.fault == "late"]
    ages_ms = [FLOW.begin_ms + one.due_ms - one.arrival.timestamp_ms for one in late]
    assert min(ages_ms) >= milliseconds("10 min")
    others_ms = [FLOW.begin_ms + one.due_ms - one.arrival.timestamp_ms for one in records if one.fault != "late"]
    assert 0 <= min(others_ms) < max(others_ms) < FLOW.jitter_ms
    # one that is bad too, or a tombstone, is not late
    assert COUNT // 101 * 0.98 < len(late) < COUNT // 101
    assert {topic for topic, share in SHARES.items() if share > 1} <= {one.arrival.topic for one in late}


def test_rows_of_tables_are_deleted_and_no_other_value_is_null(records: list[Planted]) -> None:
    deleted = Counter(one.arrival.topic for one in records if one.arrival.value is None)
    assert deleted.keys() == set(TABLES)
    for topic, count in deleted.items():
        assert SOURCES[topic].cleanup_policy == "compact"
        assert count == pytest.approx(sum(one.arrival.topic == topic for one in records) / 7, rel=0.05)


def test_every_minute_has_a_burst(records: list[Planted]) -> None:
    by_second = Counter(one.due_ms // 1_000 % 60 for one in records[: 60 * 100 * 10])
    calm = {by_second[second] for second in range(55)}
    assert max(calm) - min(calm) <= 10
    assert min(by_second[second] for second in range(55, 60)) > 3.9 * max(calm)
    assert records[60 * 100].due_ms == 60_000


def test_each_partition_of_each_topic_has_a_last_record_that_can_be_decoded() -> None:
    found = last_records(FLOW.partitions, 7)
    assert Counter(one.topic for one in found) == FLOW.partitions
    assert not any(is_bad(Planted(due_ms=0, arrival=one)) for one in found)
    assert all(isinstance(SOURCES[one.topic].value, PlainValue) or b"closing" in (one.value or b"") for one in found)
