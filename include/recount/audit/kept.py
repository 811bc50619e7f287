"""What Kafka still holds of the topics that an audit reads, what of it was never read, and where their log is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from deltalake import DeltaTable

from recount.audit.conservation import OFFSETS
from recount.audit.findings import Source
from recount.core.errors import Terminal
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.core.verdict import Difference
from recount.kafka.connection import Connection
from recount.kafka.offsets import LogRange, log_ranges, partitions_of
from recount.recompute.archive_log import ArchiveLog
from recount.recompute.log import KafkaLog, Log, Ranges


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


def log_of(settings: Settings, topology: Topology, source: Source) -> Log:
    """Where the raw log is read; raises ``Terminal`` when it shall be the archive and a topic has none."""
    if source == "kafka":
        return KafkaLog(bootstrap_servers=settings.bootstrap_servers)
    tables = Tables(settings.data)
    topics = sorted({one.topic.name for one in topology.sources})
    missing = [topic for topic in topics if not DeltaTable.is_deltatable(tables.archive(topic))]
    if missing:
        raise Terminal(
            f"no archive of {', '.join(missing)}",
            given=[tables.archive(topic) for topic in missing],
            expected="the table that a topic's archive stream writes",
            remedy="declare Archive(topic=...) and run that stream, or audit with --source kafka",
        )
    return ArchiveLog(tables=tables)


def require_kept(connection: Connection, topic: str, ranges: Ranges, source: Source) -> None:
    """Raise ``Terminal`` when Kafka no longer holds all of ``ranges`` that is to be recomputed from it."""
    if source == "archive":
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
