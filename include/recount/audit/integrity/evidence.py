"""Digests of what an audit judged: records of the log, records of the sinks' topics, rows of the tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from recount.audit.compare.committed import RECORDS_AT_HAND, CommittedRecord, batches_of, offsets_in, read_committed
from recount.audit.compare.published import written_after
from recount.audit.cut.audited_ledger import Order
from recount.certificate.finding import PartitionAccount
from recount.declare.columns import BACKFILL, BATCH, GENERATION
from recount.declare.topology import Written
from recount.kafka.connection import Connection
from recount.recompute.digests import HASHED, Digest, DigestedLog, RowsDigest, Span
from recount.recompute.raw_log import Ranges
from recount.tables.places import Tables

ROWS_AT_ONCE = 200_000
Listed = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Digests, as a certificate lists them: each with what it covers, how many rows, and their ``sha256``."""

    log: Listed
    published: Listed
    tables: Listed

    def as_document(self) -> dict[str, Any]:
        """The certificate's section."""
        return {"log": list(self.log), "published": list(self.published), "tables": list(self.tables)}


@dataclass(frozen=True, kw_only=True)
class Witness:
    """Makes the evidence of an audit that read ``log``, of the batches after ``seed`` (None: all) up to ``cut``.

    Many records of the sinks' topics were read from ``sent``.
    """

    session: SparkSession
    connection: Connection
    tables: Tables
    log: DigestedLog
    sent: DigestedLog
    seed: Order | None
    cut: Order

    def evidence(
        self,
        accounts: Iterable[PartitionAccount],
        written: Iterable[Written],
        published: Mapping[str, Ranges],
        corrections: Sequence[str] | None = None,
    ) -> Evidence:
        """``published`` are the offsets that were read of the sinks' topics.

        ``corrections`` name the backfills whose rows count; None: all that there are.
        """
        ranges: dict[str, dict[int, tuple[int, int]]] = {}
        for part in accounts:
            ranges.setdefault(part.topic, {})[part.partition] = (part.start, part.end)
        log = [one for topic, spans in sorted(ranges.items()) for one in self._log(topic, spans)]
        sent = [one for topic, spans in sorted(published.items()) for one in self._published(topic, spans)]
        tables = [one for node in written for one in self._tables(node.table, corrections)]
        return Evidence(log=log, published=sent, tables=sorted(tables, key=lambda one: str(one["table"])))

    def _log(self, topic: str, ranges: Ranges) -> Iterator[Mapping[str, Any]]:
        yield from _records(self.log.digests(self.session, topic, ranges))

    def _published(self, topic: str, ranges: Ranges) -> Iterator[Mapping[str, Any]]:
        spans = {partition: (start, end) for partition, (start, end) in ranges.items() if start < end}
        if offsets_in(spans) > RECORDS_AT_HAND:
            yield from _records(self.sent.digests(self.session, topic, spans))
        else:
            yield from _records(digests_at_hand(self.connection, topic, spans))

    def _tables(self, table: str, corrections: Sequence[str] | None) -> Iterator[Mapping[str, Any]]:
        found = written_rows(self.tables.output(table), self.seed, self.cut)
        bounds = {"after": self.seed and list(self.seed), "up_to": list(self.cut)}
        yield {"table": f"outputs/{table}", **bounds, "rows": found.rows, "sha256": found.sha256}
        path = self.tables.corrections(table)
        if DeltaTable.is_deltatable(path):
            rows = pl.scan_delta(path)
            known = rows.select(pl.col(BACKFILL).unique().sort()).collect().to_series().to_list()
            backfills = [one for one in known if corrections is None or one in corrections]
            found = _sorted(rows.filter(pl.col(BACKFILL).is_in(backfills)).collect())
            told = {"backfills": backfills, "rows": found.rows, "sha256": found.sha256}
            yield {"table": f"corrections/{table}", **told}


def written_rows(path: str, seed: Order | None, cut: Order, *, rows_at_once: int = ROWS_AT_ONCE) -> Digest:
    """The rows that batches after ``seed`` up to ``cut`` wrote: batch by batch, those of a batch sorted by value."""
    rows = pl.scan_delta(path).filter(~written_after(cut))
    if seed is not None:
        rows = rows.filter(written_after(seed))
    digest = RowsDigest()
    for first, last in _batches_at_once(rows, rows_at_once):
        part = rows.filter(~written_after(last) & (written_after(first) | _is_at(first))).collect()
        digest.update(_in_order(part).to_arrow())
    return digest.digest()


def digests_at_hand(connection: Connection, topic: str, ranges: Ranges) -> dict[Span, Digest]:
    """The same digests as those of tasks, of few records."""
    records: dict[int, list[CommittedRecord]] = {partition: [] for partition in ranges}
    for record in read_committed(connection, topic, ranges):
        records[record.partition].append(record)
    found = {}
    for partition, (start, end) in sorted(ranges.items()):
        digest = RowsDigest()
        for batch in batches_of(records[partition]):
            digest.update(batch.select(HASHED))
        found[topic, partition, start, end] = digest.digest()
    return found


def _records(digests: Mapping[Span, Digest]) -> Iterator[Mapping[str, Any]]:
    for (topic, partition, start, end), found in sorted(digests.items()):
        where = {"topic": topic, "partition": partition, "start": start, "end": end}
        yield {**where, "records": found.rows, "sha256": found.sha256}


def _batches_at_once(rows: pl.LazyFrame, rows_at_once: int) -> Iterator[tuple[Order, Order]]:
    """The first and the last of consecutive batches that have about so many rows together."""
    counts = rows.group_by(GENERATION, BATCH).len().sort(GENERATION, BATCH).collect()
    first: Order | None = None
    held, last = 0, (0, 0)
    for generation, batch, number in counts.iter_rows():
        if first is not None and held + number > rows_at_once:
            yield first, last
            first, held = None, 0
        first, last, held = first or (generation, batch), (generation, batch), held + number
    if first is not None:
        yield first, last


def _is_at(order: Order) -> pl.Expr:
    return (pl.col(GENERATION) == order[0]) & (pl.col(BATCH) == order[1])


def _sorted(rows: pl.DataFrame) -> Digest:
    digest = RowsDigest()
    digest.update(_in_order(rows).to_arrow())
    return digest.digest()


def _in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """``rows`` by batch and then by all their values: no other order is one that a rewritten file keeps."""
    first = [name for name in (GENERATION, BATCH) if name in rows.columns]
    rest = sorted(name for name in rows.columns if name not in first)
    plain = [name for name in rest if not rows.schema[name].is_nested()]
    return rows.select(*first, *rest).sort(*first, *plain, *(name for name in rest if name not in plain))
