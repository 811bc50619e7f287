"""What each role must be allowed is derived from the declarations, each thing once, and printed in two forms."""

from __future__ import annotations

import json

import pytest

from recount.declare.groups import Archive, StreamGroup
from recount.declare.registry import Declarations
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.kafka.acls import Acl, acls_of, as_commands, as_json, principals
from recount.kafka.connection import Connection
from recount.runtime.errors import Terminal

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


def test_json_has_an_object_for_each_acl() -> None:
    told = json.loads(as_json(derived(), principals([])))
    assert len(told) == len(derived())
    of_audit = {"principal": "User:audit", "role": "audit", "pattern": "literal", "host": "*", "permission": "Allow"}
    assert {**of_audit, "resource": "topic", "name": "copied", "operation": "Read", "what": "result"} in told


@pytest.mark.parametrize("given", ["stream", "boss=User:x", "stream=recount", "stream=User:"])
def test_a_principal_of_no_role_is_refused(given: str) -> None:
    with pytest.raises(Terminal, match="no principal of a role"):
        principals([given])
