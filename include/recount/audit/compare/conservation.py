"""Conservation of offsets: every offset of the audited range has exactly one fate, here and in the recompute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from recount.audit.cut.audited_ledger import Ledger
from recount.certificate.document import FATES
from recount.certificate.finding import Difference, PartitionAccount
from recount.declare.operators.nodes import Node
from recount.kafka.connection import Connection
from recount.kafka.offsets import classify_gap
from recount.recompute.operators.recomputed import Recomputed
from recount.runtime.errors import Terminal
from recount.tables.ledger import PartitionProof

OFFSETS, UNACCOUNTED = "offsets", "unaccounted"
_MAX_GAPS = 20
"""Looking up a gap costs two requests: beyond so many, the range from the first to the last is read in one go."""
_COLUMNS = {
    "counted": "counted",
    "late": "late",
    "filtered": "filtered",
    "waiting": "waiting",
    "null key": "null_key",
    "null value": "null_value",
    "deduplicated": "deduplicated",
    "dead-lettered": "dead_lettered",
}
_At = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class PartitionTotals:
    """One source partition of the interval: its offsets, the fate of its records, its stream time at the end."""

    partition: int
    start: int
    end: int
    records: int
    counted: int
    late: int
    filtered: int
    null_key: int
    dead_lettered: int
    stream_time_ms: int | None
    null_value: int = 0
    deduplicated: int = 0
    waiting: int = 0


def accounts(
    connection: Connection, recomputed: Recomputed, topic: str, totals: Sequence[PartitionTotals]
) -> list[PartitionAccount]:
    """The account of each partition; offsets without a record are looked up as transaction markers and the like."""
    incomplete = {part.partition: (part.start, part.end) for part in totals if part.records < part.end - part.start}
    gaps = recomputed.gaps(topic, incomplete) if incomplete else {}
    return [_account(connection, topic, part, gaps.get(part.partition, [])) for part in totals]


def conservation_differences(
    found: Sequence[PartitionAccount], totals: Sequence[PartitionTotals], ledger: Ledger
) -> list[Difference]:
    """Offsets that nothing explains, and fates or stream times that the ledger tells otherwise.

    Raises ``Terminal`` where compaction has removed records that the stream has read.
    """
    differences = [
        Difference(
            kind=OFFSETS,
            place=f"{account.topic}-{account.partition}",
            verdict=UNACCOUNTED,
            expected=f"{account.end - account.start} offsets explained",
            actual=f"{account.unaccounted} without explanation",
            cause="a record in the log that the log's reader did not get",
            evidence=(f"{account.topic}-{account.partition}@[{account.start}, {account.end})",),
        )
        for account in found
        if account.unaccounted
    ]
    for account, part in zip(found, totals, strict=True):
        claims = [
            claim
            for proof in ledger.proofs
            for claim in proof.partitions
            if (claim.topic, claim.partition) == (account.topic, part.partition)
        ]
        _require_not_compacted(account, part, claims)
        differences += _against_ledger(account.topic, part, claims)
    return differences


def _require_not_compacted(account: PartitionAccount, part: PartitionTotals, claims: Sequence[PartitionProof]) -> None:
    read = sum(claim.records for claim in claims)
    if account.compacted and part.records < read:
        raise Terminal(
            f"records of {account.topic} that the stream has read are no longer there: the topic is compacted",
            given=f"{part.records} records in {account.topic}-{part.partition}@[{part.start}, {part.end})",
            expected=f"{read}, as in the ledger",
            remedy=f"declare Archive(topic=...) of {account.topic} and run it: audits then read the topic there; "
            "what is missing can be judged no more, so begin again with `recount reset`",
        )


def _against_ledger(topic: str, part: PartitionTotals, claims: Sequence[PartitionProof]) -> Iterator[Difference]:
    # what becomes of a record that waits is decided after the batch that tells of it
    told = ("records", "dead_lettered") if any(claim.waiting for claim in claims) else ("records", *FATES)
    for name in told:
        claimed, recomputed = sum(getattr(claim, name) for claim in claims), getattr(part, name)
        if claimed != recomputed:
            yield _told_otherwise(topic, part, name, f"{recomputed} records", f"{claimed} records")
    claimed_ms = claims[-1].stream_time_ms if claims else None
    if claims and claimed_ms != part.stream_time_ms:
        yield _told_otherwise(topic, part, "stream time", f"{part.stream_time_ms} ms", f"{claimed_ms} ms")


def _told_otherwise(topic: str, part: PartitionTotals, name: str, expected: str, actual: str) -> Difference:
    return Difference(
        kind=OFFSETS,
        place=f"{topic}-{part.partition}",
        verdict=name,
        expected=expected,
        actual=actual,
        cause="the batch ledger and the log disagree on what became of the records",
        evidence=(f"{topic}-{part.partition}@[{part.start}, {part.end})",),
    )


def _account(
    connection: Connection, topic: str, part: PartitionTotals, gaps: Sequence[tuple[int, int]]
) -> PartitionAccount:
    looked_up = gaps if len(gaps) <= _MAX_GAPS else [(gaps[0][0], gaps[-1][1])]
    found = [classify_gap(connection, topic, part.partition, start, end) for start, end in looked_up]
    return PartitionAccount(
        topic=topic,
        partition=part.partition,
        start=part.start,
        end=part.end,
        counted=part.counted,
        late=part.late,
        filtered=part.filtered,
        null_key=part.null_key,
        null_value=part.null_value,
        deduplicated=part.deduplicated,
        waiting=part.waiting,
        dead_lettered=part.dead_lettered,
        control=sum(gap.control for gap in found),
        aborted=sum(gap.aborted for gap in found),
        compacted=sum(gap.compacted for gap in found),
        expired=sum(gap.expired for gap in found),
        stream_time_ms=part.stream_time_ms,
    )


def totals_by_topic(
    truth: Recomputed, ledger: Ledger, before_ms: Mapping[_At, int | None], clock: Node | None = None
) -> dict[str, tuple[PartitionTotals, ...]]:
    """The totals of every partition that ``ledger`` names, those of which nothing was read included.

    ``before_ms`` are the stream times of topics' partitions before the batches of ``ledger``. They go by all good
    records; with a ``clock`` by those that advance the stream time of this operator.
    """
    fates: dict[_At, dict[str, int]] = {}
    for row in truth.fate_counts():
        fates.setdefault((row["topic"], row["partition"]), {})[_COLUMNS[row["fate"]]] = row["n"]
    times = truth.latest_ms(clock)
    return {
        topic: tuple(
            _totals(partition, span, fates.get((topic, partition), {}), _latest(times, before_ms, (topic, partition)))
            for partition, span in ranges.items()
        )
        for topic, ranges in ledger.ranges.items()
    }


def _totals(partition: int, span: tuple[int, int], fates: dict[str, int], time_ms: int | None) -> PartitionTotals:
    return PartitionTotals(
        partition=partition,
        start=span[0],
        end=span[1],
        records=sum(fates.values()),
        stream_time_ms=time_ms,
        **{column: fates.get(column, 0) for column in _COLUMNS.values()},
    )


def _latest(times: Mapping[_At, int], before_ms: Mapping[_At, int | None], at: _At) -> int | None:
    known = [time_ms for time_ms in (times.get(at), before_ms.get(at)) if time_ms is not None]
    return max(known, default=None)
