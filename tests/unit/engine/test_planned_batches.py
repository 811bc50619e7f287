"""Item 1.7: batches as they are planned give lookups that are the same whatever a batch takes, with several tables."""

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
from recount.engine.source.kafka_source import BatchLimit, layer_to_read
from recount.reference.topology_driver import TopologyDriver

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
@given(log=logs, most=st.integers(1, 9), other=st.integers(10, 60))
def test_what_a_batch_takes_changes_no_lookup(log: Logs, most: int, other: int) -> None:
    assert run_as_planned(log, most) == run_as_planned(log, other)


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
