"""The log that an audit reads: where each topic's is, what Kafka still holds, and what was never read.

An audit judges the batches after its seed again, also where no batch came since the last one. By then Kafka may have
removed what they read, by the topic's retention: it was judged, so the audit begins and ends behind the last batch. A
log that ends before what batches have read of it was made a second time, or cut: nobody can judge the missing part.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import IsolationLevel
from deltalake import DeltaTable

from recount.audit.carry.store import Seed
from recount.audit.compare.committed import FewAtHand
from recount.audit.compare.conservation import OFFSETS
from recount.audit.cut.audited_ledger import CUT_SHORT, Ledger
from recount.audit.cut.in_force import InForce
from recount.audit.findings.finding_register import Source
from recount.certificate.finding import Difference
from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.kafka.offsets import LogRange, is_compacted, log_ranges, messages, partitions_of
from recount.recompute.archived_log import ArchiveLog, SplitLog
from recount.recompute.raw_log import KafkaLog, Log, LogByTopic, Ranges
from recount.runtime.errors import Terminal, Transient
from recount.runtime.settings import Settings
from recount.tables.batch_proofs import CommitLog, Entry, Proofs
from recount.tables.ledger import BatchProof
from recount.tables.places import Tables

_LOG = logging.getLogger(__name__)
_PATIENCE_S, _PAUSE_S = 75.0, 0.5
"""The transaction of a driver that was killed is aborted after a minute, unless its timeout was set longer."""


def kept(connection: Connection, topic: str) -> Mapping[int, LogRange]:
    """Return what Kafka holds of each partition of ``topic``."""
    return {
        partition: span for (_, partition), span in log_ranges(connection, partitions_of(connection, topic)).items()
    }


def decided(connection: Connection, topic: str) -> Mapping[int, LogRange]:
    """The same, once every transaction has been decided that was open when this was asked, or ``_PATIENCE_S`` is over.

    A reader sees nothing behind an open transaction, whosever it is: a dead letter that is behind one of
    another stream, or a result behind one of a backfill that was killed, would be called lost.
    """
    places, deadline = partitions_of(connection, topic), time.monotonic() + _PATIENCE_S
    written = log_ranges(connection, places, IsolationLevel.READ_UNCOMMITTED)
    while True:
        found = log_ranges(connection, places)
        hidden = [f"{topic}-{place[1]}@{found[place].end}" for place in places if found[place].end < written[place].end]
        if not hidden:
            break
        if time.monotonic() > deadline:
            _LOG.warning("a transaction stays open at %s: what is behind it is not seen", ", ".join(hidden))
            break
        time.sleep(_PAUSE_S)
    return {partition: span for (_, partition), span in found.items()}


def decided_if_any(connection: Connection, topic: str) -> Ranges:
    """Return what ``decided`` says of ``topic``; nothing where there is no such topic."""
    if topic not in connection.admin().list_topics(timeout=15).topics:
        return {}
    return {partition: (span.start, span.end) for partition, span in decided(connection, topic).items()}


def written_so_far(connection: Connection, topics: Iterable[str], last: BatchProof) -> dict[str, Ranges]:
    """The offsets that each partition of ``topics`` has had until now, those of open transactions too.

    And those up to where the batch ``last`` had read: a topic that was recreated can be shorter.
    """
    found: dict[str, dict[int, tuple[int, int]]] = {topic: {} for topic in topics}
    for part in last.partitions:
        if part.topic in found:
            found[part.topic][part.partition] = (0, part.end)
    places = [place for topic in found for place in partitions_of(connection, topic)]
    for (topic, partition), span in log_ranges(connection, places, IsolationLevel.READ_UNCOMMITTED).items():
        found[topic][partition] = (0, max(span.end, found[topic].get(partition, (0, 0))[1]))
    return dict(found)


def sources_of(connection: Connection, tables: Tables, topology: Topology, source: Source) -> Mapping[str, Source]:
    """Where the log of each topic is read: as ``source`` says, but a compacted topic from its archive if it has one.

    A topic without an archive is read from Kafka; raises ``Terminal`` when ``source`` is the archive.
    """
    topics = sorted({one.topic.name for one in topology.sources})
    archived = {topic for topic in topics if DeltaTable.is_deltatable(tables.archive(topic))}
    if source != "archive":
        found: dict[str, Source] = dict.fromkeys(topics, "kafka")
        for topic in archived:
            found[topic] = "archive" if is_compacted(connection, topic) else source
        return found
    missing = [topic for topic in topics if topic not in archived]
    if missing:
        raise Terminal(
            f"no archive of {', '.join(missing)}",
            given=[tables.archive(topic) for topic in missing],
            expected="the table that a topic's archive stream writes",
            remedy="declare Archive(topic=...) and run that stream, or audit with --source auto",
        )
    return dict.fromkeys(topics, source)


def log_of(settings: Settings, sources: Mapping[str, Source], *, in_tasks: bool = False) -> Log:
    """The raw log of topics, each read where ``sources`` says.

    Few records that Kafka has are read in this process, or (``in_tasks``) by Spark's tasks too.
    """
    connection = Connection.of(settings)
    kafka, archive = KafkaLog(options=connection.of_spark), ArchiveLog(tables=Tables(settings.data))
    whole = kafka if in_tasks else FewAtHand(connection=connection, of=kafka)

    def since(topic: str, ranges: Ranges) -> Mapping[int, int]:
        return _kafka_since(connection, topic, ranges)

    split = SplitLog(kafka=kafka, archive=archive, whole=whole, since=since)
    logs: dict[Source, Log] = {"auto": split, "kafka": whole, "archive": archive}
    return LogByTopic(logs={topic: logs[source] for topic, source in sources.items()})


def _kafka_since(connection: Connection, topic: str, ranges: Ranges) -> dict[int, int]:
    """From which offset on each partition is read from Kafka: the first that it has, the end where nothing is there."""
    spans = kept(connection, topic)
    since = {}
    for partition, (start, end) in ranges.items():
        # a topic that was recreated can have fewer partitions: of the others nothing is read
        first = spans[partition].start if partition in spans else end
        if start < first < end:
            has_any = next(messages(connection, topic, partition, first, end, "read_committed"), None) is not None
            first = first if has_any else end
        since[partition] = first
    return since


def require_kept(connection: Connection, tables: Tables, topic: str, ranges: Ranges, source: Source) -> None:
    """Raise ``Terminal`` when ``source`` has not all of ``ranges``, ``Transient`` when an archive is behind."""
    if source == "archive":
        _require_archived(tables, topic, ranges)
        return
    spans = kept(connection, topic)
    _require_long_enough(topic, ranges, spans)
    expired = {p: start for p, (start, end) in ranges.items() if p in spans and start < min(spans[p].start, end)}
    if source == "auto":
        gone = {p: (start, min(spans[p].start, ranges[p][1])) for p, start in expired.items()}
        require_no_hole(tables, topic, gone)
    elif expired:
        raise Terminal(
            f"records of {topic} have expired before they were audited",
            given={partition: spans[partition].start for partition in expired},
            expected=f"to begin at offsets {expired}",
            remedy="where the topic has an archive, audit with --source auto; else what is missing can be judged no "
            "more: "
            "begin again with `recount reset`, and set the topic's retention above the longest time without an audit, "
            "or declare Archive(topic=...) and run it",
        )


def _require_long_enough(topic: str, ranges: Ranges, spans: Mapping[int, LogRange]) -> None:
    ends = {partition: spans[partition].end if partition in spans else 0 for partition in ranges}
    short = {p: end for p, (start, end) in ranges.items() if start < end and ends[p] < end}
    if short:
        raise Terminal(
            f"{topic} ends before what the stream has read of it",
            given={partition: ends[partition] for partition in short},
            expected=f"to end at or after the offsets {short}",
            remedy="it was deleted and created again, or cut: where it has an archive, audit with --source archive; "
            "else begin again with `recount reset`",
        )


def still_seen(
    topic: str, seen: Mapping[int, int], spans: Mapping[int, LogRange], *, is_anew: bool
) -> Mapping[int, int]:
    """Return up to where the last audit has ``seen`` ``topic``; nowhere where it was recreated, and is shorter.

    ``is_anew``: it has another id than it had then. A copy of the cluster has that as well: then it is as long, and
    what was seen of the former topic is not read again. Raises ``Terminal`` for one that is shorter with the same id.
    """
    ends = {partition: spans[partition].end if partition in spans else None for partition in seen}
    shorter = {partition: end for partition, end in ends.items() if end is None or end < seen[partition]}
    if not shorter:
        return seen
    if is_anew:
        return {}
    raise Terminal(
        f"{topic} ends before what the last audit has read of it",
        given=shorter,
        expected=f"to end at or after the offsets { ({partition: seen[partition] for partition in shorter}) }",
        remedy="it was deleted and created again, or cut: see who did, and audit it --from-the-beginning",
    )


def require_no_hole(tables: Tables, topic: str, gone: Ranges) -> None:
    """Raise ``Terminal`` unless the archive has the offsets ``gone``, which Kafka has not any more."""
    begins, reached = _archived(tables, topic) if gone else ({}, {})
    holes = {p: (start, end) for p, (start, end) in gone.items() if begins.get(p, 0) > start or reached.get(p, 0) < end}
    if holes:
        raise Terminal(
            f"records of {topic} have left Kafka, and its archive has not all of them",
            given={p: f"archived from {begins.get(p, 0)} to {reached.get(p, 0)}" for p in holes},
            expected=f"the offsets {holes}",
            remedy=f"what is in neither can be judged no more: see that archive-{topic} runs, and set the topic's "
            "retention above the time that it may be behind; then begin again with `recount reset`",
        )


def _archived(tables: Tables, topic: str) -> tuple[dict[int, int], dict[int, int]]:
    """From where, and up to where, the archive has each partition; one that came later is there from its beginning."""
    path = tables.archive(topic)
    newest = next(Proofs(state=path).newest_first(), None)
    if newest is None:
        return {}, {}
    log = CommitLog(path)
    infos = ((version, log.info(version)) for version in range(log.version + 1))
    entries = (Entry.of_commit(info, log.place(version)) for version, info in infos if info)
    oldest = next(filter(None, entries), newest)
    begins = {part.partition: part.start for part in oldest.proof.partitions}
    return begins, {part.partition: part.end for part in newest.proof.partitions}


def _require_archived(tables: Tables, topic: str, ranges: Ranges) -> None:
    begins, reached = _archived(tables, topic)
    missing = {p: (start, begins[p]) for p, (start, end) in ranges.items() if start < min(begins.get(p, 0), end)}
    if missing:
        raise Terminal(
            f"the archive of {topic} begins after what the stream has read",
            given={partition: begins[partition] for partition in missing},
            expected=f"the offsets {missing}",
            remedy="audit with --source auto while Kafka has them",
        )
    behind = {p: end for p, (start, end) in ranges.items() if start < end and reached.get(p, 0) < end}
    if behind:
        raise Transient(
            f"the archive of {topic} is behind the stream",
            given=[f"{topic}-{partition} archived up to offset {reached.get(partition, 0)}" for partition in behind],
            expected=f"what the stream has read, partition and offset: {behind}",
            remedy=f"see that archive-{topic} runs, and audit again",
        )


def unread(connection: Connection, ledger: Ledger, in_force: InForce) -> list[Difference]:
    """Records that are on Kafka before the first offset that the stream has ever read, with which ``ledger`` begins.

    None of them is missed before the offsets from which the declaration ``in_force`` was set to read.
    """
    found = []
    for topic, ranges in ledger.ranges.items():
        there, begins = kept(connection, topic), in_force.begins(topic)
        for partition, (start, _) in ranges.items():
            first = max(there[partition].start, begins.get(partition, 0))
            if first < start:
                found.append(_unread(f"{topic}-{partition}", first, start))
    return found


def _unread(place: str, first: int, start: int) -> Difference:
    return Difference(
        kind=OFFSETS,
        place=place,
        verdict="unread",
        expected=f"read from offset {first}",
        actual=f"read from offset {start}",
        cause="the stream began after the beginning of the log",
        evidence=(f"{place}@[{first}, {start})",),
    )


@dataclass(frozen=True, kw_only=True)
class Reach:
    """An audit judges the batches after ``seed`` up to ``cut``; none where ``cut`` is that of ``seed``.

    ``short`` are the partitions whose log ends before what the stream has read of them.
    """

    seed: Seed
    cut: BatchProof
    short: tuple[Difference, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StretchLog:
    """The topics that a stream reads, each where ``sources`` says."""

    connection: Connection
    tables: Tables
    sources: Mapping[str, Source]

    def require(self, stretch: Ledger) -> None:
        """Raise as ``require_kept`` does unless all is there that the batches of ``stretch`` have read."""
        for topic, ranges in stretch.ranges.items():
            require_kept(self.connection, self.tables, topic, ranges, self.sources[topic])

    def has(self, stretch: Ledger) -> bool:
        """Whether it is; raises ``Transient`` where an archive is behind."""
        try:
            self.require(stretch)
        except Terminal:
            return False
        return True

    def cut_short(self, stretch: Ledger) -> tuple[Difference, ...]:
        """The partitions whose log on Kafka ends before what the batches of ``stretch`` have read of it."""
        found = []
        for topic, ranges in stretch.ranges.items():
            if self.sources[topic] == "archive":
                continue
            spans = kept(self.connection, topic)
            for partition, (start, end) in ranges.items():
                reached = spans[partition].end if partition in spans else 0
                if start < end and reached < end:
                    found.append(_cut_short(topic, partition, end, reached))
        return tuple(found)

    def reach(self, ledger: Ledger, seed: Seed, cut: BatchProof, judged: Seed) -> Reach:
        """How far an audit gets that is to judge the batches of ``ledger`` after ``seed`` up to ``cut``.

        Where their log is not there, it stands at the audit that has ``judged`` the batch ``cut`` itself, if there is
        one; else, where the log was cut short, at ``seed``. Otherwise nothing can be done: ``require`` says why.
        """
        stretch = ledger.between(seed.order, cut.order)
        short = self.cut_short(stretch)
        if short or not self.has(stretch):
            if judged.run:
                return Reach(seed=judged, cut=cut, short=short)
            last = next((proof for proof in ledger.proofs if proof.order == seed.order), None)
            if short and last:
                return Reach(seed=seed, cut=last, short=short)
        return Reach(seed=seed, cut=cut)


def _cut_short(topic: str, partition: int, end: int, reached: int) -> Difference:
    """The same every night, however far the log has grown: who has accepted it has accepted it the next night too."""
    return Difference(
        kind=OFFSETS,
        place=f"{topic}-{partition}",
        verdict=CUT_SHORT,
        expected=f"a log up to offset {end}, as in the ledger",
        actual="a log that ends before",
        cause=f"the log ended at {reached}: the topic was deleted and created again, or cut; the batches that read"
        " beyond can be judged no more",
        evidence=(f"{topic}-{partition}@{end}",),
    )
