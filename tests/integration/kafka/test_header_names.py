"""The name of a header can be no UTF-8: no client of Python's writes it, and confluent-kafka cannot read it."""

import ctypes
from pathlib import Path
from typing import Any, cast

import confluent_kafka
import pyarrow as pa
from tests.integration.kafka.conftest import MakeTopic

from recount.audit.compare.committed import FewAtHand, read_committed
from recount.kafka.connection import Connection
from recount.recompute.raw_log import RawLog, RecordsAtHand

_BY_TOPIC, _BY_VALUE, _FLAGS, _HEADERS, _END = 1, 4, 7, 10, 0
_COPY = 2


def produce(servers: str, topic: str, value: bytes, header: bytes) -> None:
    """One record with a header called ``header``, through the C library that confluent-kafka brings."""
    [library] = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs").glob("librdkafka*")
    kafka, pointer, number, size = ctypes.CDLL(str(library)), ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    for made in (kafka.rd_kafka_conf_new, kafka.rd_kafka_new, kafka.rd_kafka_headers_new):
        made.restype = pointer
    wrong = ctypes.create_string_buffer(512)
    settings = pointer(kafka.rd_kafka_conf_new())
    kafka.rd_kafka_conf_set(settings, b"bootstrap.servers", servers.encode(), wrong, size(512))
    client = pointer(kafka.rd_kafka_new(0, settings, wrong, size(512)))
    headers = pointer(kafka.rd_kafka_headers_new(size(1)))
    kafka.rd_kafka_header_add(headers, header, ctypes.c_ssize_t(len(header)), b"x", ctypes.c_ssize_t(1))
    place = (number(_BY_TOPIC), ctypes.c_char_p(topic.encode()), number(_FLAGS), number(_COPY))
    record = (number(_BY_VALUE), ctypes.c_char_p(value), size(len(value)), number(_HEADERS), headers)
    assert kafka.rd_kafka_producev(client, *place, *record, number(_END)) == 0
    assert kafka.rd_kafka_flush(client, number(10_000)) == 0
    kafka.rd_kafka_destroy(client)


class OfTasks:
    """The log that Spark's tasks read, which is not read here."""

    raw = RawLog(frame=cast("Any", None))

    def read(self, *_: object, **__: object) -> RawLog:
        return self.raw


def test_a_record_with_such_a_header_has_no_headers_here_and_an_audit_lets_tasks_read_its_log(
    connection: Connection, make_topic: MakeTopic
) -> None:
    topic = make_topic("results")
    produce(connection.bootstrap_servers, topic, b"{}", b"\xff\xfe")
    # again and again: Python looks for the client's error the first times only
    for _ in range(50):
        [record] = read_committed(connection, topic, {0: (0, 1)})
        assert (record.value, record.headers, record.header("x")) == (b"{}", None, None)
    log = FewAtHand(connection=connection, of=OfTasks())
    assert log.read(cast("Any", None), topic, {0: (0, 1)}) is OfTasks.raw
    produce(connection.bootstrap_servers, topic, b"{}", b"x")
    at_hand = log.read(cast("Any", None), topic, {0: (1, 2)}, with_headers=True)
    assert isinstance(at_hand, RecordsAtHand)
    [row] = pa.Table.from_batches(at_hand.through()).to_pylist()
    assert (row["offset"], row["value"], row["headers"]) == (1, b"{}", [{"key": "x", "value": b"x"}])
