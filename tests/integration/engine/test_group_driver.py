"""Three streams in one driver: one fails, one is stopped and started again, and one notices nothing."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.integration.engine.drivers import (
    DRIVER_PROCESS,
    Deployment,
    Driver,
    assert_each_offset_once,
    by_key,
    committed,
    proofs,
)
from tests.integration.engine.purchases import create_topics, produce, purchases
from tests.integration.engine.streams import fickle, group_purchases, shared_driver, steady, strict
from tests.integration.engine.test_drivers import expected_output, status_when

from recount.declare.output import encode_value
from recount.declare.topology import Topology
from recount.kafka.leases import request_run, request_stop
from recount.kafka.status import StreamStatus, status_of_group
from recount.profile.daemon import free_ports
from recount.serve.answer import answer
from recount.serve.asked_sink import asked_sink
from recount.serve.exposition import BrokerReader, Exposition
from recount.serve.question import MOST_ROWS, Question

pytestmark = pytest.mark.timeout(1_200)
HALF = 900
SAID_BEFORE_LOGGING = (
    *("Picked up JAVA_TOOL_OPTIONS", "WARNING: Using incubator modules"),
    *("Setting default log level", "To adjust logging level"),
)


def test_streams_of_one_driver_fail_stop_and_start_alone(deployment: Deployment) -> None:
    deployment.settings = replace(deployment.settings, log_format="json")
    connection, group = deployment.connection, shared_driver.name
    create_topics(connection, [steady, fickle, strict])
    produce(connection, purchases(group_purchases.name, 0, HALF))

    def has_read(records: int, stream: str, epoch: int) -> StreamStatus:
        def holds(status: StreamStatus) -> bool:
            assert status.lease_epoch <= epoch, f"{stream} was started again"
            return status.lease_epoch == epoch and status.records_total == records and status.lag == 0

        return status_when(deployment, holds, stream)

    for stream in shared_driver.members:
        request_run(connection, stream, 0)
    [port] = free_ports(1)
    driver = deployment.start(DRIVER_PROCESS, "--group", group, "--on-order", "--metrics-port", str(port))
    refused = status_when(deployment, lambda status: status.is_over, "strict")
    assert (refused.state, refused.final, refused.lease_epoch) == ("failed", True, 1)
    assert refused.error is not None
    assert "bad record" in refused.error
    running = [has_read(HALF, stream, epoch=1) for stream in ("steady", "fickle")]
    assert {status.pid for status in (refused, *running)} == {driver.process.pid}
    assert len({status.application_id for status in (refused, *running)}) == 1

    assert_it_serves_its_metrics(port)
    second = deployment.start(deployment.project.spark_jobs / "stream.py", "--group", group, "--on-order")
    assert second.finish() != 0
    assert f"group {group} has a driver" in second.said()

    request_stop(connection, "fickle", 1)
    status_when(deployment, lambda status: status.state == "stopped", "fickle")
    produce(connection, purchases(group_purchases.name, HALF, HALF))
    has_read(2 * HALF, "steady", epoch=1)
    request_run(connection, "fickle", 1)
    assert has_read(HALF, "fickle", epoch=2).pid == driver.process.pid

    driver.process.send_signal(signal.SIGTERM)
    assert driver.finish() == 0, driver.said()
    for name in ("steady", "fickle", status_of_group(group)):
        assert status_when(deployment, lambda status: status.is_over, name).state == "stopped"
    for topology in (steady, fickle):
        assert_each_offset_once(proofs(deployment.tables.state(topology.name)), 2 * HALF)
        assert by_key(committed(connection, f"{topology.name}-revenue")) == expected_output(2 * HALF, topology)
        assert_an_answer_is_what_kafka_has(deployment, topology)
    assert proofs(deployment.tables.state("strict")) == []
    assert committed(connection, "strict-revenue") == []
    assert_metrics_are_those_of_the_driver(deployment)
    assert_each_line_of_its_log_is_an_object(driver)


def assert_it_serves_its_metrics(port: int) -> None:
    """Of each stream of the driver, and of what their operators keep: steady and fickle have windows open."""
    families = list(text_string_to_metric_families(httpx.get(f"http://127.0.0.1:{port}/metrics").text))
    told = {(one.name, one.labels["stream"], one.labels.get("state")): one.value for f in families for one in f.samples}
    assert told["recount_stream_state", "strict", "failed"] == 1
    for stream in ("steady", "fickle"):
        assert told["recount_stream_records_total", stream, None] == HALF
        assert told["recount_operator_puts_total", stream, None] > 0


def assert_each_line_of_its_log_is_an_object(driver: Driver) -> None:
    """Apart from what a JVM says before it logs; lines about a batch name the stream, the lease and the batch."""
    lines = driver.log.read_text().splitlines()
    said = [json.loads(line) for line in lines if not line.startswith(SAID_BEFORE_LOGGING)]
    batches = [one for one in said if one["logger"] == "recount.engine.commit.batch"]
    assert {(one["stream"], one["lease_epoch"]) for one in batches} == {("steady", 1), ("fickle", 1), ("fickle", 2)}
    assert all(one["msg"].startswith(f"batch {one['batch']} ") for one in batches)


def assert_an_answer_is_what_kafka_has(deployment: Deployment, topology: Topology) -> None:
    """The newest record of each key and window on the topic of results is a row, and there is no other row."""
    sink, now_ms = asked_sink(topology, None), time.time_ns() // 1_000_000
    found = answer(deployment.tables, Question(sink=sink, limit=MOST_ROWS), now_ms)
    answered = [
        (str(row["region"]).encode(), encode_value({name: row[name] for name in sink.fields})) for row in found.rows
    ]
    newest = {
        (record.key(), dict(record.headers() or ())["recount-window"]): record.value()
        for record in committed(deployment.connection, sink.name)
    }
    assert found.total == len(found.rows)
    assert sorted(answered) == sorted((key, value) for (key, _), value in newest.items()) != []


def assert_metrics_are_those_of_the_driver(deployment: Deployment) -> None:
    """What is told of a stream that has read all there is."""
    topics = {one.name: [group_purchases.name] for one in (steady, strict)}
    exposition = Exposition(
        tables=deployment.tables,
        streams=[steady, strict],
        ask=BrokerReader(deployment.connection, topics, patience_s=60),
    )
    families = list(text_string_to_metric_families(exposition.rendered().decode()))
    samples = [one for family in families for one in family.samples if one.labels.get("stream") != strict.name]
    told = {(one.name, one.labels.get("state")): one.value for one in samples}
    assert {one.value for one in samples if one.name == "recount_source_up"} == {1}
    assert told["recount_stream_records_total", None] == 2 * HALF
    assert told["recount_stream_state", "stopped"] == 1
    lags = [one for one in samples if one.name == "recount_partition_lag_offsets"]
    assert {(one.labels["topic"], one.value) for one in lags} == {(group_purchases.name, 0)}
