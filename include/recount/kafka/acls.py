"""ACLs that each role needs on Kafka for the declared streams to run, and no others; and ``recount acls``.

They are derived from the declarations, never written by hand.
"""

import json
import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import groupby
from typing import Annotated, Literal, get_args

import typer

from recount.declare.registry import Declarations, Stream, declared, is_audited, topics_read
from recount.declare.topology import Topology
from recount.kafka import topic_drift
from recount.kafka.compacted import head_id
from recount.kafka.connection import BACKFILL_SLOT, Connection
from recount.kafka.status import status_of_group
from recount.kafka.topic_drift import all_topics
from recount.runtime.errors import Terminal
from recount.runtime.settings import Profile, Role, Settings

Resource = Literal["topic", "group", "transactional-id"]
Operation = Literal["Read", "Write", "Create", "Delete", "Describe", "AlterConfigs", "DescribeConfigs"]
"""As Kafka names them. Read, Write and Delete include Describe; AlterConfigs includes DescribeConfigs."""
_FIRST_SLOT = "0"
_INCLUDED: dict[Operation, tuple[Operation, ...]] = {
    "Describe": ("Read", "Write", "Delete"),
    "DescribeConfigs": ("AlterConfigs",),
}
_SERVERS, _CONFIGURATION = '"$BOOTSTRAP_SERVERS"', '"$ADMIN_PROPERTIES"'


@dataclass(frozen=True, kw_only=True, order=True)
class Acl:
    """``role`` may do ``operation`` on the one ``resource`` called ``name``; ``what`` says what that is."""

    role: Role
    resource: Resource
    name: str
    operation: Operation
    what: str

    @property
    def kind(self) -> tuple[Role, Resource, Operation, str]:
        """The common part of all such ACLs, whatever streams are declared."""
        return self.role, self.resource, self.operation, self.what


def acls_of(declarations: Declarations, connection: Connection, profile: Profile) -> list[Acl]:
    """The ACLs of all roles, sorted, each once. The embedded profile creates topics of others, too."""
    found = (*_of_streams(declarations, connection), *_of_audits(declarations, connection))
    every = {*found, *_of_admins(declarations, connection, profile)}
    by_place = {(acl.role, acl.resource, acl.name, acl.operation): acl for acl in sorted(every, reverse=True)}
    return sorted(acl for acl in by_place.values() if not _is_included(acl, by_place))


def _is_included(acl: Acl, given: Iterable[tuple[Role, Resource, str, Operation]]) -> bool:
    return any((acl.role, acl.resource, acl.name, more) in given for more in _INCLUDED.get(acl.operation, ()))


def _of_streams(declarations: Declarations, connection: Connection) -> Iterator[Acl]:
    """Drivers of streams, and backfills, which publish as they do."""
    own = connection.own
    for stream in declarations.streams.values():
        yield from _topics("stream", "Read", topics_read(stream), "source")
        yield from _topics("stream", "Write", _written_by(stream), "result")
        yield from _topics("stream", "Write", _letters_of(stream), "dead letters")
        for group in _groups_of(stream, connection):
            yield Acl(role="stream", resource="group", name=group, operation="Read", what="offsets of a stream")
        slots = ["lease", _FIRST_SLOT, *([BACKFILL_SLOT] if is_audited(stream) else [])]
        yield from _ids("stream", _ids_of(stream, slots, connection))
    groups = [status_of_group(name) for name in declarations.groups]
    yield from _ids("stream", (own(f"recount.{name}.lease") for name in groups))
    yield from _topics(
        "stream", "Read", map(own, (topic_drift.STATUS, topic_drift.CONTROL, topic_drift.POSITIONS)), "platform"
    )
    yield from _topics(
        "stream", "Write", map(own, (topic_drift.STATUS, topic_drift.HISTORY, topic_drift.POSITIONS)), "platform"
    )
    yield from _readers("stream", own("recount.view"), own("recount.offsets"))


def _of_audits(declarations: Declarations, connection: Connection) -> Iterator[Acl]:
    """Audits, and who only looks: `recount verify`, `query`, `serve` and `lens`."""
    own = connection.own
    for stream in declarations.topologies.values():
        yield from _topics("audit", "Read", topics_read(stream), "source")
        yield from _topics("audit", "DescribeConfigs", topics_read(stream), "source")
        yield from _topics("audit", "Read", _written_by(stream), "result")
        yield from _topics("audit", "Read", _letters_of(stream), "dead letters")
        yield from _topics("audit", "DescribeConfigs", _letters_of(stream), "dead letters")
        for group in _groups_of(stream, connection):
            yield Acl(role="audit", resource="group", name=group, operation="Describe", what="offsets of a stream")
    for archive in declarations.archives.values():
        yield from _topics("audit", "Describe", topics_read(archive), "source")
        group = connection.group(archive.name)
        yield Acl(role="audit", resource="group", name=group, operation="Describe", what="offsets of a stream")
    yield from _ids("audit", (head_id(connection, name) for name in declarations.audited))
    read = (topic_drift.STATUS, topic_drift.POSITIONS, topic_drift.CERTIFICATES)
    yield from _topics("audit", "Read", map(own, read), "platform")
    yield from _topics("audit", "Write", [own(topic_drift.CERTIFICATES)], "platform")
    yield from _readers("audit", own("recount.view"), own("recount.offsets"), own("recount.audit"))


def _of_admins(declarations: Declarations, connection: Connection, profile: Profile) -> Iterator[Acl]:
    """Topics, orders to streams, their pages in Airflow, resets, upgrades, erasures and set-asides."""
    own = connection.own
    for topic in all_topics(declarations, own):
        needed: tuple[Operation, ...] = ("Describe", "DescribeConfigs")
        if topic.owned:
            needed = ("Create", "Describe", "AlterConfigs")
        elif profile == "embedded":
            needed = ("Create", "Describe", "DescribeConfigs")
        for operation in needed:
            yield from _topics("admin", operation, [topic.name], "declared topic")
    for stream in declarations.streams.values():
        yield from _topics("admin", "Read", _written_by(stream), "result")
        yield from _topics("admin", "Write", _written_by(stream), "result")
        for group in (connection.group(stream.name), connection.backfill_group(stream.name)):
            for operation in ("Read", "Delete"):
                yield Acl(role="admin", resource="group", name=group, operation=operation, what="offsets of a stream")
        yield from _ids("admin", _ids_of(stream, ("lease", _FIRST_SLOT, BACKFILL_SLOT, "erasure"), connection))
    read = (topic_drift.STATUS, topic_drift.HISTORY, topic_drift.CONTROL, topic_drift.POSITIONS)
    yield from _topics("admin", "Read", map(own, read), "platform")
    yield from _topics("admin", "Write", map(own, read), "platform")
    yield from _readers("admin", own("recount.view"), own("recount.offsets"), own("recount.audit"))


def _topics(role: Role, operation: Operation, names: Iterable[str], what: str) -> Iterator[Acl]:
    for name in names:
        yield Acl(role=role, resource="topic", name=name, operation=operation, what=what)


def _ids(role: Role, names: Iterable[str]) -> Iterator[Acl]:
    for name in names:
        yield Acl(role=role, resource="transactional-id", name=name, operation="Write", what="transactions")


def _readers(role: Role, *names: str) -> Iterator[Acl]:
    """Groups by which consumers are named that commit nothing: the client asks for their coordinator all the same."""
    for name in names:
        yield Acl(role=role, resource="group", name=name, operation="Describe", what="readers")


def _written_by(stream: Stream) -> list[str]:
    return [written.topic.name for written in stream.written] if isinstance(stream, Topology) else []


def _letters_of(stream: Stream) -> list[str]:
    """Archives decode nothing, so that no record is bad to them."""
    if isinstance(stream, Topology) and stream.on_bad_record == "dead-letter":
        return [source.topic.dead_letter_name for source in stream.sources]
    return []


def _groups_of(stream: Stream, connection: Connection) -> list[str]:
    """Consumer groups of ``stream``; one that is not audited has no backfills."""
    of_backfills = [connection.backfill_group(stream.name)] if is_audited(stream) else []
    return [connection.group(stream.name), *of_backfills]


def _ids_of(stream: Stream, slots: Iterable[str], connection: Connection) -> list[str]:
    return [connection.own(f"recount.{stream.name}.{slot}") for slot in slots]


class Form(StrEnum):
    commands = "commands"
    json = "json"


def acls(
    role: Annotated[str | None, typer.Option(help="stream, audit or admin; all three by default")] = None,
    principal: Annotated[
        list[str] | None, typer.Option(help="ROLE=PRINCIPAL, such as stream=User:CN=recount; may be repeated")
    ] = None,
    form: Annotated[Form, typer.Option("--as", help="kafka-acls.sh commands, or JSON")] = Form.commands,
) -> None:
    """Print the ACLs that the declared streams need, exactly. Neither brokers nor passwords are needed for it."""
    settings = Settings.from_environment(os.environ)
    connection = Connection(bootstrap_servers=settings.bootstrap_servers, prefix=settings.prefix)
    roles = _roles(role)
    named = principals(principal or ())
    found = [acl for acl in acls_of(declared(settings.topologies), connection, settings.profile) if acl.role in roles]
    print(as_json(found, named) if form is Form.json else as_commands(found, named))


def as_commands(acls: Iterable[Acl], principals: dict[Role, str]) -> str:
    """A line of ``kafka-acls.sh`` for all operations on each resource."""
    lines = ["# BOOTSTRAP_SERVERS and ADMIN_PROPERTIES: the brokers, and a client that may alter ACLs (Cluster Alter)"]
    for (role, resource, name), group in groupby(acls, lambda acl: (acl.role, acl.resource, acl.name)):
        operations = " ".join(f"--operation {acl.operation}" for acl in group)
        lines.append(
            f"kafka-acls.sh --bootstrap-server {_SERVERS} --command-config {_CONFIGURATION} --add"
            f" --allow-principal {shlex.quote(principals[role])} {operations}"
            f" --{resource} {shlex.quote(name)}"
        )
    return "\n".join(lines)


def as_json(acls: Iterable[Acl], principals: dict[Role, str]) -> str:
    told = [
        {"principal": principals[acl.role], **asdict(acl), "pattern": "literal", "host": "*", "permission": "Allow"}
        for acl in acls
    ]
    return json.dumps(told, indent=2)


def principals(given: Iterable[str]) -> dict[Role, str]:
    """Who acts in each role: ``User:`` with the name of the role unless ``given`` says another."""
    found: dict[Role, str] = {role: f"User:{role}" for role in _roles(None)}
    for text in given:
        role, _, name = text.partition("=")
        kind, _, who = name.partition(":")
        if role not in found or not kind or not who:
            raise Terminal.of("no-principal", given=text)
        found[_roles(role)[0]] = name
    return found


def _roles(named: str | None) -> tuple[Role, ...]:
    roles: tuple[Role, ...] = get_args(Role)
    if named is not None and named not in roles:
        raise Terminal.of("no-such-role", given=named, roles=", ".join(roles))
    return roles if named is None else tuple(role for role in roles if role == named)
