"""Output records and input offsets: both or neither, once, and only from the newest producer."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.kafka.conftest import MakeTopic, Read

from recount.core.errors import Terminal
from recount.kafka.connection import Connection, Fenced
from recount.kafka.transaction import KafkaRecord, OffsetsDisagree, OutputTransaction

KILLED_DRIVER = Path(__file__).with_name("killed_driver.py")


class OneBatch:
    """A source with one partition, an output, and a stream that reads 100 offsets a batch."""

    def __init__(self, connection: Connection, source: str, output: str, stream: str) -> None:
        self.connection, self.source, self.output, self.stream = connection, source, output, stream

    def open(self, slot: str = "0") -> OutputTransaction:
        return OutputTransaction(self.connection, self.stream, slot)

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


def test_records_and_offsets_are_committed_together(stream: OneBatch, read: Read) -> None:
    transaction = stream.open()
    assert stream.commit(transaction, 0, [b"a", b"b"]) == "committed"
    assert values(read, stream.output) == [b"a", b"b"]
    [committed] = transaction.committed([(stream.source, 0)]).values()
    assert (committed.offset, committed.stream, committed.batch) == (100, stream.stream, 0)


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


def test_a_record_that_is_too_large_is_terminal_and_leaves_nothing(stream: OneBatch, read: Read) -> None:
    with pytest.raises(Terminal):
        stream.commit(stream.open(), 0, [b"small", b"x" * 2_000_000])
    assert values(read, stream.output) == []
    assert stream.committed() is None


def test_a_batch_larger_than_the_client_buffer_is_one_transaction(stream: OneBatch, read: Read) -> None:
    stream.commit(stream.open(), 0, [b"%d" % number for number in range(250_000)])
    assert len(read(stream.output)) == 250_000


def test_what_a_killed_driver_left_open_is_aborted_by_its_successor(
    stream: OneBatch, read: Read, connection: Connection
) -> None:
    driver = subprocess.Popen(
        [sys.executable, str(KILLED_DRIVER), connection.bootstrap_servers, stream.stream, stream.source, stream.output],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    assert driver.stdout.readline().strip() == "before commit"
    driver.send_signal(signal.SIGKILL)
    driver.wait(10)
    assert values(read, stream.output) == []
    successor = stream.open()
    assert successor.committed([(stream.source, 0)]) == {}
    assert stream.commit(successor, 0, [b"a"]) == "committed"
    assert values(read, stream.output) == [b"a"]


def test_one_time_iterators_are_refused(stream: OneBatch) -> None:
    with pytest.raises(Terminal):
        stream.open().commit_once(iter([]), start_offsets={}, end_offsets={(stream.source, 0): 100}, batch=0)
