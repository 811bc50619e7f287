"""Comparison of a stream's lists of single records with the recomputed ones; by Spark for any length.

The lists are the late ledger, the rejected records and the records of dead-letter topics. Those of a single aggregation
are compared without Spark where their length allows.

Records of a dead-letter topic are found by the source offsets in their headers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Any, Generic, TypeVar

import polars as pl
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from recount.audit.carry.removed import (
    kept_late,
    kept_rejected,
    letters_due,
    letters_due_by_spark,
    letters_gone,
)
from recount.audit.carry.snapshots import RECORDS_AT_HAND
from recount.audit.compare.committed import CommittedRecord, committed_records, header, offsets_in, read_committed
from recount.audit.compare.published import is_after, written_after
from recount.audit.cut.audited_ledger import Ledger
from recount.audit.cut.kept_log import written_so_far
from recount.certificate.finding import UNLISTED, Difference
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.kafka.connection import Connection
from recount.kafka.dead_letters import REASON, SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC, STREAM
from recount.recompute.raw_log import Ranges
from recount.recompute.window_partials import WindowPartials
from recount.tables.ledger import BatchProof
from recount.tables.places import Released, Tables

LATE_LEDGER, DEAD_LETTERS = "late ledger", "dead letters"
RECORD = ("topic", "partition", "offset")
MAX_DIFFERENCES = 1_000
Rows = TypeVar("Rows")
"""Polars' or Spark's rows."""
_Place = tuple[Any, ...]
_CAUSES = {
    "lost": "the stream did not list a record that the log and its stream time make one",
    "extra": "the stream lists a record that the log and its stream time do not make one",
    "altered": "the stream judged the record by another time, key or reason than the log gives",
    "duplicated": "the record is listed more than once",
}
_COMPARISON = "comparison"
_SCHEMA = {
    "topic": pl.String(),
    "partition": pl.Int32(),
    "offset": pl.Int64(),
    "reason": pl.String(),
    "stream": pl.String(),
}


@dataclass(frozen=True, kw_only=True)
class Comparison(Generic[Rows]):
    """Records that the stream has ``listed`` in ``place`` and those it should have; ``values`` are columns compared."""

    kind: str
    place: str
    recomputed: Rows
    listed: Rows
    values: Sequence[str]
    by_window: bool = False


def late_records(recomputed: Rows, ledger: Rows) -> Comparison[Rows]:
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


def rejected_records(recomputed: Rows, table: Rows) -> Comparison[Rows]:
    """The table of rejected records beside the recomputed bad records."""
    return Comparison(
        kind=DEAD_LETTERS,
        place="rejected table",
        recomputed=recomputed,
        listed=table,
        values=("timestamp_ms", "reason"),
    )


def posted_letters(recomputed: Rows, letters: Rows, topic: str) -> Comparison[Rows]:
    """The dead-letter topic beside the recomputed bad records; a letter written twice counts."""
    return Comparison(kind=DEAD_LETTERS, place=topic, recomputed=recomputed, listed=letters, values=("reason",))


def side_ledger_differences(comparisons: Sequence[Comparison[pl.DataFrame]]) -> list[Difference]:
    """Where the lists differ, at most ``MAX_DIFFERENCES`` of each: what does not pair one to one, with equal values.

    One more says so where there are more.
    """
    found = []
    for one in comparisons:
        listed = list(islice(_differences(one), MAX_DIFFERENCES + 1))
        found += listed[:MAX_DIFFERENCES]
        if len(listed) > MAX_DIFFERENCES:
            found.append(unlisted_difference(one, listed[-1]))
    return found


def unlisted_difference(comparison: Comparison[Rows], first: Difference) -> Difference:
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


def difference(
    comparison: Comparison[Rows], row: Mapping[str, Any], should: Sequence[str], does: Sequence[str]
) -> Difference:
    """Return the difference where the place in ``row`` ``should`` say something and says something else."""
    verdict = _verdict(should, does)
    return Difference(
        kind=comparison.kind,
        place=comparison.place,
        verdict=verdict,
        window_start=row[WINDOW_START],
        expected=next(iter(should), None),
        actual=next(iter(does), None),
        cause=_CAUSES[verdict],
        evidence=(f"{row['topic']}-{row['partition']}@{row['offset']}",),
    )


def _differences(comparison: Comparison[pl.DataFrame]) -> Iterator[Difference]:
    should, does = (_said(comparison, rows) for rows in (comparison.recomputed, comparison.listed))
    wrong = (place for place in should.keys() | does.keys() if should.get(place) != does.get(place))
    for place in sorted(wrong, key=_null_first):
        row = dict(zip((*RECORD, WINDOW_START), place, strict=True))
        yield difference(comparison, row, should.get(place, ()), does.get(place, ()))


def _said(comparison: Comparison[pl.DataFrame], rows: pl.DataFrame) -> dict[_Place, list[str]]:
    """Return what is said of each record, and window where these matter."""
    windows = [WINDOW_START] if comparison.by_window else []
    said: dict[_Place, list[str]] = {}
    for row in rows.select(*RECORD, *windows, *comparison.values).iter_rows(named=True):
        place = (*(row[name] for name in RECORD), row[WINDOW_START] if windows else None)
        told = {name: row[name] for name in comparison.values if row[name] is not None}
        said.setdefault(place, []).append(json.dumps(told, ensure_ascii=False, separators=(",", ":")))
    return {place: sorted(lines) for place, lines in said.items()}


def _null_first(place: _Place) -> list[tuple[bool, Any]]:
    return [(value is not None, value) for value in place]


def _verdict(should: Sequence[str], does: Sequence[str]) -> str:
    if not should:
        return "extra"
    if len(does) < len(should):
        return "lost"
    return "altered" if set(does) != set(should) or len(does) == len(should) else "duplicated"


def side_ledger_differences_by_spark(comparisons: Sequence[Comparison[DataFrame]]) -> list[Difference]:
    """Where the lists differ, at most ``MAX_DIFFERENCES`` of each and one that says that there are more; one
    shuffle lines all of them up."""
    claims = [_claims(number, one) for number, one in enumerate(comparisons)]
    lined_up = (
        reduce(DataFrame.unionByName, claims)
        .groupBy(_COMPARISON, *RECORD, WINDOW_START)
        .agg(
            F.array_sort(F.collect_list(F.when(F.col("expected"), F.col("said")))).alias("should"),
            F.array_sort(F.collect_list(F.when(~F.col("expected"), F.col("said")))).alias("does"),
        )
    )
    in_order = Window.partitionBy(_COMPARISON).orderBy(*RECORD, WINDOW_START)
    wrong = lined_up.where(F.col("should") != F.col("does")).withColumn("number", F.row_number().over(in_order))
    listed = wrong.where(F.col("number") <= MAX_DIFFERENCES + 1).collect()
    found = []
    for row in sorted(listed, key=lambda row: (row[_COMPARISON], row.number)):
        comparison = comparisons[row[_COMPARISON]]
        one = difference(comparison, row.asDict(), row.should, row.does)
        found.append(one if row.number <= MAX_DIFFERENCES else unlisted_difference(comparison, one))
    return found


def _claims(number: int, comparison: Comparison[DataFrame]) -> DataFrame:
    def claimed(rows: DataFrame, *, expected: bool) -> DataFrame:
        window_start = F.col(WINDOW_START) if comparison.by_window else F.lit(None)
        return rows.select(
            F.lit(number).alias(_COMPARISON),
            *RECORD,
            window_start.cast("long").alias(WINDOW_START),
            F.to_json(F.struct(*comparison.values)).alias("said"),
            F.lit(expected).alias("expected"),
        )

    return claimed(comparison.recomputed, expected=True).unionByName(claimed(comparison.listed, expected=False))


def dead_letters(connection: Connection, topic: str, letters: Ranges) -> pl.DataFrame:
    """Return what ``letters``, offsets of the dead-letter ``topic``, say."""
    rows = [_letter(record) for record in read_committed(connection, topic, letters)]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def within(rows: pl.DataFrame, group: str, topic: str, ranges: Ranges, log: Mapping[str, Ranges]) -> pl.DataFrame:
    """The letters of the stream with this consumer ``group`` about offsets in ``ranges`` of ``topic``.

    ``log`` has the offsets that ``topic`` has had, asked after those of the letters: a letter of the stream about any
    other place counts as well, also about another topic that the stream reads, whose letters lie in a topic of their
    own. So does one that names no stream, about these offsets or about none: no stream of this version wrote it.
    Letters of another stream are that stream's, whatever place they name.
    """
    mine, nobodys = (pl.col("stream") == group).fill_null(value=False), pl.col("stream").is_null()
    nowhere = ~_is_at(topic, log.get(topic, {}))
    judged = _is_at(topic, ranges) & (mine | nobodys)
    return rows.filter(judged | nowhere & (mine | nobodys & pl.col("offset").is_null()))


def _is_at(topic: str, ranges: Ranges) -> pl.Expr:
    inside = pl.lit(value=False)
    for partition, (start, end) in ranges.items():
        inside = inside | ((pl.col("partition") == partition) & pl.col("offset").is_between(start, end, closed="left"))
    return ((pl.col("topic") == topic) & inside).fill_null(value=False)


def dead_letters_by_spark(session: SparkSession, connection: Connection, topic: str, letters: Ranges) -> DataFrame:
    """The same as Spark's rows."""
    records = committed_records(session, connection, topic, letters)
    if records is None:
        return session.createDataFrame([], "topic string, partition int, offset long, reason string, stream string")
    return records.select(
        header(SOURCE_TOPIC).alias("topic"),
        header(SOURCE_PARTITION).try_cast("int").alias("partition"),
        header(SOURCE_OFFSET).try_cast("long").alias("offset"),
        header(REASON).alias("reason"),
        header(STREAM).alias("stream"),
    )


def within_by_spark(rows: DataFrame, group: str, topic: str, ranges: Ranges, log: Mapping[str, Ranges]) -> DataFrame:
    """``within`` of Spark's rows."""
    mine, nobodys = F.col("stream").eqNullSafe(group), F.col("stream").isNull()
    nowhere = ~_is_at_by_spark(topic, log.get(topic, {}))
    judged = _is_at_by_spark(topic, ranges) & (mine | nobodys)
    return rows.where(judged | nowhere & (mine | nobodys & F.col("offset").isNull()))


def _is_at_by_spark(topic: str, ranges: Ranges) -> Column:
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
    """Lists of the stream: its tables, of the batches in ``ledger``, and ``letters``, dead-letter offsets.

    ``last`` is the last batch of the stream, judged or not. What is ``released`` may be removed from the tables.
    """

    session: SparkSession
    connection: Connection
    tables: Tables
    ledger: Ledger
    letters: Ranges
    last: BatchProof
    released: Released | None = None

    def differences(self, partials: WindowPartials) -> list[Difference]:
        """Where it is another list than the recompute makes."""
        source, name, recomputed = partials.flow.source.topic, partials.flow.topology.name, partials.recomputed
        place, ranges = source.dead_letter_name, self.ledger.ranges[source.name]
        late, rejected = self._written(self.tables.late(name)), self._written(self.tables.rejected(name))
        lengths = pl.collect_all([rows.select(pl.len()) for rows in (late, rejected)])
        ours = [recomputed.ledgers.frames[one].number() for one in ("late", "rejected")]
        longest = max(sum(ours), offsets_in(self.letters), *(length.item() for length in lengths))
        if longest > RECORDS_AT_HAND:
            return self._by_spark(partials)
        posted = dead_letters(self.connection, place, self.letters)
        mine = within(posted, self.connection.group(name), source.name, ranges, self._log(source.name))
        known, bad = (pl.DataFrame(recomputed.ledgers.frames[one].arrow()) for one in ("late", "rejected"))
        gone = letters_gone(self.connection, self.ledger, source.name, place)
        late_kept, rejected_kept = kept_late(self.released), kept_rejected(self.released)
        return side_ledger_differences(
            [
                late_records(known.filter(late_kept), late.filter(late_kept).collect()),
                rejected_records(bad.filter(rejected_kept), rejected.filter(rejected_kept).collect()),
                posted_letters(letters_due(bad, mine, gone), mine, place),
            ]
        )

    def _by_spark(self, partials: WindowPartials) -> list[Difference]:
        source, name, recomputed = partials.flow.source.topic, partials.flow.topology.name, partials.recomputed
        place = source.dead_letter_name
        posted = dead_letters_by_spark(self.session, self.connection, place, self.letters)
        mine = within_by_spark(
            posted,
            self.connection.group(name),
            source.name,
            self.ledger.ranges[source.name],
            self._log(source.name),
        )
        late, rejected = (self._spark_rows(path) for path in (self.tables.late(name), self.tables.rejected(name)))
        late_kept, rejected_kept = kept_late(self.released, F), kept_rejected(self.released, F)
        gone = letters_gone(self.connection, self.ledger, source.name, place)
        return side_ledger_differences_by_spark(
            [
                late_records(recomputed.late.where(late_kept), late.where(late_kept)),
                rejected_records(recomputed.rejected.where(rejected_kept), rejected.where(rejected_kept)),
                posted_letters(letters_due_by_spark(recomputed.rejected, mine, gone), mine, place),
            ]
        )

    def _log(self, topic: str) -> dict[str, Ranges]:
        return written_so_far(self.connection, [topic], self.last)

    def _written(self, path: str) -> pl.LazyFrame:
        (generation, batch), last = self.ledger.proofs[0].order, self.ledger.proofs[-1].order
        is_new = pl.lit(value=not self.ledger.stands)
        return pl.scan_delta(path).filter(is_new & written_after((generation, batch - 1)) & ~written_after(last))

    def _spark_rows(self, path: str) -> DataFrame:
        (generation, batch), last = self.ledger.proofs[0].order, self.ledger.proofs[-1].order
        rows = self.session.read.format("delta").load(path)
        return rows.where(F.lit(not self.ledger.stands) & is_after((generation, batch - 1)) & ~is_after(last))
