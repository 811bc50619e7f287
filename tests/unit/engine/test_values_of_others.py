"""What docs/own_streams.md shows of objects in objects, LONG keys and heartbeats, by the engine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tests.unit.engine.engine import NOW_MS, LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.operators.nodes import KEY
from recount.declare.plain_values import PlainValue
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling

WINDOW = tumbling("1 min", grace="10 s")
OUT = Topic(name="out", key="id")
LATER = LogRecord(timestamp_ms=140_000, value=b'{"page": "heartbeat"}')


def lines_of(row: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    basket = json.loads(row["text"])
    return [{"city": basket["to"]["city"], "pieces": line["pieces"]} for line in basket["lines"]]


def numbered(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"customer": int(row["text_key"])}


def engine_of(flow: Any, partitions: int = 1) -> TopologyEngine:
    topology = Topology(name="example", sinks=[flow.to(OUT)])
    return TopologyEngine(topology, {topology.sources[0].topic.name: partitions})


def test_a_function_reads_objects_in_objects() -> None:
    baskets = Topic(name="baskets", key="basket_id", value=PlainValue.of(text=STRING))
    lines = stream(baskets).flat_map(lines_of, city=STRING, pieces=LONG).select_key(city=col("city"))
    engine = engine_of(lines.windowed_by(WINDOW).aggregate(pieces=total("pieces")).emit_final())
    texts = ['{"to": {"city": "Bern"}, "lines": [{"pieces": 2}, {"pieces": 3}]}', '{"to": {}}', "no JSON"]
    moved = '{"to": {"city": "Rome"}, "lines": [{"pieces": 1}]}'
    records = [LogRecord(value=text.encode()) for text in texts]
    made = engine.batch({"baskets": [*records, LogRecord(timestamp_ms=140_000, value=moved.encode())]})
    assert made.emitted["out"].select("city", "pieces").rows() == [("Bern", 5)]
    assert made.rejected.sort("offset").get_column("reason").to_list() == [
        "function-raised: KeyError in flat-map to city, pieces",
        "function-raised: JSONDecodeError in flat-map to city, pieces",
    ]


def test_a_record_whose_long_key_is_no_number_is_a_bad_one_and_one_without_it_has_no_key() -> None:
    visits = Topic(name="visits", key="visit_id", value=RecordSchema.of(customer=LONG))
    per_customer = stream(visits).select_key(customer=col("customer")).windowed_by(WINDOW).aggregate(n=count())
    engine = engine_of(per_customer.emit_final())
    values = [b'{"customer": 7}', b'{"customer": "seven"}', b"{}"]
    later = LogRecord(timestamp_ms=140_000, value=b'{"customer": 8}')
    made = engine.batch({"visits": [*(LogRecord(value=value) for value in values), later]})
    assert made.emitted["out"].select("customer", "n").rows() == [(7, 1)]
    assert made.rejected.select("offset", "reason").rows() == [(1, "schema")]
    assert made.after.partitions["visits", 0].null_key == 1


def test_a_function_makes_a_number_of_a_key_and_sets_aside_what_is_none() -> None:
    paid = Topic(name="paid", key="customer", value=RecordSchema.of(amount=LONG))
    by_number = stream(paid).select_key(text_key=col(KEY)).map(numbered, customer=LONG)
    engine = engine_of(by_number.select_key(customer=col("customer")))
    made = engine.batch({"paid": [LogRecord(key=key) for key in (b"7", b"seven")]})
    assert made.emitted["out"].get_column("customer").to_list() == [7]
    assert made.rejected.sort("offset").get_column("reason").to_list() == [
        "function-raised: ValueError in map to customer",
    ]


def test_a_heartbeat_lets_final_results_leave_after_all_partitions_fell_silent() -> None:
    clicks = Topic(name="clicks", key="user", value=RecordSchema.of(page=STRING))
    windows = stream(clicks).filter(col("page") != "heartbeat").windowed_by(WINDOW)
    engine = engine_of(windows.aggregate(n=count()).emit_final(), partitions=2)
    first = engine.batch({"clicks": [LogRecord(partition=p, value=b'{"page": "/"}') for p in (0, 1)]})
    assert first.emitted["out"].is_empty()
    beaten = engine.batch({"clicks": [LATER]}, now_ms=NOW_MS + engine.topology.idle_after_ms)
    assert beaten.emitted["out"].get_column("n").to_list() == [2]
