"""Metrics, as a parser of Prometheus' text format reads them, and the patient call behind them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from time import monotonic

import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.batch_proofs import a_proof
from tests.statuses import a_status
from tests.unit.serve.test_answers import SHOP, order
from tests.unit.serve.written_streams import WrittenStream, as_arrivals, recorded_ms

from recount.declare.registry import declared
from recount.engine.commit.delta_table import AppendOnlyTable
from recount.kafka.connection import Connection
from recount.kafka.lags import PartitionLag, StreamLag
from recount.runtime.errors import Terminal
from recount.serve.exposition import Ask, BrokerReader, BrokerReading, Exposition, PatientCall
from recount.tables.ledger import PartitionProof

LABELS = ("source", "stream", "table", "state", "topic", "partition")
Samples = Mapping[tuple[str, ...], float]


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> WrittenStream:
    stream = WrittenStream(SHOP["order-counts"], tmp_path_factory.mktemp("data"))
    stream.write([as_arrivals("orders", order("ann", 1), order("bob", 2)), as_arrivals("orders", order("ann", 3))])
    stream.audit(1, outcome="violation")
    archive = AppendOnlyTable(path=stream.tables.archive("orders"), schema={"offset": pl.Int64()}, carries_proofs=True)
    archive.create()
    part = PartitionProof(topic="orders", partition=0, start=0, end=2, records=2, counted=2)
    proof = a_proof(7, part, stream="archive-orders")
    archive.append(pl.DataFrame({"offset": [0, 1]}), writer="archive", version=7, metadata=proof.to_json())
    return stream


@pytest.fixture
def scraped(stream: WrittenStream) -> Callable[[Ask], Samples]:
    """A scrape by name and label values; another stream is declared that has never run."""

    def scrape(ask: Ask) -> Samples:
        streams = [stream.topology, SHOP["product-revenue"], declared().archives["archive-orders"]]
        text = Exposition(tables=stream.tables, streams=streams, ask=ask).rendered().decode()
        families = list(text_string_to_metric_families(text))
        assert len({family.name for family in families}) == len(families)
        assert all(family.documentation and family.name.startswith("recount_") for family in families)
        samples = [one for family in families for one in family.samples]
        return {(one.name, *(one.labels[n] for n in LABELS if n in one.labels)): one.value for one in samples}

    return scrape


def test_tables_ledger_and_audits_are_told_without_a_broker(
    scraped: Callable[[Ask], Samples], stream: WrittenStream
) -> None:
    told = scraped(lambda: None)
    assert (told["recount_source_up", "tables"], told["recount_source_up", "kafka"]) == (1, 0)
    path = stream.tables.output("order_counts")
    assert told["recount_table_rows", "order-counts", "outputs/order_counts"] == pl.read_delta(path).height == 3
    files = list(Path(path).glob("*.parquet"))
    assert told["recount_table_bytes", "order-counts", "outputs/order_counts"] == sum(f.stat().st_size for f in files)
    assert told["recount_table_files", "order-counts", "outputs/order_counts"] == len(files) == 2
    assert told["recount_table_rows", "order-counts", "late"] == 0
    assert told["recount_stream_batch", "order-counts"] == 1
    assert told["recount_stream_batch_timestamp_seconds", "order-counts"] == recorded_ms(1) / 1_000
    assert told["recount_audit_match", "order-counts"] == 0
    assert told["recount_partition_read_offset", "order-counts", "orders", "0"] == 3
    assert told["recount_table_rows", "archive-orders", "archive/orders"] == 2
    assert told["recount_stream_batch", "archive-orders"] == 7
    assert told["recount_partition_read_offset", "archive-orders", "orders", "0"] == 2
    assert not [place for place in told if "product-revenue" in place or place[0] == "recount_stream_state"]


def test_lag_is_told_by_partition_and_the_status_by_stream(scraped: Callable[[Ask], Samples]) -> None:
    status = a_status(
        stream="order-counts",
        lag=7,
        records_total=3,
        late_records=1,
        dead_letters=2,
        records_per_second=1.5,
        batch_duration_ms=1_200,
        commit_duration_ms=300,
        frontier_ms=60_000,
        stream_time_ms=90_000,
        memory_used=5,
    )
    parts = {
        ("orders", 0): PartitionLag(committed=3, read=3, decided=8, end=10),
        ("orders", 1): PartitionLag(committed=None, read=0, decided=0, end=0),
    }
    lags = {name: StreamLag(at_ms=1, partitions=parts) for name in ("order-counts", "stranger")}

    def ask() -> BrokerReading:
        return BrokerReading(statuses={"order-counts": status, "stranger": a_status(stream="stranger")}, lags=lags)

    told = scraped(ask)
    of_partitions = [told["recount_partition_lag_offsets", "order-counts", "orders", partition] for partition in "01"]
    assert of_partitions == [7, 0]
    of_stream = {name: value for (name, *labels), value in told.items() if labels == ["order-counts"]}
    assert of_stream.items() >= {
        ("recount_stream_lag_records", 7),
        ("recount_stream_records_total", 3),
        ("recount_stream_late_records_total", 1),
        ("recount_stream_dead_letters_total", 2),
        ("recount_stream_records_per_second", 1.5),
        ("recount_stream_batch_duration_seconds", 1.2),
        ("recount_stream_commit_duration_seconds", 0.3),
        ("recount_stream_frontier_delay_seconds", 30),
        ("recount_stream_heartbeat_timestamp_seconds", 2),
        ("recount_stream_driver_memory_used_bytes", 5),
    }
    states = {place[2]: value for place, value in told.items() if place[0] == "recount_stream_state"}
    assert states == {"starting": 0, "running": 1, "stopping": 0, "stopped": 0, "failed": 0}
    assert not [place for place in told if "stranger" in place]


def test_the_page_lists_every_metric(stream: WrittenStream) -> None:
    status = a_status(stream="order-counts")
    ask = lambda: BrokerReading(statuses={"order-counts": status})  # noqa: E731
    text = Exposition(tables=stream.tables, streams=[stream.topology], ask=ask).rendered().decode()
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    of_server = page.partition("## From recount serve")[2].partition("\n## ")[0]
    listed = set(re.findall(r"`(recount_[a-z_]+)`", of_server))
    assert listed == set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))


def test_a_scrape_does_not_wait_for_brokers_that_do_not_answer() -> None:
    reader = BrokerReader(Connection(bootstrap_servers="127.0.0.1:1"), {}, patience_s=0.2)
    began = monotonic()
    assert reader() is None
    assert reader() is None
    assert monotonic() - began < 5


def test_who_asks_while_an_overdue_call_runs_does_not_wait_and_a_call_in_time_is_its_result() -> None:
    ask: PatientCall[bool] = PatientCall("brokers", 0.3)
    goes_on = Event()
    assert ask(goes_on.wait) is None
    assert ask.problem == "the brokers have not answered within 0.3 s"
    began = time.monotonic()
    assert ask(lambda: True) is None
    assert time.monotonic() - began < 0.2
    goes_on.set()
    deadline = time.monotonic() + 30
    while ask(lambda: True) is None:
        assert time.monotonic() < deadline
    assert ask.problem is None


def test_an_error_with_a_remedy_is_the_problem_and_another_one_is_raised() -> None:
    ask: PatientCall[int] = PatientCall("brokers", 60)

    def refuse() -> int:
        raise Terminal("topic does not exist", given="recount.status", remedy="run the topics DAG")

    assert ask(refuse) is None
    assert "the brokers cannot be asked: topic does not exist" in (ask.problem or "")
    assert "remedy: run the topics DAG" in (ask.problem or "")
    with pytest.raises(ZeroDivisionError):
        ask(lambda: 1 // 0)
