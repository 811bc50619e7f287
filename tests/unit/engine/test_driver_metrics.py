"""A driver's metrics, as a parser of Prometheus' text format reads them over HTTP."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from pathlib import Path

import httpx
import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.statuses import a_status
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.registry import declared
from recount.engine.driver.stream_reports import DriverMetrics
from recount.engine.state.keyed_rows import KeyedRows, StateUse
from recount.profile.daemon import free_ports
from recount.serve.exposition import BrokerReading, Exposition
from recount.tables.places import Tables

Samples = Mapping[tuple[str, ...], float]
USE = StateUse(rows=3, bytes=96, puts=5, gets=8)


def scraped(metrics: DriverMetrics) -> Samples:
    [port] = free_ports(1)
    with metrics.served(port):
        text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    families = list(text_string_to_metric_families(text))
    return {(one.name, *sorted(one.labels.values())): one.value for family in families for one in family.samples}


def test_streams_of_one_driver_are_told_with_their_operators() -> None:
    metrics = DriverMetrics()
    metrics.told(a_status(stream="orders", lag=7, records_total=40))
    metrics.told(a_status(stream="orders", lag=0, records_total=47))
    metrics.told(a_status(stream="clicks", state="failed"))
    with metrics.of_states("orders", lambda: {"open windows": USE}):
        found = scraped(metrics)
    assert found["recount_stream_lag_records", "orders"] == 0
    assert found["recount_stream_records_total", "orders"] == 47
    assert found["recount_stream_state", "clicks", "failed"] == 1
    assert found["recount_operator_state_rows", "open windows", "orders"] == 3
    assert found["recount_operator_state_bytes", "open windows", "orders"] == 96
    assert found["recount_operator_puts_total", "open windows", "orders"] == 5
    assert found["recount_operator_gets_total", "open windows", "orders"] == 8


def test_the_operators_of_a_stream_that_has_ended_are_told_no_longer() -> None:
    metrics = DriverMetrics()
    metrics.told(a_status(stream="orders", state="stopped"))
    with metrics.of_states("orders", lambda: {"open windows": USE}):
        pass
    found = scraped(metrics)
    assert found["recount_stream_state", "orders", "stopped"] == 1
    assert not [name for name, *_ in found if name.startswith("recount_operator_")]


def test_the_families_of_a_status_are_those_of_the_server_of_answers(tmp_path: Path) -> None:
    status = a_status(stream="order-counts", lag=1, frontier_ms=1, stream_time_ms=2, memory_used=1, memory_left=1)
    metrics = DriverMetrics()
    metrics.told(status)
    topology = declared().topologies["order-counts"]
    exposition = Exposition(
        tables=Tables(str(tmp_path)), streams=[topology], ask=lambda: BrokerReading(statuses={topology.name: status})
    )
    families = {one.name: one for one in exposition.collect()}
    ours = [one for one in metrics.collect() if one.name.startswith("recount_stream_")]
    assert len(ours) > 10
    assert [families[one.name] for one in ours] == ours


def test_a_port_that_is_taken_stops_no_stream(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with caplog.at_level(logging.ERROR), DriverMetrics().served(port):
            assert f"no metrics are served at port {port}: Address already in use" in caplog.text


def test_without_a_port_nothing_listens() -> None:
    with DriverMetrics().served(None):
        pass


def test_an_operator_graph_tells_of_each_state_what_it_holds() -> None:
    engine = TopologyEngine(topology=declared().topologies["order-counts"], partitions={"orders": 1})
    value = b'{"order_id": "o-1", "user_id": "ann", "amount": 1}'
    for _ in range(2):
        engine.batch({"orders": [LogRecord(key=b"o-1", value=value, timestamp_ms=1)]})
    used = engine.computation.used
    assert {name: use.rows for name, use in used.items()} == engine.computation.held
    totals = used["operator 2 WindowedAggregate windows"]
    assert (totals.rows, totals.puts) == (1, 2)
    assert totals.gets >= 2 and totals.bytes > 0


def test_keyed_rows_count_what_is_kept_written_and_looked_for() -> None:
    rows = KeyedRows({"key": pl.String(), "n": pl.Int64()}, ["key"])
    rows.put(pl.DataFrame({"key": ["a", "b", "b"], "n": [1, 2, 3]}))
    rows.of(pl.DataFrame({"key": ["a", "a", "c"]}), ["key"])
    rows.remove(pl.DataFrame({"key": ["a"]}))
    rows.changes()
    use = rows.use
    assert (use.rows, use.puts, use.gets) == (1, 3, 2)
    assert use.bytes > 0
