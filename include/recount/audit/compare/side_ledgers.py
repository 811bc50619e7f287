"""Comparison of a stream's lists of single records with the recomputed ones, in the recompute's database.

The lists are the late ledger, the rejected records and the records of dead-letter topics, which are found by the source
offsets in their headers.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from recount.audit.carry.delta_frames import frame_at
from recount.audit.carry.removed import kept_late, kept_rejected, letters_due, letters_gone
from recount.audit.compare.committed import CommittedRecord, rows_of
from recount.audit.cut.audited_ledger import Ledger, Order
from recount.audit.cut.kept_log import written_so_far
from recount.certificate.finding import UNLISTED, Difference
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.kafka.dead_letters import REASON, SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC, STREAM
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column
from recount.recompute.frames.duck_frames import Frame, frame_of
from recount.recompute.frames.duck_handover import Handover
from recount.recompute.operators.recomputed import Recomputed
from recount.recompute.raw_log import KafkaLog, Ranges
from recount.tables.ledger import BatchProof
from recount.tables.places import Released, Tables

LATE_LEDGER, DEAD_LETTERS = "late ledger", "dead letters"
RECORD = ("topic", "partition", "offset")
MAX_DIFFERENCES = 1_000
_Place = tuple[Any, ...]
_CAUSES = {
    "lost": "the stream did not list a record that the log and its stream time make one",
    "extra": "the stream lists a record that the log and its stream time do not make one",
    "altered": "the stream judged the record by another time, key or reason than the log gives",
    "duplicated": "the record is listed more than once",
}
_SHOULD, _DOES = "should", "does"
_LETTER = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("reason", pa.string()),
        ("stream", pa.string()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Records that the stream has ``listed`` in ``place`` and those it should have; ``values`` are columns compared."""

    kind: str
    place: str
    recomputed: Frame
    listed: Frame
    values: Sequence[str]
    by_window: bool = False

    @property
    def identity(self) -> list[str]:
        """The columns that say which record, and for which window, a line is about."""
        return [*RECORD, *([WINDOW_START] if self.by_window else [])]


def late_records(recomputed: Frame, ledger: Frame) -> Comparison:
    """The late ledger beside the recomputed late (record, window) pairs.

    A record can be late for several operators, and for one that has no windows: then its lines are compared together.
    """
    return Comparison(
        kind=LATE_LEDGER,
        place="late table",
        recomputed=recomputed,
        listed=ledger,
        values=("timestamp_ms", "stream_time_ms", "key", WINDOW_END, "margin_ms"),
        by_window=True,
    )


def rejected_records(recomputed: Frame, table: Frame) -> Comparison:
    """The table of rejected records beside the recomputed bad records."""
    return Comparison(
        kind=DEAD_LETTERS,
        place="rejected table",
        recomputed=recomputed,
        listed=table,
        values=("timestamp_ms", "reason"),
    )


def posted_letters(recomputed: Frame, letters: Frame, topic: str) -> Comparison:
    """The dead-letter topic beside the recomputed bad records; a letter written twice counts."""
    return Comparison(kind=DEAD_LETTERS, place=topic, recomputed=recomputed, listed=letters, values=("reason",))


def side_ledger_differences(comparisons: Sequence[Comparison]) -> list[Difference]:
    """Where the lists differ, at most ``MAX_DIFFERENCES`` of each: what does not pair one to one, with equal values.

    One more says so where there are more.
    """
    found = []
    for one in comparisons:
        listed = list(_differences(one))
        found += listed[:MAX_DIFFERENCES]
        if len(listed) > MAX_DIFFERENCES:
            found.append(_unlisted(one, listed[-1]))
    return found


def _unlisted(comparison: Comparison, first: Difference) -> Difference:
    """Return one difference for those of ``comparison`` from ``first`` on, which are not listed."""
    return Difference(
        kind=comparison.kind,
        place=comparison.place,
        verdict=UNLISTED,
        expected="no further record differs",
        actual="further records differ",
        cause=f"more than {MAX_DIFFERENCES} records differ: audit from the beginning once the listed ones are repaired",
        evidence=first.evidence,
    )


def _difference(
    comparison: Comparison, row: Mapping[str, Any], should: Sequence[str], does: Sequence[str]
) -> Difference:
    """Return the difference where the place in ``row`` ``should`` say something and says something else."""
    verdict = _verdict(should, does)
    return Difference(
        kind=comparison.kind,
        place=comparison.place,
        verdict=verdict,
        window_start=row.get(WINDOW_START),
        expected=next(iter(should), None),
        actual=next(iter(does), None),
        cause=_CAUSES[verdict],
        evidence=(f"{row['topic']}-{row['partition']}@{row['offset']}",),
    )


def _differences(comparison: Comparison) -> Iterator[Difference]:
    """The first ``MAX_DIFFERENCES`` and one more, by place."""
    identity, columns = comparison.identity, [*comparison.identity, *comparison.values]
    sides = [
        frame.select(*columns, F.lit(is_expected).alias(_SHOULD))
        for frame, is_expected in ((comparison.recomputed, True), (comparison.listed, False))
    ]
    counted = sides[0].union(sides[1]).group_by(*columns)
    numbers = {_SHOULD: F.count_if(_SHOULD), _DOES: F.count_if(~F.col(_SHOULD))}
    lines = counted.agg(*(number.cast("long").alias(name) for name, number in numbers.items()))
    wrong = lines.where(F.col(_SHOULD) != F.col(_DOES)).select(*identity).distinct()
    first = wrong.sorted_by(*identity, at_most=MAX_DIFFERENCES + 1).rows()
    if not first:
        return
    about = frame_of(wrong.database, [pa.Table.from_pylist(first, wrong.arrow_schema)], wrong.arrow_schema)
    same = [F.col(name).equals_or_both_null(F.col(f"__{name}")) for name in identity]
    is_it = same[0]
    for one in same[1:]:
        is_it &= one
    should: dict[_Place, list[str]] = {}
    does: dict[_Place, list[str]] = {}
    known = about.renamed({name: f"__{name}" for name in identity})
    for row in lines.join(known, is_it, "left_semi").rows():
        place = tuple(row[name] for name in identity)
        told = {name: row[name] for name in comparison.values if row[name] is not None}
        line = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
        should.setdefault(place, []).extend([line] * row[_SHOULD])
        does.setdefault(place, []).extend([line] * row[_DOES])
    for row in first:
        place = tuple(row[name] for name in identity)
        yield _difference(comparison, row, sorted(should[place]), sorted(does[place]))


def _verdict(should: Sequence[str], does: Sequence[str]) -> str:
    if not should:
        return "extra"
    if len(does) < len(should):
        return "lost"
    return "altered" if set(does) != set(should) or len(does) == len(should) else "duplicated"


def within(letters: Frame, group: str, topic: str, ranges: Ranges, log: Mapping[str, Ranges]) -> Frame:
    """The letters of the stream with this consumer ``group`` about offsets in ``ranges`` of ``topic``.

    ``log`` has the offsets that ``topic`` has had, asked after those of the letters: a letter of the stream about any
    other place counts as well, also about another topic that the stream reads, whose letters lie in a topic of their
    own. So does one that names no stream, about these offsets or about none: no stream of this version wrote it.
    Letters of another stream are that stream's, whatever place they name.
    """
    nobodys = F.col("stream").is_null()
    mine = F.coalesce(F.col("stream") == group, F.lit(False))
    nowhere = ~_is_at(topic, log.get(topic, {}))
    judged = _is_at(topic, ranges) & (mine | nobodys)
    return letters.where(judged | (nowhere & (mine | (nobodys & F.col("offset").is_null()))))


def _is_at(topic: str, ranges: Ranges) -> Column:
    inside = F.lit(False)
    for partition, (start, end) in ranges.items():
        inside = inside | ((F.col("partition") == partition) & (F.col("offset") >= start) & (F.col("offset") < end))
    return F.coalesce((F.col("topic") == topic) & inside, F.lit(False))


def _letter(record: CommittedRecord) -> tuple[str | None, int | None, int | None, str | None, str | None]:
    return (
        record.header(SOURCE_TOPIC),
        _number(record.header(SOURCE_PARTITION), bits=32),
        _number(record.header(SOURCE_OFFSET), bits=64),
        record.header(REASON),
        record.header(STREAM),
    )


def _number(said: str | None, *, bits: int) -> int | None:
    try:
        number = int(said or "")
    except ValueError:
        return None
    return number if number.bit_length() < bits else None


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Lists of the stream: its tables, of the batches after ``seed`` in ``ledger``, and by topic its dead letters.

    ``last`` is the last batch of the stream, judged or not. What is ``released`` may be removed from the tables.
    """

    handover: Handover
    connection: Connection
    tables: Tables
    topology: Topology
    ledger: Ledger
    seed: Order | None
    posted: Mapping[str, Ranges]
    last: BatchProof
    released: Released | None = None

    def differences(self, recomputed: Recomputed) -> list[Difference]:
        """Where they are other lists than the recompute makes."""
        name, ours = self.topology.name, recomputed.ledgers
        late_kept, rejected_kept = kept_late(self.released, F), kept_rejected(self.released, F)
        late, rejected = map(self._written, (self.tables.late(name), self.tables.rejected(name)))
        comparisons = [
            late_records(ours["late"].where(late_kept), late.where(late_kept)),
            rejected_records(ours["rejected"].where(rejected_kept), rejected.where(rejected_kept)),
        ]
        topics = {source.topic.name: source.topic.dead_letter_name for source in self.topology.sources}
        letters = {topic: self._letters(place, self.posted[topic]) for topic, place in topics.items()}
        log = written_so_far(self.connection, sorted(topics), self.last)
        group = self.connection.group(name)
        for topic, place in topics.items():
            mine = within(letters[topic], group, topic, self.ledger.ranges[topic], log)
            bad = ours["rejected"].where(F.col("topic") == topic)
            gone = letters_gone(self.connection, self.ledger, topic, place)
            comparisons.append(posted_letters(letters_due(bad, mine, gone), mine, place))
        return side_ledger_differences(comparisons)

    def _written(self, path: str) -> Frame:
        """The rows of the judged batches."""
        return frame_at(self.handover.database, path, after=self.seed, up_to=self.ledger.proofs[-1].order)

    def _letters(self, place: str, ranges: Ranges) -> Frame:
        """The letters at these offsets of a dead-letter topic."""
        log = KafkaLog(options=self.connection.of_spark)
        return rows_of(self.handover, self.connection, log, place, ranges, _LETTER, _letter)
