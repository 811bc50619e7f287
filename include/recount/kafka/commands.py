"""``recount topics``: the declared topics against the cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated

import typer
from deltalake.exceptions import DeltaError
from rich.table import Table
from rich.text import Text

from recount.core.errors import RecountError
from recount.core.keys_in_partitions import in_several_partitions
from recount.core.reading import records_of
from recount.core.registry import declared
from recount.core.schema import BadRecord, RecordSchema
from recount.core.settings import Settings
from recount.core.short_lived import oldest_kept_ms, will_be_deleted
from recount.core.tables import Tables
from recount.core.topics import Topic
from recount.core.topology import Topology
from recount.kafka.connection import Connection
from recount.kafka.declared import all_topics
from recount.kafka.offsets import log_ranges, messages, partitions_of
from recount.kafka.topic_drift import TopicChange
from recount.kafka.topics import carry_out, plan, require_none
from recount.printed_tables import print_whole
from recount.proofs import Proofs

_DONE = {"create": "created", "repair": "repaired"}
_TRIED = 20
"""Offsets at the beginning of a partition that are read: the first can be a transaction marker, or no good record."""
WHAT_TO_DO = 'What to do: docs/changing.md, "Raising the number of partitions".'


def topics(
    apply_changes: Annotated[
        bool, typer.Option("--apply", help="Create what is missing of our own, and repair what may be repaired.")
    ] = False,
    of_others: Annotated[
        bool, typer.Option(help="Create topics of others too: on a cluster of your own, to try the streams.")
    ] = False,
) -> None:
    """Show how the cluster's topics differ from their declarations; with --apply, bring them in step."""
    settings = Settings.from_environment(os.environ)
    connection = Connection.of(settings)
    admin = connection.admin()
    declarations = declared(settings.topologies)
    wanted = all_topics(declarations, connection.own)
    changes = plan(admin, wanted, settings.profile, creates_others=of_others)
    problems = carry_out(admin, changes) if apply_changes else None
    print_whole(table_of(changes, problems))
    for warning in short_lived_results(connection, declarations.topologies.values()):
        print(f"warning: {warning}")
    streams = list(declarations.topologies.values())
    for line in raised_partitions(changes, streams, partitions_met(streams, Tables(settings.data))):
        print(line)
    if problems is not None:
        require_none(problems)
        print("applied" if any(change.action in _DONE for change in changes) else "nothing to do")


def table_of(changes: Sequence[TopicChange], problems: Mapping[str, RecountError] | None = None) -> Table:
    """What is to be done with each topic; with the ``problems`` that are left after the changes, what has been done."""
    table = Table("topic", "owner", "partitions", "replicas", "action", "why")
    for change in changes:
        topic = change.topic
        owner = "ours" if topic.owned else "others"
        size = (str(topic.partitions), str(topic.replication_factor))
        failed = None if problems is None else problems.get(topic.name)
        is_done = problems is not None and failed is None
        why = [*change.reasons, *([] if failed in (None, change.problem) else [str(failed)])]
        action = _DONE.get(change.action, change.action) if is_done else change.action
        table.add_row(topic.name, owner, *size, action, Text("\n".join(why)))
    return table


def short_lived_results(connection: Connection, topologies: Iterable[Topology]) -> Iterator[str]:
    """A warning for each sink and source of ``topologies`` of which Kafka would delete the first results at once.

    Topics that are not there, or that this user may not read, are passed over.
    """
    now_ms = time.time_ns() // 1_000_000
    topologies = list(topologies)
    topics = {source.topic.name: source.topic for topology in topologies for source in topology.sources}
    first_ms = cache(lambda name: _first_ms(connection, topics[name]))
    for topology in topologies:
        for sink in topology.written:
            oldest_ms = oldest_kept_ms(sink.topic, now_ms)
            for name in sorted(records_of(sink)) if oldest_ms is not None else ():
                at_ms = first_ms(name)
                if at_ms is not None and oldest_ms is not None and at_ms < oldest_ms:
                    yield will_be_deleted(sink.topic, name, at_ms)


def _first_ms(connection: Connection, topic: Topic) -> int | None:
    """The least event time of the first good records of the partitions of ``topic``; None where there are none."""
    try:
        found = log_ranges(connection, partitions_of(connection, topic.name))
        times = [
            _event_time_ms(topic, message.timestamp()[1], message.value())
            for place, span in found.items()
            for message in messages(
                connection, *place, span.start, min(span.start + _TRIED, span.end), "read_committed"
            )
        ]
    except RecountError:
        return None
    return min((at_ms for at_ms in times if at_ms is not None), default=None)


def _event_time_ms(topic: Topic, timestamp_ms: int, value: bytes | None) -> int | None:
    if topic.event_time is None:
        return timestamp_ms
    if value is None or topic.is_of_registry or not isinstance(topic.value, RecordSchema):
        return None
    try:
        at_ms = topic.value.decode(value, (), None)[topic.event_time]
    except BadRecord:
        return None
    return at_ms if isinstance(at_ms, int) and at_ms >= 0 else None


def raised_partitions(
    changes: Iterable[TopicChange], topologies: Iterable[Topology], met: Mapping[tuple[str, str], int]
) -> Iterator[str]:
    """Lines about each topic with more partitions than are declared, or declared with more, or than streams have met.

    ``met`` says by stream and topic how many partitions the stream's last batch knew.
    """
    streams = list(topologies)
    for change in changes:
        topic = change.topic
        drift = next((one for one in change.drift if one.setting == "partitions"), None)
        there = int(drift.actual) if drift else topic.partitions
        readers = [one for one in streams if topic.name in {source.topic.name for source in one.sources}]
        told = [
            (stream, there if drift else met[stream.name, topic.name])
            for stream in readers
            if drift or met.get((stream.name, topic.name), there) < there
        ]
        if not told:
            continue
        declared = f", {drift.declared} are declared" if drift else ""
        yield f"{topic.name} has {there} partitions{declared}. Keys change partition where the number does:"
        for stream, before in told:
            knew = "" if drift else f" (its last batch knew {before} partitions)"
            lines = in_several_partitions(stream, topic.name)
            if lines:
                yield f"  {stream.name}{knew}: a key whose records lie in two partitions:"
                yield from (f"    {line}" for line in lines)
            else:
                yield f"  {stream.name}{knew}: no operator asks for the order of a key's records, nothing changes"
        yield WHAT_TO_DO


def partitions_met(topologies: Iterable[Topology], tables: Tables) -> dict[tuple[str, str], int]:
    """By stream and topic how many partitions the stream's last batch knew.

    Nothing of streams that never ran, nor of those whose tables cannot be read: an audit says what is wrong with them.
    """
    met: dict[tuple[str, str], int] = {}
    for stream in topologies:
        proofs = Proofs(state=tables.state(stream.name), moved_to=tables.ledger(stream.name))
        try:
            newest = next(proofs.newest_first(), None)
        except (RecountError, DeltaError, OSError):
            continue
        for part in newest.proof.partitions if newest else ():
            met[stream.name, part.topic] = met.get((stream.name, part.topic), 0) + 1
    return met
