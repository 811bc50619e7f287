"""Three streams in one driver: one fails, one is stopped and started again, and one notices nothing."""

from __future__ import annotations

import signal

import pytest
from tests.integration.spark.drivers import Deployment, by_key, committed, proofs
from tests.integration.spark.purchases import create_topics, produce, purchases
from tests.integration.spark.streams import fickle, group_purchases, shared_driver, steady, strict
from tests.integration.spark.test_cuts import assert_each_offset_once
from tests.integration.spark.test_drivers import expected_output, status_when

from recount.kafka.control import request_run, request_stop
from recount.kafka.status import StreamStatus, status_of_group

pytestmark = pytest.mark.timeout(1_200)
HALF = 900


def test_streams_of_one_driver_fail_stop_and_start_alone(deployment: Deployment) -> None:
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
    driver = deployment.start(deployment.project.spark_jobs / "stream.py", "--group", group, "--on-order")
    refused = status_when(deployment, lambda status: status.is_over, "strict")
    assert (refused.state, refused.final, refused.lease_epoch) == ("failed", True, 1)
    assert refused.error is not None
    assert "bad record" in refused.error
    running = [has_read(HALF, stream, epoch=1) for stream in ("steady", "fickle")]
    assert {status.pid for status in (refused, *running)} == {driver.process.pid}
    assert len({status.application_id for status in (refused, *running)}) == 1

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
    assert proofs(deployment.tables.state("strict")) == []
    assert committed(connection, "strict-revenue") == []
