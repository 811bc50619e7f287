"""What Kafka still holds of the topics that an audit reads, what of it was never read, and where their log is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from confluent_kafka import IsolationLevel
from deltalake import DeltaTable

from recount.audit.conservation import OFFSETS
from recount.audit.findings import Source
from recount.core.errors import Terminal, Transient
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.core.verdict import Difference
from recount.kafka.connection import Connection
from recount.kafka.offsets import LogRange, is_compacted, log_ranges, partitions_of
from recount.proofs import Proofs
from recount.recompute.archive_log import ArchiveLog
from recount.recompute.log import KafkaLog, Log, LogByTopic, Ranges


def kept(connection: Connection, topic: str) -> Mapping[int, LogRange]:
    """What Kafka holds of each partition of ``topic``."""
    return {
        partition: span for (_, partition), span in log_ranges(connection, partitions_of(connection, topic)).items()
    }


def kept_if_any(connection: Connection, topic: str) -> Ranges:
    """What ``topic`` holds now; nothing where there is no such topic."""
    if topic not in connection.admin().list_topics(timeout=15).topics:
        return {}
    return {partition: (span.start, span.end) for partition, span in kept(connection, topic).items()}


def written_so_far(connection: Connection, topics: Iterable[str]) -> dict[str, Ranges]:
    """The offsets that each partition of ``topics`` has had until now, those of open transactions too."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    places = [place for topic in topics for place in partitions_of(connection, topic)]
    for (topic, partition), span in log_ranges(connection, places, IsolationLevel.READ_UNCOMMITTED).items():
        found.setdefault(topic, {})[partition] = (0, span.end)
    return dict(found)


def sources_of(connection: Connection, tables: Tables, topology: Topology, source: Source) -> Mapping[str, Source]:
    """Where the log of each topic is read: as ``source`` says, but a compacted topic from its archive if it has one.

    Raises ``Terminal`` when it shall be the archive and a topic has none.
    """
    topics = sorted({one.topic.name for one in topology.sources})
    archived = {topic for topic in topics if DeltaTable.is_deltatable(tables.archive(topic))}
    if source == "kafka":
        return {
            topic: "archive" if topic in archived and is_compacted(connection, topic) else "kafka" for topic in topics
        }
    missing = [topic for topic in topics if topic not in archived]
    if missing:
        raise Terminal(
            f"no archive of {', '.join(missing)}",
            given=[tables.archive(topic) for topic in missing],
            expected="the table that a topic's archive stream writes",
            remedy="declare Archive(topic=...) and run that stream, or audit with --source kafka",
        )
    return dict.fromkeys(topics, source)


def log_of(settings: Settings, sources: Mapping[str, Source]) -> Log:
    """The raw log of topics, each read where ``sources`` says."""
    logs: dict[Source, Log] = {
        "kafka": KafkaLog(bootstrap_servers=settings.bootstrap_servers),
        "archive": ArchiveLog(tables=Tables(settings.data)),
    }
    return LogByTopic(logs={topic: logs[source] for topic, source in sources.items()})


def require_kept(connection: Connection, tables: Tables, topic: str, ranges: Ranges, source: Source) -> None:
    """Raise ``Terminal`` when Kafka no longer holds all of ``ranges``, ``Transient`` when the archive has yet to."""
    if source == "archive":
        _require_archived(tables, topic, ranges)
        return
    spans = kept(connection, topic)
    expired = {p: start for p, (start, _) in ranges.items() if start < spans[p].start}
    if expired:
        raise Terminal(
            f"records of {topic} have expired before they were audited",
            given={partition: spans[partition].start for partition in expired},
            expected=f"to begin at offsets {expired}",
            remedy="audit with --source archive, and set the topic's retention above the audit's interval",
        )


def require_grown(topic: str, seen: Mapping[int, int], spans: Mapping[int, LogRange]) -> None:
    """Raise ``Terminal`` when ``topic`` ends before the offsets ``seen`` by the last audit: it is another topic."""
    ends = {partition: spans[partition].end if partition in spans else None for partition in seen}
    shorter = {partition: end for partition, end in ends.items() if end is None or end < seen[partition]}
    if shorter:
        raise Terminal(
            f"{topic} ends before what the last audit has read of it",
            given=shorter,
            expected=f"to end at or after the offsets { ({partition: seen[partition] for partition in shorter}) }",
            remedy="it was deleted and made anew, or cut: see who did, and audit it --from-the-beginning",
        )


def _require_archived(tables: Tables, topic: str, ranges: Ranges) -> None:
    newest = next(Proofs(state=tables.archive(topic)).newest_first(), None)
    reached = {part.partition: part.end for part in newest.proof.partitions} if newest else {}
    behind = {p: end for p, (start, end) in ranges.items() if start < end and reached.get(p, 0) < end}
    if behind:
        raise Transient(
            f"the archive of {topic} is behind the stream",
            given={partition: reached.get(partition, 0) for partition in behind},
            expected=f"to reach offsets {behind}",
            remedy=f"see that archive-{topic} runs, and audit again",
        )


def unread(
    connection: Connection, topic: str, ranges: Ranges, begins: Mapping[int, int] | None = None
) -> list[Difference]:
    """Records that are on Kafka before the first offset that the stream has ever read, which begins ``ranges``.

    ``begins`` are offsets from which it was told to read, and no record before them is missed.
    """
    spans = {
        partition: replace(span, start=max(span.start, (begins or {}).get(partition, 0)))
        for partition, span in kept(connection, topic).items()
    }
    return [
        Difference(
            kind=OFFSETS,
            place=f"{topic}-{partition}",
            verdict="unread",
            expected=f"read from offset {spans[partition].start}",
            actual=f"read from offset {start}",
            cause="the stream began after the beginning of the log",
            evidence=(f"{topic}-{partition}@[{spans[partition].start}, {start})",),
        )
        for partition, (start, _) in ranges.items()
        if spans[partition].start < start
    ]
