"""A dead letter is the bad record as it was, and says why and whence."""

from __future__ import annotations

from typing import Any

import pytest

from recount.kafka import dead_letters
from recount.kafka.connection import Connection
from recount.kafka.dead_letters import dead_letter
from recount.kafka.transaction import KafkaRecord


def a_letter(value: bytes | None, key: bytes = b"k", **more: Any) -> KafkaRecord:
    said = {"destination": "orders.dlq", "stream": "recount.revenue", "topic": "orders", "partition": 3, "offset": 42}
    said |= {"timestamp_ms": 1, "reason": "undecodable", "error": "no JSON " * 1_000}
    return dead_letter(key=key, value=value, **{**said, **more})


def test_a_dead_letter_keeps_the_record_and_names_its_origin() -> None:
    error = "Expecting property name"
    letter = a_letter(b"{not json", b"\xff", timestamp_ms=-1, error=error, headers=[("trace", b"1")])
    assert (letter.topic, letter.key, letter.value) == ("orders.dlq", b"\xff", b"{not json")
    assert letter.timestamp_ms is None
    assert dict(letter.headers) == {
        "trace": b"1",
        dead_letters.REASON: b"undecodable",
        dead_letters.ERROR: b"Expecting property name",
        dead_letters.STREAM: b"recount.revenue",
        dead_letters.SOURCE_TOPIC: b"orders",
        dead_letters.SOURCE_PARTITION: b"3",
        dead_letters.SOURCE_OFFSET: b"42",
        dead_letters.SOURCE_TIMESTAMP: b"-1",
    }


@pytest.mark.parametrize(("size", "is_kept"), [(999_000 - 2_000, True), (1_000_000, False), (1_048_500, False)])
def test_the_value_of_a_record_that_leaves_no_room_for_what_is_said_of_it_is_left_out(size: int, is_kept: bool) -> None:
    """Whoever could write a bad record of a megabyte to a source stopped its streams for good."""
    letter = a_letter(b"?" * size)
    said = dict(letter.headers)
    assert letter.value == (b"?" * size if is_kept else None)
    assert said.get(dead_letters.LEFT_OUT) == (None if is_kept else b"%d" % size)
    assert said[dead_letters.SOURCE_OFFSET] == b"42"
    assert dead_letters.LEFT_OUT not in dict(a_letter(None).headers)


@pytest.mark.parametrize("value", [None, b"?", b"?" * 1_000_000])
@pytest.mark.parametrize(("size", "is_kept"), [(999_000 - 2_000, True), (1_000_000, False), (1_048_500, False)])
def test_so_is_a_key_that_leaves_no_room(size: int, is_kept: bool, value: bytes | None) -> None:
    letter = a_letter(value, b"k" * size)
    said = dict(letter.headers)
    assert letter.key == (b"k" * size if is_kept else None)
    assert said.get(dead_letters.KEY_LEFT_OUT) == (None if is_kept else b"%d" % size)
    assert letter.value == (value if is_kept and value == b"?" else None)
    assert said[dead_letters.SOURCE_OFFSET] == b"42"


def test_the_client_sends_whatever_the_topic_takes() -> None:
    producer = Connection(bootstrap_servers="127.0.0.1:1").producer()
    producer.produce("large", value=b"?" * 1_048_000)
    producer.purge()
