"""Every offset is accounted for: visible, aborted, a transaction marker, compacted or expired."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from tests.consumer_groups import described
from tests.eventually import eventually
from tests.integration.kafka.conftest import MakeTopic, Read
from tests.integration.kafka.test_transaction import OneBatch

from recount.kafka.connection import Connection
from recount.kafka.lags import lags_of
from recount.kafka.offsets import classify_gap, log_ranges, partitions_of
from recount.kafka.positions import last_position, published_offsets
from recount.kafka.topic_drift import POSITIONS
from recount.kafka.transaction import KafkaRecord, OffsetsDisagree, OutputTransaction
from recount.profile.home import Project
from recount.runtime.errors import Terminal, Transient


def write(connection: Connection, topic: str, transactional_id: str, values: list[bytes], *, commit: bool) -> None:
    producer = connection.producer({"transactional.id": transactional_id})
    producer.init_transactions(20)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, key=b"k", value=value)
    producer.flush(10)
    (producer.commit_transaction if commit else producer.abort_transaction)(10)


def test_markers_and_aborted_records_explain_the_gaps(
    connection: Connection, make_topic: MakeTopic, unique: Callable[[str], str]
) -> None:
    """
    offset  0 1 2   3       4 5      6       7 8   9
            a b c   commit  x y      abort   d e   commit
    """
    topic = make_topic("log")
    write(connection, topic, unique("writer"), [b"a", b"b", b"c"], commit=True)
    write(connection, topic, unique("writer"), [b"x", b"y"], commit=False)
    write(connection, topic, unique("writer"), [b"d", b"e"], commit=True)
    assert eventually(lambda: log_ranges(connection, [(topic, 0)])[topic, 0].end, 10) == 10
    whole = classify_gap(connection, topic, 0, 0, 10)
    assert (whole.visible, whole.aborted, whole.control, whole.compacted, whole.expired) == (5, 2, 3, 0, 0)
    aborted = classify_gap(connection, topic, 0, 4, 6)
    assert (aborted.visible, aborted.aborted, aborted.control) == (0, 2, 0)
    marker = classify_gap(connection, topic, 0, 3, 4)
    assert (marker.visible, marker.aborted, marker.control) == (0, 0, 1)


def test_deleted_records_count_as_expired(connection: Connection, make_topic: MakeTopic) -> None:
    topic = make_topic("log")
    producer = connection.producer()
    for number in range(10):
        producer.produce(topic, value=b"%d" % number)
    producer.flush(10)
    admin = connection.admin()
    for answer in admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        answer.result()
    gap = classify_gap(connection, topic, 0, 2, 8)
    assert (gap.expired, gap.visible, gap.control) == (4, 2, 0)
    assert classify_gap(connection, topic, 0, 0, 6).expired == 6


def test_lag_is_what_kafka_s_own_tool_says_and_counts_what_a_transaction_hides(
    connection: Connection, project: Project, make_topic: MakeTopic, unique: Callable[[str], str]
) -> None:
    source, stream = make_topic("source", partitions=2), unique("stream")
    producer = connection.producer()
    for partition, records in enumerate((5, 3)):
        for _ in range(records):
            producer.produce(source, value=b"v", partition=partition)
    producer.flush(10)
    OutputTransaction(connection, stream).commit_once(
        [KafkaRecord(topic=make_topic("out"), key=None, value=b"v")],
        start_offsets={(source, 0): 0},
        end_offsets={(source, 0): 4},
        batch=0,
    )
    till = connection.producer({"transactional.id": unique("till")})
    till.init_transactions(20)
    till.begin_transaction()
    till.produce(source, value=b"undecided", partition=0)
    till.flush(10)
    found = lags_of(connection, {stream: [source], "nobody": [source, unique("missing")]})
    parts = found[stream].partitions
    assert [(one.committed, one.end, one.lag, one.readable) for one in parts.values()] == [
        (4, 6, 2, 1),
        (None, 3, 3, 3),
    ]
    assert found["nobody"].records == 9, "the whole log"
    [told] = described(project, connection.bootstrap_servers, [f"recount.{stream}"]).values()
    assert {place: (one.committed, one.end, one.lag) for place, one in told.items()} == {(source, 0): (4, 6, 2)}
    assert lags_of(connection, {stream: [source]}, lambda _: {(source, 0): 1, (source, 1): 2})[stream].records == 2 + 1
    till.abort_transaction(10)


def test_a_missing_topic_is_terminal(connection: Connection, unique: Callable[[str], str]) -> None:
    with pytest.raises(Terminal):
        partitions_of(connection, unique("missing"))


def test_a_process_forked_from_one_that_asked_has_a_client_of_its_own(
    connection: Connection, make_topic: MakeTopic
) -> None:
    """Airflow forks its tasks; the threads of the parent's client do not run in them."""
    place = (make_topic("asked"), 0)
    asked = log_ranges(connection, [place])
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=lambda: answers.put(log_ranges(connection, [place])))
    child.start()
    child.join(20)
    child.kill()
    assert child.exitcode == 0
    assert answers.get() == asked


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
