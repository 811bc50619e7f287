"""As of each batch, the answer about a stream is what the interpreter has made of the log up to there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.serve.written_streams import WrittenStream, recorded_ms
from tests.unit.topologies.shop_log import CLOSING_MS, PARTITIONS, Arrival, topics_of
from tests.unit.topologies.test_shop_by_engine import SHOP, batches

from recount.declare.operators.nodes import KEY, WINDOW_END, WINDOW_START
from recount.declare.topology import Topology, Written
from recount.reference.topology_driver import TopologyDriver
from recount.serve.answer import Answer, answer
from recount.serve.asked_sink import AskedSink
from recount.serve.question import MOST_ROWS, Question

LATER_MS = recorded_ms(100)
KINDS = {
    "product-revenue": "a single aggregation with an update each batch",
    "revenue-by-region": "final results",
    "order-counts": "a total of all time",
    "views-session-10-min": "sessions, whose former bounds are withdrawn",
    "high-value-orders": "records, to two topics",
    "unpaid-orders": "a join of streams that leaves alone",
    "customer-accounts": "tables joined, with deletions",
    "orders-deduplicated": "records held back, and a table",
}


def by_interpreter(topology: Topology, cuts: Sequence[Sequence[Arrival]]) -> list[Mapping[str, Any]]:
    """After each of ``cuts`` what a reader sees of each sink: the last row of each key and window, or all rows."""
    driver = TopologyDriver(
        topology, partitions=dict.fromkeys(topics_of(topology), PARTITIONS), wall_clock_ms=CLOSING_MS
    )
    seen = []
    for cut in cuts:
        with driver.batch():
            for one in cut:
                driver.pipe(
                    one.topic, key=one.key, value=one.value, timestamp_ms=one.timestamp_ms, partition=one.partition
                )
        seen.append({node.topic.name: read_by(node, driver) for node in topology.written})
    return seen


def read_by(written: Written, driver: TopologyDriver) -> Any:
    outputs = driver.outputs(written.topic.name)
    if not AskedSink(driver.topology, written).identity.is_latest:
        return Counter(told(out.key, out.value) for out in outputs if out.value is not None)
    latest = {(out.key, out.window): out.value for out in outputs}
    return {place: told(place[0], value) for place, value in latest.items() if value is not None}


def told(key: Any, value: Mapping[str, Any]) -> str:
    return f"{key!r} {sorted((name, cell) for name, cell in value.items() if name != KEY)}"


def answered(sink: AskedSink, found: Answer) -> Any:
    fields = [name for name in sink.written.fields if name != KEY]
    rows = [(row[sink.key], row, {name: row[name] for name in fields}) for row in found.rows]
    if not sink.identity.is_latest:
        return Counter(told(key, value) for key, _, value in rows)
    has_bounds = sink.identity.has_bounds
    latest = {
        (key, (row[WINDOW_START], row[WINDOW_END]) if has_bounds else None): told(key, value)
        for key, row, value in rows
    }
    assert len(latest) == len(rows), "two rows of one key and window"
    return latest


@pytest.mark.parametrize("name", KINDS)
def test_an_answer_is_what_the_log_up_to_its_batch_says(name: str, tmp_path: Path) -> None:
    topology = SHOP[name]
    cuts, stream = batches(topology), WrittenStream(topology, tmp_path)
    stream.write(cuts)
    expected = by_interpreter(topology, cuts)
    for written in topology.written:
        sink = AskedSink(topology, written)
        for batch, said in enumerate(expected):
            found = answer(stream.tables, Question(sink=sink, at_ms=recorded_ms(batch), limit=MOST_ROWS), LATER_MS)
            assert found.moment is not None and found.moment.order == (0, batch)
            assert answered(sink, found) == said[sink.name], f"{sink.name} as of batch {batch}"
            assert found.total == len(found.rows)
        now = answer(stream.tables, Question(sink=sink, limit=MOST_ROWS), LATER_MS)
        assert answered(sink, now) == expected[-1][sink.name]
        assert now.rows, f"nothing was written to {sink.name}"
