"""The published head decides who issues number n, wherever the certificates lie (issue 12, 4)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.integration.kafka.conftest import MakeTopic, Read
from tests.unit.audit.documents import findings

from recount.audit.certificate.issuing import issue
from recount.audit.certificate.signing import BrokenChain, verify
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.kafka.compacted import HeadPublisher, UnreadableHead, published_head
from recount.kafka.connection import BACKFILL_SLOT, Connection, Fenced
from recount.kafka.offsets import Partition
from recount.kafka.positions import backfill_counter, backfills_of, published_backfills
from recount.kafka.topic_drift import CERTIFICATES
from recount.kafka.transaction import KafkaRecord, OutputTransaction
from recount.profile.home import Project

_ISSUE_MANY = """
import sys
from tests.unit.audit.documents import findings
from recount.audit.certificate.issuing import issue
from recount.kafka.connection import Connection
from recount.kafka.compacted import HeadPublisher
stream, name, root, servers = sys.argv[1:]
for n in range(4):
    opened = lambda: HeadPublisher(Connection(bootstrap_servers=servers), stream)
    issue(stream, f"{name}-{n}", lambda: findings(f"{name}-{n}") | {"stream": stream}, root, opened=opened)
"""


def head(stream: str, sequence: int) -> dict[str, object]:
    said = {"stream": stream, "sequence": sequence, "audit": f"night-{sequence}", "sha256": f"{sequence:064}"}
    return said | {"key_id": None, "signature": None}


def test_only_the_publisher_opened_last_can_publish_the_next_head(
    connection: Connection, unique: Callable[[str], str]
) -> None:
    stream = unique("revenue")
    assert published_head(connection, stream) is None
    with HeadPublisher(connection, stream) as first, HeadPublisher(connection, stream) as second:
        assert (first.read(), second.read()) == (None, None)
        second.publish(head(stream, 1))
        with pytest.raises(Fenced):
            first.publish(head(stream, 1) | {"audit": "the other number 1"})
    assert published_head(connection, stream) == head(stream, 1)


@pytest.mark.thorough
def test_a_publisher_killed_in_its_transaction_hides_no_head_of_another_stream(
    connection: Connection, unique: Callable[[str], str]
) -> None:
    mine, killed = unique("mine"), unique("killed")
    with HeadPublisher(connection, killed) as publisher:
        publisher._producer.begin_transaction()
        publisher._producer.produce(CERTIFICATES, key=killed, value=b"never committed")
        publisher._producer.flush(10)
        with HeadPublisher(connection, mine) as other:
            other.publish(head(mine, 1))
        assert published_head(connection, mine) == head(mine, 1)
        assert published_head(connection, killed) is None


def test_two_machines_that_issue_at_once_share_no_number(
    connection: Connection, unique: Callable[[str], str], tmp_path: Path, project: Project, read: Read
) -> None:
    stream = unique("revenue")
    environment = {**os.environ, "PYTHONPATH": str(project.root)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _ISSUE_MANY, stream, name, str(tmp_path / name), connection.bootstrap_servers],
            env=environment,
        )
        for name in ("one", "two")
    ]
    ended = [process.wait(240) for process in started]
    issued = [json.loads(path.read_text()) for path in tmp_path.glob("*/certificates/*/*.json")]
    heads = [json.loads(record.value() or b"") for record in read(CERTIFICATES) if record.key() == stream.encode()]
    assert ended == [0, 0]
    assert sorted(one["sequence"] for one in issued) == list(range(1, 9))
    assert [one["sequence"] for one in heads] == list(range(1, 9))
    by_number = {one["sequence"]: one["sha256"] for one in issued}
    assert [one["previous_sha256"] for one in sorted(issued, key=lambda one: int(one["sequence"]))] == [
        None,
        *(by_number[number] for number in range(1, 8)),
    ]


def test_verify_finds_that_the_newest_was_deleted_and_that_the_head_was(
    connection: Connection, unique: Callable[[str], str], tmp_path: Path
) -> None:
    stream = unique("revenue")
    for night in range(1, 4):
        name = f"night-{night}"
        said = partial(lambda audit: findings(audit) | {"stream": stream}, name)
        newest = issue(stream, name, said, str(tmp_path), opened=lambda: HeadPublisher(connection, stream))

    def faults() -> list[tuple[str, int | None]]:
        try:
            verify(chain=newest.parent, head=CERTIFICATES, bootstrap_servers=connection.bootstrap_servers)
        except BrokenChain as broken:
            return [(fault.kind, fault.number) for fault in broken.faults]
        return []

    assert faults() == []
    kept = newest.read_bytes()
    newest.unlink()
    assert faults() == [("newest deleted", 3)]
    newest.write_bytes(kept)
    producer = connection.producer()
    producer.produce(CERTIFICATES, key=stream, value=None)
    assert producer.flush(10) == 0
    assert faults() == [("unpublished", 3)]
    producer.produce(CERTIFICATES, key=stream, value=b"\xff\xfe")
    assert producer.flush(10) == 0
    assert faults() == [("altered", None)]
    with pytest.raises(UnreadableHead):
        published_head(connection, stream)


class Backfilled:
    """A stream that writes to ``orders``, and its backfills."""

    def __init__(self, connection: Connection, name: str, orders: str) -> None:
        source = stream(Topic(name="sales", key="till", value=RecordSchema.of(till=STRING)))
        self.connection, self.orders = connection, orders
        self.topology = Topology(name=name, sinks=[source.to(Topic(name=orders, key="till"))])

    def open(self) -> OutputTransaction:
        group = self.connection.backfill_group(self.topology.name)
        return OutputTransaction(self.connection, self.topology.name, BACKFILL_SLOT, group=group)

    def publish(self, number: int, counter: Partition) -> str:
        return self.open().commit_once(
            [KafkaRecord(topic=self.orders, key=b"till", value=b"%d" % number)],
            start_offsets={counter: number},
            end_offsets={counter: number + 1},
            batch=f"backfill {number}",
        )

    def expire(self) -> None:
        """What seven days without a backfill do."""
        [gone] = self.connection.admin().delete_consumer_groups([f"recount.{self.topology.name}.backfill"]).values()
        gone.result()

    def counts(self) -> set[int]:
        """As an audit and as the next backfill read it."""
        return {published_backfills(self.connection, self.topology), backfills_of(self.open(), self.connection)}


@pytest.fixture
def backfilled(connection: Connection, make_topic: MakeTopic) -> Backfilled:
    return Backfilled(connection, f"stream-{uuid.uuid4().hex}", make_topic("orders"))


def test_each_backfill_counts_once_and_also_after_the_offsets_expired(backfilled: Backfilled, read: Read) -> None:
    counter = backfill_counter(backfilled.connection)
    assert backfilled.counts() == {0}
    assert [backfilled.publish(number, counter) for number in (0, 1, 1)] == ["committed", "committed", "replayed"]
    assert backfilled.counts() == {2}
    backfilled.expire()
    assert backfilled.counts() == {2}
    assert [record.value() for record in read(backfilled.orders)] == [b"0", b"1"]
