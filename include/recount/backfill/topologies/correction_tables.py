"""The tables of corrections of a stream, one for each sink: what backfills have put there, and the next one puts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.audit.topologies.claims import AT_MS, ENTRY, IDENTITY, ROW
from recount.audit.topologies.identity import Identity, identity_of
from recount.audit.topologies.listed_backfills import Listed, listed_backfills
from recount.audit.topologies.seen import of_backfills
from recount.backfill.new_tables import make_table
from recount.backfill.topologies.correction import Order
from recount.core.errors import Terminal
from recount.core.own_columns import (
    BACKFILL,
    BACKFILL_NUMBER,
    BATCH,
    GENERATION,
    IS_NULL,
    ORIGIN,
    PUBLISHED_AT,
    RESULT_TIME,
    REVISION,
)
from recount.core.tables import Tables
from recount.core.topology import Topology, Written
from recount.recompute.columns import spark_type

DELETE_THEM = "see who can write to the table, delete these rows there, and run the backfill again"
_TOLD = {
    RESULT_TIME: T.LongType(),
    REVISION: T.IntegerType(),
    IS_NULL: T.BooleanType(),
    ORIGIN: T.StringType(),
    GENERATION: T.IntegerType(),
    BATCH: T.LongType(),
    BACKFILL: T.StringType(),
    BACKFILL_NUMBER: T.LongType(),
    PUBLISHED_AT: T.LongType(),
}
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class CorrectionTables:
    """Those of ``topology``."""

    session: SparkSession
    tables: Tables
    topology: Topology

    @property
    def identities(self) -> list[Identity]:
        """Of the sinks, in the order in which they are declared."""
        return [identity_of(node) for node in self.topology.written]

    def listed(self) -> list[Listed]:
        """All backfills in them."""
        return listed_backfills(self.tables, self.topology)

    def pending(self, done: int) -> list[tuple[int, str]]:
        """Number and name of the backfills that come after the ``done`` on Kafka; raises where one does not follow."""
        found = {(one.number, str(one.name)) for one in self.listed() if one.number is not None and one.number >= done}
        for expected, (number, name) in enumerate(sorted(found), start=done):
            if number != expected:
                raise Terminal(
                    f"the corrections of {self.topology.name} have a backfill that does not follow the one before it",
                    given=f"number {number}, {name}",
                    expected=f"number {expected}",
                    remedy=DELETE_THEM,
                )
        return sorted(found)

    def with_pending(self, done: int) -> list[Identity]:
        """The sinks of which there are corrections after the ``done`` on Kafka."""
        tables = {one.table for one in self.listed() if one.number is not None and one.number >= done}
        return [one for one in self.identities if one.written.table in tables]

    def next_number(self, done: int, *, erased: int = 0) -> int:
        """The number of the next backfill; raises ``Terminal`` where the tables end before the ``done`` on Kafka.

        An erasure may have removed all rows of the last of the first ``erased`` backfills.
        """
        number = max([erased, *(one.number + 1 for one in self.listed() if one.number is not None)])
        if number < done:
            raise Terminal(
                f"the corrections of {self.topology.name} are older than Kafka: were they restored from a backup?",
                given=f"the tables end before backfill {number}, Kafka has all before {done}",
                expected="tables with all backfills that Kafka has",
                remedy=f"restore a newer backup of them, or `recount reset {self.topology.name}`",
            )
        return number

    def append(self, identity: Identity, rows: Rows) -> None:
        """Append ``rows`` of one sink."""
        kinds = {name: spark_type(kind) for name, kind in identity.written.fields.items()} | _TOLD
        schema = T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])
        frame = self.session.createDataFrame([tuple(row[name] for name in kinds) for row in rows], schema)
        path = self.tables.corrections(identity.written.table)
        make_table(path, schema)
        frame.coalesce(1).write.format("delta").mode("append").save(path)

    def take_back(self, identity: Identity, done: int, last: Order | None) -> None:
        """Delete rows after the ``done`` on Kafka; not those that were made of the batch ``last``."""
        unpublished = F.col(BACKFILL_NUMBER) >= done
        if last is not None:
            unpublished &= ~((F.col(GENERATION) == last[0]) & (F.col(BATCH) == last[1]))
        DeltaTable.forPath(self.session, self.tables.corrections(identity.written.table)).delete(unpublished)

    def rows(self, written: Written, number: int) -> list[dict[str, Any]]:
        """What the backfill ``number`` has of one sink."""
        found = self._of(written, number)
        return [] if found is None else [row.asDict() for row in found.collect()]

    def by_identity(self, identity: Identity, number: int) -> Mapping[tuple[Any, ...], Rows]:
        """The same by identity, as fields, ``recount_is_null`` and ``recount_timestamp_ms``."""
        found, told = self._of(identity.written, number), defaultdict(list)
        for one in [] if found is None else of_backfills(found, identity).collect():
            entry = one[ENTRY]
            values = {} if entry[ROW] is None else entry[ROW].asDict()
            row = {**values, IS_NULL: entry[ROW] is None, RESULT_TIME: entry[AT_MS]}
            told[tuple(one[part] for part in IDENTITY)].append(row)
        return told

    def _of(self, written: Written, number: int) -> DataFrame | None:
        path = self.tables.corrections(written.table)
        if not DeltaTable.isDeltaTable(self.session, path):
            return None
        return self.session.read.format("delta").load(path).where(F.col(BACKFILL_NUMBER) == number)
