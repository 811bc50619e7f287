"""Which records a batch takes: by a target of time, and by layers that let lookups find the same whatever it takes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.columns import RESULT_TIME
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.engine.source.kafka_source import BatchCost, BatchLimit, BatchSize, layer_to_read
from recount.reference.topology_driver import TopologyDriver

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


def test_a_stream_whose_records_become_dear_gets_smaller_batches(small: BatchSize) -> None:
    dear = small
    for records in (70_000, 40_000) * 8:
        dear = dear.after(records, round(FIXED_MS + 4 * MS_PER_RECORD * records), 0)
    assert dear.records == pytest.approx(17_500, rel=0.15)


Logs = dict[str, list[LogRecord]]
PARTITIONS = {"orders": 2, "customers": 2, "regions": 1}


def topic(name: str) -> Topic:
    schema = RecordSchema(fields={f"{name}_text": STRING})
    return Topic(name=name, key="id", value=schema, partitions=PARTITIONS.get(name, 1))


def topology() -> Topology:
    """Customers are looked up with their region, and orders with the customer: three layers."""
    customers = stream(topic("customers")).left_join_table(table(topic("regions"))).to_table()
    orders = stream(topic("orders")).left_join_table(customers)
    return Topology(name="planned", sinks=[orders.to(topic("out"), table="out")], idle_after="1 d")


def records(name: str, least: int) -> st.SearchStrategy[list[LogRecord]]:
    def record(letter: str, at_ms: int, text: str | None) -> LogRecord:
        value = None if text is None else json.dumps({f"{name}_text": text}).encode()
        partition = "abc".index(letter) % PARTITIONS[name]
        return LogRecord(partition=partition, timestamp_ms=at_ms, key=letter.encode(), value=value)

    texts = st.sampled_from(["x", "y", "z", None])
    made = st.builds(record, st.sampled_from("abc"), st.integers(0, 30), texts)
    return st.lists(made, min_size=least, max_size=least + 12)


logs = st.fixed_dictionaries({name: records(name, least) for name, least in zip(PARTITIONS, (6, 9, 4), strict=True)})


def run_as_planned(log: Logs, most: int) -> list[tuple[object, ...]]:
    """All that lies in the log, in batches of at most ``most`` records of a layer that is not read to its end."""
    planned = topology()
    engine = TopologyEngine(planned, PARTITIONS)
    left = {name: list(found) for name, found in log.items()}
    while any(left.values()):
        lags = [sum(len(left[name]) for name in layer) for layer in planned.layers]
        limit = BatchLimit(records=most, layer=layer_to_read(lags, most))
        batch = {}
        for number, [name] in enumerate(planned.layers):
            share = limit.of(number)
            batch[name], left[name] = left[name][:share], [] if share is None else left[name][share:]
        engine.batch(batch)
    return sorted_rows(engine.emitted("out").rows())


def sorted_rows(rows: Sequence[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(rows, key=str)


@settings(max_examples=8, deadline=None)
@given(log=logs, most=st.integers(1, 20))
def test_planned_batches_find_what_the_interpreter_finds_that_reads_layer_by_layer(log: Logs, most: int) -> None:
    driver = TopologyDriver(topology(), partitions=PARTITIONS)
    for [name] in topology().layers:
        for one in log[name]:
            driver.pipe(name, key=one.key, value=one.value, timestamp_ms=one.timestamp_ms, partition=one.partition)
    names = ("orders_text", "customers_text", "regions_text")
    expected = Counter(
        (out.timestamp_ms, *(out.value[name] for name in names)) for out in driver.outputs("out") if out.value
    )
    engine_rows = run_as_planned(log, most)
    columns = list(TopologyEngine(topology(), PARTITIONS).computation.output_schema(topology().sinks[0]))
    found = Counter(tuple(row[columns.index(name)] for name in (RESULT_TIME, *names)) for row in engine_rows)
    assert found == expected


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
