"""Transaction markers and aborted records take up offsets that no record answers for: the audit looks them up."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from tests.spark.audit.conftest import MINUTE_MS, START_MS, Scene, order

pytestmark = pytest.mark.timeout(900)
"""Streams and audits run for real: minutes where other work shares the machine."""


def append(producer: Producer, scene: Scene, minutes: range) -> None:
    producer.begin_transaction()
    for minute in minutes:
        value = json.dumps(order("EU", 1)).encode()
        producer.produce(scene.orders, value=value, partition=0, timestamp=START_MS + minute * MINUTE_MS)
    producer.flush(30)


def test_every_offset_of_a_transactional_producer_is_accounted_for(scene: Scene) -> None:
    producer = scene.connection.producer({"transactional.id": f"orders of {scene.orders}"})
    producer.init_transactions(30)
    append(producer, scene, range(10))
    producer.commit_transaction(30)
    append(producer, scene, range(10, 13))
    producer.abort_transaction(30)
    append(producer, scene, range(10, 20))
    producer.commit_transaction(30)
    scene.run()

    found = scene.audit().findings

    assert found.outcome == "match"
    [account, empty] = found.accounts
    assert (account.end, account.records, account.control, account.aborted, account.unaccounted) == (26, 20, 3, 3, 0)
    assert (empty.end, empty.records) == (0, 0)
