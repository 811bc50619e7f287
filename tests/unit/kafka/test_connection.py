"""What an installation shares with no other, what its client sends, and what Spark says of records in our words."""

from __future__ import annotations

import os
from typing import Any

import pytest

from recount.kafka import dead_letters
from recount.kafka.connection import Connection, refusals_told
from recount.kafka.dead_letters import dead_letter
from recount.kafka.topic_drift import STATUS, platform_topics
from recount.kafka.transaction import KafkaRecord
from recount.runtime.errors import RegistryRefused, RegistryUnreachable, Terminal
from recount.runtime.settings import InvalidSettings, Settings

ENVIRONMENT = {
    "RECOUNT_PROFILE": "production",
    **{
        f"RECOUNT_{name}": "x"
        for name in ("BOOTSTRAP_SERVERS", "DATA", "CHECKPOINTS", "REPORTS", "LOGS", "RUN", "JARS")
    },
}


def connection(**given: str) -> Connection:
    return Connection.of(Settings.from_environment({**ENVIRONMENT, **given}))


def test_an_installation_with_a_prefix_shares_no_name_with_another_and_topics_of_others_have_none() -> None:
    plain, blue = connection(), connection(RECOUNT_PREFIX="blue")
    assert (plain.group("revenue"), blue.group("revenue")) == ("recount.revenue", "blue.revenue")
    assert [blue.own(name) for name in ("recount.revenue.lease", STATUS)] == ["blue.revenue.lease", "blue.status"]
    assert blue.own("orders") == "orders"
    names = [{topic.name for topic in platform_topics(one.own)} for one in (plain, blue)]
    assert names[0].isdisjoint(names[1])


@pytest.mark.parametrize("prefix", ["a.b", "-a", "a b", "x" * 65])
def test_a_prefix_that_two_installations_could_share_names_by_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidSettings):
        connection(RECOUNT_PREFIX=prefix)


def test_prefix_and_notifiers_survive_the_environment_of_a_driver() -> None:
    settings = Settings.from_environment({**ENVIRONMENT, "RECOUNT_PREFIX": "blue", "RECOUNT_NOTIFIERS": "alerts:all"})
    assert Settings.from_environment({**os.environ, **settings.to_environment()}) == settings


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


SIZES = [(999_000 - 2_000, True), (1_000_000, False), (1_048_500, False)]


@pytest.mark.parametrize(("size", "is_kept"), SIZES)
def test_the_value_of_a_record_that_leaves_no_room_for_what_is_said_of_it_is_left_out(size: int, is_kept: bool) -> None:
    """Whoever could write a bad record of a megabyte to a source stopped its streams for good."""
    letter = a_letter(b"?" * size)
    said = dict(letter.headers)
    assert letter.value == (b"?" * size if is_kept else None)
    assert said.get(dead_letters.LEFT_OUT) == (None if is_kept else b"%d" % size)
    assert said[dead_letters.SOURCE_OFFSET] == b"42"
    assert dead_letters.LEFT_OUT not in dict(a_letter(None).headers)


@pytest.mark.parametrize("value", [None, b"?", b"?" * 1_000_000])
@pytest.mark.parametrize(("size", "is_kept"), SIZES)
def test_so_is_a_key_that_leaves_no_room(size: int, is_kept: bool, value: bytes | None) -> None:
    letter = a_letter(value, b"k" * size)
    assert letter.key == (b"k" * size if is_kept else None)
    assert dict(letter.headers).get(dead_letters.KEY_LEFT_OUT) == (None if is_kept else b"%d" % size)
    assert letter.value == (value if is_kept and value == b"?" else None)


def test_the_client_sends_whatever_the_topic_takes() -> None:
    producer = Connection(bootstrap_servers="127.0.0.1:1").producer()
    producer.produce("large", value=b"?" * 1_048_000)
    producer.purge()


@pytest.mark.parametrize("raised", [RegistryUnreachable("ConnectError for schema 3"), RegistryRefused("no address")])
def test_a_registry_that_keeps_tasks_from_schemas_is_told_as_what_it_is(raised: Exception) -> None:
    name = f"recount.runtime.errors.{type(raised).__name__}"
    said = f"Job aborted: PythonException: Traceback (most recent call last):\n  File a\n{name}: {raised}\n"
    with pytest.raises(type(raised)) as told, refusals_told():
        raise RuntimeError(said)
    assert str(told.value) == str(raised)


def test_a_record_whose_time_spark_cannot_hold_is_named_by_its_place() -> None:
    """Streams ended with it at each start, and audits of the topic too, with a stack trace and no remedy."""
    said = (
        "An error occurred while calling o45081.collectToPython.\n: org.apache.spark.sql.kafka010."
        "KafkaIllegalStateException: Record at topic my.orders partition 1 offset 217 has timestamp value "
        "4611686018427387904 that overflows when converting to Spark's microsecond-precision TimestampType.\n"
    )
    with pytest.raises(Terminal) as told, refusals_told():
        raise RuntimeError(said)
    assert told.value.given == "my.orders-1@217: 4,611,686,018,427,387,904 ms"


def test_what_spark_says_of_anything_else_stays_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="no memory"), refusals_told():
        raise RuntimeError("no memory")
