"""The batch ledger: what each micro-batch read, what became of every record, and how far event time had come.

A ``BatchProof`` is committed in the ``userMetadata`` of the very Delta commit that appends the batch's state, so state
and proof are there together or not at all. The audit replays the log against it.

Topics are known by the ids that Kafka gives them. A topic that is deleted and made again has another id, and so has its
copy on another cluster: the name is the same, and offsets of the one say nothing about the other.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from recount.certificate.finding import Difference
from recount.runtime.errors import Terminal
from recount.runtime.times import quantity

TOPIC, MADE_ANEW = "topic", "made anew"
TopicIds = Mapping[str, str]
"""By topic; one of which no id is known is left out."""
VERSION = 1
_SHOWN = 200
"""Characters of a damaged proof, which can be long."""
YEAR_MS = 366 * 86_400_000
YEAR_2000_MS = 946_684_800_000
UNITS_AHEAD = {"microseconds": 1_000, "nanoseconds": 1_000_000}
"""Units that make a time of the far future, and how many of each are a millisecond."""


def topics_made_anew(told: Iterable[TopicIds]) -> list[Difference]:
    """Each change of a topic's id in ``told``, oldest first; where one says nothing of a topic, those before it count.

    Both ids are evidence, and so part of the finding's id: accepting one change accepts no other. Of the ids a,
    unknown, b, b there is one change, from a to b.
    """
    last: dict[str, str] = {}
    found = []
    for ids in told:
        for topic, now in ids.items():
            before = last.get(topic, now)
            if now != before:
                found.append(_made_anew(topic, before, now))
            last[topic] = now
    return found


def _made_anew(topic: str, before: str, now: str) -> Difference:
    return Difference(
        kind=TOPIC,
        place=topic,
        verdict=MADE_ANEW,
        expected=before,
        actual=now,
        cause="the topic has another id: it was deleted and created again, or it is on another cluster",
        evidence=(before, now),
    )


@dataclass(frozen=True, kw_only=True)
class PartitionProof:
    """One source partition in one batch: offsets ``start`` <= o < ``end``, and the fate of each record in them.

    ``records`` is the sum of all fates, from ``counted`` to ``dead_lettered``; the offsets that no record answers for
    (``end - start - records``) are transaction markers, aborted or expired records, which the audit looks up.
    ``stream_time_ms`` is the largest event time at offsets < ``end``, None before the first. ``counted`` records
    reached a result in at least one window; ``late`` ones in none; ``waiting`` ones are held until time has passed.
    ``last_read_ms`` is the recorded time of the last batch that read a record here: by it a partition is judged idle.
    So many records have an event time that looks like one ``in_seconds``; proofs of earlier releases count none.
    """

    topic: str
    partition: int
    start: int
    end: int
    records: int = 0
    counted: int = 0
    late: int = 0
    filtered: int = 0
    null_key: int = 0
    null_value: int = 0
    deduplicated: int = 0
    waiting: int = 0
    dead_lettered: int = 0
    stream_time_ms: int | None = None
    last_read_ms: int | None = None
    idle: bool = False
    in_seconds: int = 0

    @property
    def fates(self) -> int:
        refused = self.null_key + self.null_value + self.deduplicated + self.dead_lettered
        return self.counted + self.late + self.filtered + self.waiting + refused


@dataclass(frozen=True, kw_only=True)
class BatchProof:
    """One batch of one stream.

    ``generation`` counts the checkpoints that the stream has had, and batches are ordered by (generation, batch).
    ``frontier_ms`` is the smallest stream time over the partitions that are not idle, None while one of them has none.
    ``batch_timestamp_ms`` is the time that Spark recorded for the batch, the same in every replay of it.
    ``fingerprint`` is that of the declaration by which the batch was made (``declare.fingerprint``), None in proofs of
    earlier releases. ``appended`` says of each table beside the state which batch added the last rows to it, this one
    or an earlier one, by checkpoint id and number: a table that lacks it is older than the ledger. ``topic_ids`` are
    the last known ones of the topics that the stream reads and writes; proofs of earlier releases have none.
    """

    stream: str
    generation: int
    batch: int
    checkpoint_id: str
    lease_epoch: int
    batch_timestamp_ms: int
    partitions: tuple[PartitionProof, ...]
    frontier_ms: int | None
    emitted: Mapping[str, int] = field(default_factory=dict)
    fingerprint: str | None = None
    appended: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    topic_ids: TopicIds = field(default_factory=dict)
    version: int = VERSION

    def to_json(self) -> str:
        """The text that is committed as ``userMetadata``."""
        return json.dumps({"recount": "batch", **asdict(self)}, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | None, place: str = "a commit") -> BatchProof | None:
        """The proof in a commit's ``userMetadata``; None where the commit is no batch (table creation, compaction).

        ``place`` names the commit or row for the person who repairs it: raises ``Terminal`` where the proof is damaged.
        """
        if not isinstance(text, str) or not text.startswith("{"):
            return None
        try:
            return cls._read(json.loads(text))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise Terminal.of(
                "proof-unreadable", given=f"{place}: {type(error).__name__}: {error}, in {text[:_SHOWN]}"
            ) from error

    @classmethod
    def _read(cls, document: dict[str, Any]) -> BatchProof | None:
        if document.pop("recount", None) != "batch":
            return None
        if document["version"] != VERSION:
            raise Terminal.of("proof-of-another-version", given=document["version"], expected=str(VERSION))
        document["partitions"] = tuple(PartitionProof(**partition) for partition in document["partitions"])
        document["appended"] = {table: (found[0], found[1]) for table, found in document.get("appended", {}).items()}
        proof = cls(**document)
        if not all(type(one) is int for one in (*proof.order, proof.batch_timestamp_ms)):
            raise TypeError("generation, batch and batch_timestamp_ms are whole numbers")
        return proof

    @property
    def order(self) -> tuple[int, int]:
        """Batches in the order in which they were committed."""
        return self.generation, self.batch

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """Offsets after the last record that the stream had read, by topic and partition."""
        return {(part.topic, part.partition): part.end for part in self.partitions}


def warnings_of_seconds(partitions: Iterable[PartitionProof]) -> dict[str, str]:
    """A warning for each topic that has records in ``partitions`` whose event times look like seconds."""
    records: Counter[str] = Counter()
    in_seconds: Counter[str] = Counter()
    for part in partitions:
        records[part.topic] += part.records
        in_seconds[part.topic] += part.in_seconds
    return {topic: _warning(topic, many, records[topic]) for topic, many in sorted(in_seconds.items()) if many}


def _warning(topic: str, in_seconds: int, records: int) -> str:
    return (
        f"event times of {topic} look like seconds: those of {in_seconds:,} of {quantity(records, 'record')}"
        f" ({in_seconds / records:.2%}) are in January 1970 as milliseconds since the epoch, which event times are,"
        " and after the year 2000 as seconds: let the producer write milliseconds"
    )


def unit_ahead(time_ms: int, record_ms: int) -> str:
    """The unit in which a time of the far future is within a year of the record's own; empty where there is none.

    >>> unit_ahead(1_767_225_600_000_000, 1_767_225_600_000)
    'microseconds'
    """
    return next((unit for unit, many in UNITS_AHEAD.items() if abs(time_ms // many - record_ms) <= YEAR_MS), "")
