"""What an installation shares with no other, what its client sends, and what Spark says of records in our words."""

from __future__ import annotations

import os
from typing import Any

import pytest

from recount.declare.groups import Archive, StreamGroup
from recount.declare.registry import Declarations
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.kafka import dead_letters
from recount.kafka.acls import Acl, acls_of, as_commands, principals
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


SALES = Topic(name="sales", key="till", value=RecordSchema.of(till=STRING, cents=LONG))
COPIES = Topology(name="copies", sinks=[stream(SALES).to(Topic(name="copied", key="till"))])
ARCHIVE = Archive(topic=SALES)


def derived(*, strict: bool = False, archive: bool = False, prefix: str = "recount", group: bool = False) -> list[Acl]:
    topology = COPIES if not strict else Topology(name="copies", sinks=COPIES.sinks, on_bad_record="fail")
    declarations = Declarations(
        topologies={"copies": topology},
        topics={"sales": SALES},
        archives={ARCHIVE.name: ARCHIVE} if archive else {},
        groups={"tills": StreamGroup(name="tills", streams=[topology])} if group else {},
    )
    return acls_of(declarations, Connection(bootstrap_servers="nowhere:1", prefix=prefix), "production")


def of(acls: list[Acl], role: str, resource: str) -> set[tuple[str, str]]:
    return {(acl.operation, acl.name) for acl in acls if (acl.role, acl.resource) == (role, resource)}


def test_a_stream_reads_its_sources_and_writes_its_results_and_nothing_else_of_others() -> None:
    of_topics = {pair for pair in of(derived(), "stream", "topic") if not pair[1].startswith("recount.")}
    assert of_topics == {("Read", "sales"), ("Write", "copied"), ("Write", "sales.dlq")}
    assert of(derived(), "stream", "transactional-id") == {
        ("Write", f"recount.copies.{slot}") for slot in ("0", "backfill", "lease")
    }
    read = {("Read", "recount.copies"), ("Read", "recount.copies.backfill")}
    described = {("Describe", "recount.offsets"), ("Describe", "recount.view")}
    assert of(derived(), "stream", "group") == read | described
    assert ("Write", "sales.dlq") not in of(derived(strict=True), "stream", "topic"), "it fails on bad records"
    assert ("Write", "recount.group.tills.lease") in of(derived(group=True), "stream", "transactional-id")


def test_a_stream_that_writes_nothing_has_neither_backfills_nor_certificates() -> None:
    shown = Topology(name="shown", actions=[stream(SALES).foreach(print)])
    declarations = Declarations(topologies={"shown": shown}, topics={"sales": SALES})
    acls = acls_of(declarations, Connection(bootstrap_servers="nowhere:1"), "production")
    assert not [acl for acl in acls if acl.role != "admin" and "backfill" in acl.name]
    assert of(acls, "audit", "transactional-id") == set()
    assert ("Write", "recount.shown.backfill") in of(acls, "admin", "transactional-id")  # a reset holds all outputs
    # an archive reads its topic, and has no backfills either
    found = derived(archive=True)
    assert ("Read", "recount.archive-sales") in of(found, "stream", "group")
    assert ("Read", "recount.archive-sales.backfill") not in of(found, "stream", "group")


def test_an_audit_writes_nothing_but_certificates() -> None:
    found = derived()
    assert {pair for pair in of(found, "audit", "topic") if pair[0] == "Write"} == {("Write", "recount.certificates")}
    assert of(found, "audit", "transactional-id") == {("Write", "recount.certificates.copies")}
    assert {operation for operation, _ in of(found, "audit", "group")} == {"Describe"}


def test_nobody_alters_a_topic_of_others_nor_writes_to_it() -> None:
    found = derived()
    of_sales = {(acl.role, acl.operation) for acl in found if acl.name == "sales"}
    asked = {"stream": ["Read"], "audit": ["Read", "DescribeConfigs"], "admin": ["Describe", "DescribeConfigs"]}
    assert of_sales == {(role, operation) for role, operations in asked.items() for operation in operations}
    assert {("Create", "copied"), ("AlterConfigs", "copied")} <= of(found, "admin", "topic")
    # what another operation includes is not asked for
    assert ("Describe", "copied") not in of(found, "admin", "topic")
    assert ("DescribeConfigs", "copied") not in of(found, "admin", "topic")
    assert len({(acl.role, acl.resource, acl.name, acl.operation) for acl in found}) == len(found)
    ours = {acl.name for acl in derived(prefix="blue") if acl.resource != "topic"}
    assert ours and all(name.startswith("blue.") for name in ours)


def test_commands_have_a_line_for_each_resource() -> None:
    acls = [acl for acl in derived() if acl.role == "stream"]
    _, *lines = as_commands(acls, principals(["stream=User:CN=recount stream"])).splitlines()
    assert len(lines) == len({(acl.resource, acl.name) for acl in acls})
    [positions] = [line for line in lines if line.endswith("--topic recount.positions")]
    assert "--allow-principal 'User:CN=recount stream' --operation Read --operation Write" in positions


@pytest.mark.parametrize("given", ["stream", "boss=User:x", "stream=recount", "stream=User:"])
def test_a_principal_of_no_role_is_refused(given: str) -> None:
    with pytest.raises(Terminal, match="no principal of a role"):
        principals([given])
