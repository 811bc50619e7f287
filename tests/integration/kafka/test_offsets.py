"""Every offset is accounted for: visible, aborted, a transaction marker, compacted or expired."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition
from tests.consumer_groups import described
from tests.eventually import eventually
from tests.integration.kafka.conftest import MakeTopic

from recount.kafka.connection import Connection
from recount.kafka.lags import lags_of
from recount.kafka.offsets import classify_gap, log_ranges, partitions_of
from recount.kafka.transaction import KafkaRecord, OutputTransaction
from recount.profile.home import Project
from recount.runtime.errors import Terminal


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


def test_a_range_beyond_the_log_is_refused(connection: Connection, make_topic: MakeTopic) -> None:
    with pytest.raises(Terminal):
        classify_gap(connection, make_topic("log"), 0, 0, 1)


def test_an_open_transaction_is_not_yet_part_of_the_log(
    connection: Connection, make_topic: MakeTopic, unique: Callable[[str], str]
) -> None:
    topic = make_topic("log")
    producer = connection.producer({"transactional.id": unique("writer")})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, value=b"undecided")
    producer.flush(10)
    assert log_ranges(connection, [(topic, 0)])[topic, 0].end == 0
    producer.commit_transaction(10)
    deadline = time.monotonic() + 10
    while log_ranges(connection, [(topic, 0)])[topic, 0].end != 2:
        assert time.monotonic() < deadline


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
