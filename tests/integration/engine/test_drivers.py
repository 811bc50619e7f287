"""The life of a driver: it reports, is fenced, stops when asked or short of memory, and outlives its checkpoint."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.consumer_groups import described
from tests.integration.engine.drivers import Deployment, assert_each_offset_once, by_key, committed, proofs
from tests.integration.engine.purchases import create_topics, produce, purchases
from tests.integration.engine.streams import live, live_purchases

from recount.declare.fingerprint import Declared
from recount.declare.output import output_record
from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.kafka.leases import request_stop
from recount.kafka.status import StatusBoard, StreamStatus
from recount.kafka.topic_drift import HISTORY
from recount.reference.topology_driver import TopologyDriver
from recount.runtime.console import EXIT_TERMINAL
from recount.tables.decisions import DeclarationLog

pytestmark = pytest.mark.timeout(1_200)
HALF = 900


def status_when(
    deployment: Deployment, holds: Callable[[StreamStatus], bool], stream: str = "live", timeout_s: float = 300
) -> StreamStatus:
    """The stream's status as soon as it is as it should be."""
    board = StatusBoard(deployment.connection)
    deadline = time.monotonic() + timeout_s
    try:
        while not ((status := board.of(stream)) and holds(status)):
            assert time.monotonic() < deadline, status
            time.sleep(0.2)
        return status
    finally:
        board.close()


def expected_output(records: int, topology: Topology = live) -> dict[bytes | None, list[tuple[object, ...]]]:
    """What the reference interpreter makes of the first ``records`` records, as a reader of Kafka sees it."""
    driver = TopologyDriver(topology)
    [source] = topology.sources
    for record in purchases(source.topic.name, 0, records):
        driver.pipe(
            record.topic,
            key=record.key,
            value=record.value,
            partition=record.partition or 0,
            timestamp_ms=record.timestamp_ms or 0,
        )
    [sink] = topology.sinks
    found: dict[bytes | None, list[tuple[object, ...]]] = {}
    for output in driver.outputs(sink.topic.name):
        assert output.value is not None
        encoded = output_record(
            output.value,
            key=sink.key,
            fields=sink.fields,
            timestamp_ms=output.timestamp_ms,
            revision=output.revision,
            origin="stream",
        )
        found.setdefault(encoded.key, []).append((encoded.value, list(encoded.headers), (1, encoded.timestamp_ms)))
    return found


def assert_an_open_transaction_is_named_and_counts_as_lag(deployment: Deployment) -> None:
    """The stream that has read everything else stands before it, and reads on when it is aborted."""
    connection, begun_ms = deployment.connection, time.time_ns() // 1_000_000
    till = connection.producer({"transactional.id": "till-3"})
    till.init_transactions(20)
    till.begin_transaction()
    till.produce(live_purchases.name, value=b"undecided", partition=1)
    till.flush(10)
    blocked = status_when(deployment, lambda status: status.blocked_by is not None)
    assert blocked.blocked_by is not None
    assert re.fullmatch(r"producer \d+ \(transactional\.id till-3\)", blocked.blocked_by)
    told = described(deployment.project, connection.bootstrap_servers, ["recount.live"])["recount.live"]
    assert sum(part.lag for part in told.values()) == blocked.lag == 1
    assert (blocked.blocked_place, blocked.blocked_offset) == (
        f"{live_purchases.name}-1",
        told[live_purchases.name, 1].committed,
    )
    for at_ms in (blocked.blocked_since_ms, blocked.oldest_unread_ms, blocked.lag_at_ms):
        assert at_ms is not None
        assert begun_ms <= at_ms <= blocked.heartbeat_ms
    assert blocked.waiting_since_ms is None, "nothing can be read: the driver stands still without a fault"
    till.abort_transaction(10)
    status_when(deployment, lambda status: status.blocked_place is None and status.lag == 0)


def test_a_stream_reports_is_fenced_stops_and_goes_on_without_its_checkpoint(deployment: Deployment) -> None:
    connection = deployment.connection
    create_topics(connection, [live])
    produce(connection, purchases(live_purchases.name, 0, HALF))

    first = deployment.start_stream("live", "--max-offsets", "500")
    status = status_when(deployment, lambda status: status.records_total == HALF and status.lag == 0)
    assert (status.state, status.lease_epoch) == ("running", 1)
    assert status.pid == first.process.pid
    assert status.batch is not None
    assert status.batch >= 1
    assert status.frontier_ms == proofs(deployment.tables.state("live"))[-1].frontier_ms
    assert status.late_records > 0
    assert status.dead_letters > 0

    second = deployment.start_stream("live", "--max-offsets", "500")
    assert first.finish() != 0
    assert "fenced" in first.said()
    status_when(deployment, lambda status: (status.state, status.lease_epoch) == ("running", 2))

    assert_an_open_transaction_is_named_and_counts_as_lag(deployment)
    request_stop(connection, "live", 2)
    assert second.finish() == 0, second.said()
    stopped = status_when(deployment, lambda status: status.is_over)
    assert (stopped.state, stopped.lease_epoch, stopped.error) == ("stopped", 2, None)
    states = [
        (status.lease_epoch, status.state)
        for record in committed(connection, HISTORY)
        if (status := StreamStatus.from_json(record.value() or b"")).stream == "live"
    ]
    assert [state for state in dict.fromkeys(states) if state[1] != "stopping"] == [
        (1, "starting"),
        (1, "running"),
        (2, "starting"),
        (2, "running"),
        (2, "stopped"),
    ]
    assert by_key(committed(connection, "live-revenue")) == expected_output(HALF)

    shutil.rmtree(Path(deployment.settings.checkpoints) / "live")
    produce(connection, purchases(live_purchases.name, HALF, HALF))
    before = len(proofs(deployment.tables.state("live")))
    later, live_now = deployment.drivers_in_turn(), ("--stream", "live", "--available-now")
    code, _ = later.run(*live_now, "--memory-limit-mib", "50")
    assert code != 0
    failed = status_when(deployment, lambda status: status.is_over and status.lease_epoch == 3)
    assert (failed.state, failed.memory_limit, failed.memory_left) == ("failed", 50 * 2**20, 0)
    assert failed.error is not None
    assert failed.error.startswith("no memory is left for another batch; given: '0 MiB left of 50 MiB; ")
    assert "rows kept: " in failed.error
    assert len(proofs(deployment.tables.state("live"))) == before

    code, said = later.run(*live_now)
    assert code == 0, said
    ledger = proofs(deployment.tables.state("live"))
    assert {proof.generation for proof in ledger} == {0, 1}
    assert_each_offset_once(ledger, 2 * HALF, unseen=2)
    assert by_key(committed(connection, "live-revenue")) == expected_output(2 * HALF)

    produce(connection, purchases(live_purchases.name, 2 * HALF, HALF))
    limit_records(connection, "live-revenue", 100)  # with less the broker could not write that a transaction ended
    code, said = later.run(*live_now)
    assert code == EXIT_TERMINAL, said
    failed = status_when(deployment, lambda status: status.is_over and status.lease_epoch == 5)
    assert failed.error is not None
    assert failed.error.startswith("Kafka refused a record that is larger than topic live-revenue takes")
    assert failed.final, "no relaunch can help: the brokers will refuse the record again"
    assert said.splitlines()[-1] == f"recount stream: no retry can help: {failed.error}"

    DeclarationLog(deployment.settings.data, "live").enact("first", Declared(document={"kind": "topology"}))
    code, said = later.run(*live_now)
    assert code == EXIT_TERMINAL, said
    failed = status_when(deployment, lambda status: status.is_over and status.lease_epoch == 6)
    assert failed.error is not None and "the declaration of stream live has changed" in failed.error
    assert failed.final, "it is said by a driver that is refused before it takes its lease, too"


def limit_records(connection: Connection, topic: str, largest: int) -> None:
    """Let the brokers refuse records of more bytes."""
    entry = ConfigEntry("max.message.bytes", str(largest), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    connection.admin().incremental_alter_configs([resource])[resource].result(20)
