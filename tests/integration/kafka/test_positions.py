"""Where Kafka stands with a stream is known when the offsets of its group are gone (issue 12, 2)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from tests.integration.kafka.conftest import MakeTopic, Read
from tests.integration.kafka.test_transaction import OneBatch

from recount.kafka.connection import Connection
from recount.kafka.positions import last_position, published_offsets
from recount.kafka.topic_drift import POSITIONS
from recount.kafka.transaction import OffsetsDisagree
from recount.runtime.errors import Transient


@pytest.fixture
def stream(connection: Connection, make_topic: MakeTopic, unique: Callable[[str], str]) -> OneBatch:
    return OneBatch(connection, make_topic("orders"), make_topic("revenue"), unique("stream"))


def expire(stream: OneBatch) -> None:
    """What seven days without a commit do."""
    admin = stream.connection.admin()
    [gone] = admin.delete_consumer_groups([stream.connection.group(stream.stream)]).values()
    gone.result()


def stranger(connection: Connection, unique: Callable[[str], str], name: str = "stranger") -> Producer:
    """Another stream with an open transaction in the topic of positions."""
    producer = connection.producer({"transactional.id": unique(name)})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(POSITIONS, key=unique(name), value=b"{}")
    producer.flush(10)
    return producer


def test_a_batch_whose_offsets_have_expired_is_not_written_again(stream: OneBatch, read: Read) -> None:
    for batch in range(2):
        stream.commit(stream.open(), batch, [b"%d" % batch])
    expire(stream)
    restarted = stream.open()
    [stands] = restarted.committed([(stream.source, 0)]).values()
    assert (stands.offset, stands.start, stands.batch) == (200, 100, 1)
    group = stream.connection.group(stream.stream)
    assert published_offsets(stream.connection, group, [(stream.source, 0)]) == {(stream.source, 0): 200}
    with pytest.raises(OffsetsDisagree):
        stream.commit(restarted, 0, [b"0"])
    assert stream.commit(restarted, 1, [b"1"]) == "replayed"
    assert stream.commit(restarted, 2, [b"2"]) == "committed"
    assert [record.value() for record in read(stream.output)] == [b"0", b"1", b"2"]


def test_the_offsets_of_the_group_rule_where_it_has_them(
    stream: OneBatch, connection: Connection, unique: Callable[[str], str]
) -> None:
    transaction = stream.open()
    stream.commit(transaction, 0, [b"a"])
    transaction.forget_position()
    assert last_position(connection, stream.stream) is None
    [stands] = transaction.committed([(stream.source, 0)]).values()
    assert (stands.offset, stands.batch) == (100, 0)


def test_a_position_that_was_forgotten_is_not_found(stream: OneBatch) -> None:
    stream.commit(stream.open(), 0, [b"a"])
    expire(stream)
    stream.open().forget_position()
    assert stream.open().committed([(stream.source, 0)]) == {}


def test_an_open_transaction_of_another_stream_holds_up_nothing(
    stream: OneBatch, connection: Connection, unique: Callable[[str], str]
) -> None:
    stream.commit(stream.open(), 0, [b"a"])
    # a commit is told before its markers are written: the next opening waits for them
    stream.open()
    other = stranger(connection, unique)
    try:
        begun = time.monotonic()
        found = last_position(connection, stream.stream)
        assert found is not None
        assert found.batch == 0
        assert time.monotonic() - begun < 10
    finally:
        other.abort_transaction(20)


def test_a_position_behind_an_open_transaction_is_waited_for(
    stream: OneBatch, connection: Connection, unique: Callable[[str], str]
) -> None:
    stream.commit(stream.open(), 0, [b"a"])
    stream.open()
    other = stranger(connection, unique)
    stream.commit(stream.open(), 1, [b"b"])
    expire(stream)
    with pytest.raises(Transient, match="open"):
        last_position(connection, stream.stream, patience_s=1)
    other.abort_transaction(20)
    found = last_position(connection, stream.stream)
    assert found is not None
    assert found.batch == 1


def test_a_position_is_found_before_the_marker_of_an_aborted_transaction_at_the_end(
    stream: OneBatch, connection: Connection, unique: Callable[[str], str]
) -> None:
    stream.commit(stream.open(), 0, [b"a"])
    for number in range(2):
        stranger(connection, unique, f"stranger-{number}").abort_transaction(20)
    found = last_position(connection, stream.stream)
    assert found is not None
    assert found.spans == {(stream.source, 0): (0, 100)}


def test_a_record_that_is_no_position_is_passed_over(stream: OneBatch, connection: Connection) -> None:
    stream.commit(stream.open(), 0, [b"a"])
    producer = connection.producer()
    for value in (b"\xff", b"[]", b'{"stream": 1}'):
        producer.produce(POSITIONS, key=stream.stream, value=value)
    assert producer.flush(10) == 0
    found = last_position(connection, stream.stream)
    assert found is not None
    assert found.batch == 0
