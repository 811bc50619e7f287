"""The side ledgers of a stream that is a single aggregation, compared where their length allows."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.audit import letters
from recount.audit.committed import offsets_in
from recount.audit.copies import is_after, written_after
from recount.audit.keeping import RECORDS_AT_HAND, at_hand
from recount.audit.kept import written_so_far
from recount.audit.ledger import Ledger
from recount.audit.removed import (
    kept_late,
    kept_late_by_spark,
    kept_rejected,
    kept_rejected_by_spark,
    letters_due,
    letters_due_by_spark,
    letters_gone,
)
from recount.audit.side_ledgers import late_records, posted_letters, rejected_records, side_ledger_differences
from recount.audit.side_ledgers_by_spark import side_ledger_differences_by_spark
from recount.core.ledger import BatchProof
from recount.core.retention import Released
from recount.core.tables import Tables
from recount.core.verdict import Difference
from recount.kafka.connection import Connection
from recount.recompute.log import Ranges
from recount.recompute.recomputation import Recomputation


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What the stream has listed: its tables, of the batches in ``ledger``, and ``letters``, dead-letter offsets.

    ``last`` is the last batch of the stream, judged or not. What is ``released`` may be gone from the tables.
    """

    session: SparkSession
    connection: Connection
    tables: Tables
    ledger: Ledger
    letters: Ranges
    last: BatchProof
    released: Released | None = None

    def differences(self, recomputed: Recomputation) -> list[Difference]:
        """Where it is another list than ``recomputed`` makes."""
        source, name = recomputed.flow.source.topic, recomputed.flow.topology.name
        place, ranges = source.dead_letter_name, self.ledger.ranges[source.name]
        late, rejected = self._written(self.tables.late(name)), self._written(self.tables.rejected(name))
        lengths = pl.collect_all([rows.select(pl.len()) for rows in (late, rejected)])
        longest = max(recomputed.singles, offsets_in(self.letters), *(length.item() for length in lengths))
        if longest > RECORDS_AT_HAND:
            return self._by_spark(recomputed)
        posted = letters.dead_letters(self.connection, place, self.letters)
        mine = letters.within(posted, self.connection.group(name), source.name, ranges, self._log(source.name))
        bad, gone = at_hand(recomputed.rejected), letters_gone(self.connection, self.ledger, source.name, place)
        late_kept, rejected_kept = kept_late(self.released), kept_rejected(self.released)
        return side_ledger_differences(
            [
                late_records(at_hand(recomputed.late).filter(late_kept), late.filter(late_kept).collect()),
                rejected_records(bad.filter(rejected_kept), rejected.filter(rejected_kept).collect()),
                posted_letters(letters_due(bad, mine, gone), mine, place),
            ]
        )

    def _by_spark(self, recomputed: Recomputation) -> list[Difference]:
        source, name = recomputed.flow.source.topic, recomputed.flow.topology.name
        place = source.dead_letter_name
        posted = letters.dead_letters_by_spark(self.session, self.connection, place, self.letters)
        mine = letters.within_by_spark(
            posted,
            self.connection.group(name),
            source.name,
            self.ledger.ranges[source.name],
            self._log(source.name),
        )
        late, rejected = (self._spark_rows(path) for path in (self.tables.late(name), self.tables.rejected(name)))
        late_kept, rejected_kept = kept_late_by_spark(self.released), kept_rejected_by_spark(self.released)
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
