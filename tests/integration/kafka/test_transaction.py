"""Output records and input offsets: both or neither, once, and only from the newest producer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import eventually
from tests.integration.engine.drivers import committed
from tests.integration.kafka.conftest import MakeTopic, Read

from recount.declare.output import SOURCE_HEADER
from recount.declare.topics import Topic
from recount.engine.driver.runner import is_final
from recount.kafka.connection import Connection, Fenced
from recount.kafka.dead_letters import LEFT_OUT, KafkaRecord, RecordTooLarge, dead_letter
from recount.kafka.leases import ControlChannel, request_stop
from recount.kafka.topic_drift import platform_topics
from recount.kafka.topics_on_cluster import apply, plan
from recount.kafka.transaction import Aborted, OffsetsDisagree, OutputTransaction
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Home, Project
from recount.runtime.errors import Terminal


class OneBatch:
    """A source with one partition, an output, and a stream that reads 100 offsets a batch."""

    def __init__(self, connection: Connection, source: str, output: str, stream: str) -> None:
        self.connection, self.source, self.output, self.stream = connection, source, output, stream

    def open(self, slot: str = "0", **options: Any) -> OutputTransaction:
        return OutputTransaction(self.connection, self.stream, slot, **options)

    def commit(self, transaction: OutputTransaction, batch: int, values: list[bytes]) -> str:
        records = [KafkaRecord(topic=self.output, key=b"key", value=value) for value in values]
        return transaction.commit_once(
            records,
            start_offsets={(self.source, 0): 100 * batch},
            end_offsets={(self.source, 0): 100 * (batch + 1)},
            batch=batch,
        )

    def committed(self) -> int | None:
        transaction = self.open("another-slot")
        found = transaction.committed([(self.source, 0)])
        return found[self.source, 0].offset if found else None


@pytest.fixture
def stream(connection: Connection, make_topic: MakeTopic, unique: Callable[[str], str]) -> OneBatch:
    return OneBatch(connection, make_topic("orders"), make_topic("revenue"), unique("stream"))


def values(read: Read, topic: str) -> list[bytes | None]:
    return [record.value() for record in read(topic)]


def test_a_record_keeps_headers_timestamp_and_partition(stream: OneBatch, make_topic: MakeTopic, read: Read) -> None:
    output = make_topic("partitioned", partitions=3)
    record = KafkaRecord(
        topic=output,
        key=b"k",
        value=None,
        headers=(("recount-revision", b"2"),),
        timestamp_ms=1_690_000_000_000,
        partition=2,
    )
    stream.open().commit_once([record], start_offsets={}, end_offsets={(stream.source, 0): 1}, batch=0)
    [written] = read(output)
    assert (written.key(), written.value(), written.partition()) == (b"k", None, 2)
    assert written.headers() == [("recount-revision", b"2")]
    assert written.timestamp()[1] == 1_690_000_000_000


def test_a_replayed_batch_writes_nothing(stream: OneBatch, read: Read) -> None:
    stream.commit(stream.open(), 0, [b"a"])
    assert stream.commit(stream.open(), 0, [b"a"]) == "replayed"
    assert values(read, stream.output) == [b"a"]


def test_a_replay_of_an_empty_offset_range_is_told_by_its_batch(stream: OneBatch, read: Read) -> None:
    transaction = stream.open()
    stream.commit(transaction, 0, [b"a"])
    here = {(stream.source, 0): 100}

    def timer(batch: int) -> str:
        records = [KafkaRecord(topic=stream.output, key=b"k", value=b"timer")]
        return transaction.commit_once(records, start_offsets=here, end_offsets=here, batch=batch)

    assert [timer(1), timer(1), timer(2)] == ["committed", "replayed", "committed"]
    assert values(read, stream.output) == [b"a", b"timer", b"timer"]


def test_a_batch_that_is_neither_next_nor_last_is_refused(stream: OneBatch, read: Read) -> None:
    transaction = stream.open()
    stream.commit(transaction, 0, [b"a"])
    stream.commit(transaction, 1, [b"b"])
    for astray in (0, 3):
        with pytest.raises(OffsetsDisagree):
            stream.commit(transaction, astray, [b"x"])
    assert values(read, stream.output) == [b"a", b"b"]


def test_a_zombie_is_fenced_and_leaves_nothing(stream: OneBatch, read: Read) -> None:
    zombie = stream.open()
    successor = stream.open()
    with pytest.raises(Fenced):
        stream.commit(zombie, 0, [b"zombie"])
    stream.commit(successor, 0, [b"a"])
    assert values(read, stream.output) == [b"a"]


def test_an_error_in_mid_batch_leaves_nothing_and_the_batch_can_be_written_again(stream: OneBatch, read: Read) -> None:
    class BreaksInTheMiddle(list[KafkaRecord]):
        def __iter__(self) -> Iterator[KafkaRecord]:
            yield KafkaRecord(topic=stream.output, key=b"k", value=b"half")
            raise RuntimeError("broken")

    transaction = stream.open()
    with pytest.raises(RuntimeError, match="broken"):
        transaction.commit_once(BreaksInTheMiddle(), start_offsets={}, end_offsets={(stream.source, 0): 100}, batch=0)
    assert transaction.committed([(stream.source, 0)]) == {}
    assert stream.commit(transaction, 0, [b"whole"]) == "committed"
    assert values(read, stream.output) == [b"whole"]


def test_a_record_that_is_too_large_is_named_and_terminal_and_leaves_nothing(stream: OneBatch, read: Read) -> None:
    """The broker refuses it: of bytes that no codec makes smaller."""
    transaction, headers = stream.open(), ((SOURCE_HEADER, b"orders-0@7"),)
    large = KafkaRecord(topic=stream.output, key=b"k" * 930_000, value=os.urandom(2_000_000), headers=headers)
    with pytest.raises(RecordTooLarge) as refused:
        transaction.commit_once(
            [KafkaRecord(topic=stream.output, key=b"key", value=b"small"), large],
            start_offsets={(stream.source, 0): 0},
            end_offsets={(stream.source, 0): 100},
            batch=0,
        )
    assert is_final(refused.value), "no relaunch of the driver can help"
    assert stream.output in refused.value.what
    assert f"key '{'k' * 40}'… of 930,000 bytes" in str(refused.value.given)
    assert f"{large.size:,} bytes in all, made of orders-0@7" in str(refused.value.given)
    assert "1,048,588 bytes" in refused.value.expected
    assert "max.message.bytes" in refused.value.remedy
    assert refused.value.record == "orders-0@7"
    assert values(read, stream.output) == []
    assert stream.committed() is None


def test_small_records_reach_a_topic_that_takes_no_large_batch(
    stream: OneBatch, read: Read, make_topic: MakeTopic
) -> None:
    """And a dead letter is made so small that its topic takes it."""
    stream.output = make_topic("small", configs={"max.message.bytes": "2000"})
    transaction = stream.open()
    written = [os.urandom(500) for _ in range(100)]
    assert stream.commit(transaction, 0, written) == "committed"
    assert values(read, stream.output) == written
    place = {"stream": "s", "topic": "t", "partition": 0, "offset": 1, "timestamp_ms": 0, "reason": "r", "error": "e"}
    limit = transaction.limits[stream.output]
    letter = dead_letter(destination=stream.output, key=None, value=os.urandom(1_900), limit=limit, **place)
    assert (LEFT_OUT, b"1900") in letter.headers
    transaction.commit_once(
        [letter], start_offsets={(stream.source, 0): 100}, end_offsets={(stream.source, 0): 200}, batch=1
    )
    assert len(read(stream.output)) == 101


def test_a_batch_larger_than_the_client_buffer_is_one_transaction(stream: OneBatch, read: Read) -> None:
    stream.commit(stream.open(), 0, [b"%d" % number for number in range(250_000)])
    assert len(read(stream.output)) == 250_000


class Interrupted(list[KafkaRecord]):
    """``record``; while the first ``times`` tries produce it, ``happens`` does."""

    def __init__(self, record: KafkaRecord, happens: Callable[[], object], times: int = 1) -> None:
        super().__init__([record])
        self._happens, self._left = happens, times

    def __iter__(self) -> Iterator[KafkaRecord]:
        yield from super().__iter__()
        if self._left:
            self._left -= 1
            self._happens()


def commit_interrupted(stream: OneBatch, transaction: OutputTransaction, happens: Callable[[], object], n: int) -> str:
    records = Interrupted(KafkaRecord(topic=stream.output, key=b"k", value=b"%d" % n), happens, n)
    return transaction.commit_once(records, start_offsets={}, end_offsets={(stream.source, 0): 100}, batch=0)


def test_a_driver_that_holds_its_lease_takes_its_outputs_back_from_one_that_was_held_up(
    stream: OneBatch, read: Read
) -> None:
    asked: list[None] = []
    transaction = stream.open(confirm=lambda: asked.append(None))
    assert commit_interrupted(stream, transaction, stream.open, 1) == "committed"
    assert len(asked) == 2, "before it opens anew, and after"
    assert values(read, stream.output) == [b"1"]
    assert stream.commit(transaction, 1, [b"next"]) == "committed"


def test_a_driver_that_lost_its_lease_stays_fenced(stream: OneBatch, read: Read) -> None:
    def lost() -> None:
        raise Fenced("a newer driver has the lease")

    with pytest.raises(Fenced, match="lease"):
        commit_interrupted(stream, stream.open(confirm=lost), stream.open, 1)
    assert values(read, stream.output) == []


def test_a_transaction_that_is_aborted_again_names_the_setting_and_the_size_of_the_batch(
    stream: OneBatch, read: Read
) -> None:
    transaction = stream.open(confirm=lambda: None)
    with pytest.raises(Aborted) as aborted:
        commit_interrupted(stream, transaction, stream.open, 2)
    assert "--transaction-timeout-ms" in aborted.value.remedy
    assert "--max-offsets" in aborted.value.remedy
    assert str(aborted.value.given).startswith("1 records in ")
    assert values(read, stream.output) == []


@pytest.mark.thorough
def test_a_transaction_that_outlives_its_timeout_is_tried_again_and_committed_once(
    stream: OneBatch, read: Read
) -> None:
    transaction = stream.open(transaction_timeout_ms=1_000, confirm=lambda: None)
    # the broker looks every ten seconds for transactions that have timed out
    assert commit_interrupted(stream, transaction, lambda: time.sleep(13), 1) == "committed"
    assert values(read, stream.output) == [b"1"]


def test_a_timeout_that_the_brokers_do_not_allow_is_refused_with_its_name(stream: OneBatch) -> None:
    with pytest.raises(Terminal) as refused:
        stream.open(transaction_timeout_ms=10_000_000)
    assert "transaction.max.timeout.ms" in refused.value.remedy


def test_one_time_iterators_are_refused(stream: OneBatch) -> None:
    with pytest.raises(Terminal):
        stream.open().commit_once(iter([]), start_offsets={}, end_offsets={(stream.source, 0): 100}, batch=0)


@pytest.mark.thorough
def test_a_broker_that_was_killed_comes_back_with_its_records_and_holds_up_the_next_batch_for_seconds(
    project: Project, tmp_path: Path
) -> None:
    """The producer still knows which broker keeps the group's offsets, and waits for ever for its connection."""
    with EmbeddedKafka(home=Home(path=tmp_path), project=project) as broker:
        connection, servers = Connection(bootstrap_servers=broker.bootstrap_servers), broker.bootstrap_servers
        admin = connection.admin()
        topics = [Topic(name=name, key="k", partitions=1) for name in ("orders", "revenue")]
        apply(admin, plan(admin, [*platform_topics(), *topics], "embedded"))
        stream = OneBatch(connection, "orders", "revenue", "restarted")
        transaction, channel = stream.open(confirm=lambda: None), ControlChannel(connection, "restarted", 1)
        assert stream.commit(transaction, 0, [b"a"]) == "committed"
        assert not channel.stop_requested()
        broker.stop_broker(1, patience_s=0)
        assert not broker.runs(1)
        assert not channel.stop_requested()
        broker.start()
        assert broker.bootstrap_servers == servers
        began = time.monotonic()
        assert stream.commit(transaction, 1, [b"b"]) == "committed"
        assert time.monotonic() - began < 100, "not the time that the whole batch may take"
        assert stream.commit(transaction, 1, [b"b"]) == "replayed"
        assert stream.commit(transaction, 2, [b"c"]) == "committed"
        assert stream.committed() == 300
        assert [record.value() for record in committed(connection, "revenue")] == [b"a", b"b", b"c"]
        request_stop(connection, "restarted", 1)
        assert eventually(channel.stop_requested, True, limit_s=60)
        channel.close()
