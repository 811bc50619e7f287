"""Writes the corrections of all sinks of a stream to Delta and publishes them on Kafka, each exactly once.

1. The corrections are appended to ``corrections/<table>`` of each sink, all with the next number of the stream's
   backfills. From then on no plan has them any more: readers of the tables see them.
2. Each backfill is published in one Kafka transaction that also commits the next number as the offset of the group
   ``recount.<stream>.backfill``. So a run after a crash finds out what was published; what was not is published first.

Rows that the stream may go on with (``keyed``) are written and published only while it stands still where the audit
ended: its lease is held, so that no newer row of the key can come before the correction. Those of a killed backfill
that were not published by then are taken back: the next audit says what is to be corrected now.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Self

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from recount.audit.carry.delta_frames import frame_at
from recount.audit.carry.erased_keys import ErasedKeys
from recount.audit.carry.store import AuditStore
from recount.audit.compare.claims import AT_MS, ENTRY, IDENTITY, ROW
from recount.audit.compare.correction_claims import COMPLETE_TEXT, GONE_MS, Listed, audit_of, listed_backfills
from recount.audit.compare.differences import SINK
from recount.audit.compare.identity import Identity, identity_of
from recount.audit.compare.sink_verdicts import of_backfills
from recount.audit.cut.auditable import published_offsets
from recount.audit.cut.audited_ledger import Ledger
from recount.audit.explain.misses import IS_OPEN
from recount.audit.integrity.strangers import LeftForBackfills
from recount.backfill.corrections import (
    DELETE_THEM,
    Correction,
    Order,
    in_order,
    is_keyed,
    make_table,
    record_of,
    require_in_turn,
    said,
)
from recount.backfill.corrections_due import Due, corrections_due, kept_misses
from recount.declare.columns import (
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
from recount.declare.topology import Topology, Written
from recount.kafka.connection import BACKFILL_SLOT, Connection
from recount.kafka.dead_letters import KafkaRecord
from recount.kafka.positions import backfills_of, publish_backfill, published_backfills
from recount.kafka.transaction import OutputTransaction
from recount.lifecycle.reset import require_no_driver, standstill
from recount.recompute.frames.duck_database import Database
from recount.recompute.spark_columns import spark_type
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms
from recount.tables.decisions import DeclarationLog
from recount.tables.places import Tables

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
_LOG = logging.getLogger(__name__)
_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """This run wrote so many ``corrections`` as ``backfill``; ``published`` are the backfills that it published."""

    backfill: str | None
    corrections: int
    published: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CorrectionTables:
    """Tables of corrections of ``topology``."""

    tables: Tables
    topology: Topology

    @property
    def identities(self) -> list[Identity]:
        """Identities of the sinks, in the order in which they are declared."""
        return [identity_of(node) for node in self.topology.written]

    def listed(self) -> list[Listed]:
        """All backfills in them."""
        return listed_backfills(self.tables, self.topology)

    def pending(self, done: int) -> list[tuple[int, str]]:
        """Number and name of the backfills that come after the ``done`` on Kafka; raises where one does not follow."""
        found = {(one.number, str(one.name)) for one in self.listed() if one.number is not None and one.number >= done}
        require_in_turn(sorted(found), done, self.topology.name)
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
        path = self.tables.corrections(identity.written.table)
        make_table(path, schema)
        self._name_batches(path)
        told = pa.Table.from_pylist([{name: row[name] for name in kinds} for row in rows], to_arrow_schema(schema))
        write_deltalake(path, told, mode="append", schema_mode="merge")

    def _name_batches(self, path: str) -> None:
        """Let corrections of an earlier release, which named no batch, name the last one that their audit judged."""
        table = DeltaTable(path)
        if GENERATION in {field.name for field in table.schema().fields}:
            return
        runs = AuditStore(self.tables, self.topology.name).runs()
        orders = {run.audit: run.order for run in runs}
        rows = pl.DataFrame(table.to_pyarrow_table())
        made_of = [
            next((orders[one] for one in audit_of(name) if one in orders), runs[-1].order) for name in rows[BACKFILL]
        ]
        told = pl.DataFrame(made_of, {GENERATION: pl.Int32, BATCH: pl.Int64}, orient="row")
        named = rows.hstack(told).with_columns(pl.lit(value=False).alias(IS_NULL))
        write_deltalake(path, named, mode="overwrite", schema_mode="overwrite")

    def take_back(self, identity: Identity, done: int, last: Order | None) -> None:
        """Delete rows after the ``done`` on Kafka; not those that were made of the batch ``last``."""
        unpublished = f"{BACKFILL_NUMBER} >= {done}"
        if last is not None:
            unpublished += f" AND NOT ({GENERATION} = {last[0]} AND {BATCH} = {last[1]})"
        DeltaTable(self.tables.corrections(identity.written.table)).delete(unpublished)

    def rows(self, written: Written, number: int) -> list[dict[str, Any]]:
        """Return the rows that the backfill ``number`` has of one sink."""
        path = self.tables.corrections(written.table)
        if not DeltaTable.is_deltatable(path):
            return []
        found: list[dict[str, Any]] = (
            DeltaTable(path).to_pyarrow_table(filters=pc.field(BACKFILL_NUMBER) == number).to_pylist()
        )
        return found

    def by_identity(self, identity: Identity, number: int) -> Mapping[tuple[Any, ...], Rows]:
        """The same by identity, as fields, ``recount_is_null`` and ``recount_timestamp_ms``."""
        path = self.tables.corrections(identity.written.table)
        told: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
        if not DeltaTable.is_deltatable(path):
            return told
        database = Database()
        try:
            found = of_backfills(frame_at(database, path, among={BACKFILL_NUMBER: [number]}), identity).rows()
        finally:
            database.close()
        for one in found:
            entry = one[ENTRY]
            row = {**(entry[ROW] or {}), IS_NULL: entry[ROW] is None, RESULT_TIME: entry[AT_MS]}
            told[tuple(one[part] for part in IDENTITY)].append(row)
        return told


@dataclass(frozen=True, kw_only=True)
class CarryingOut:
    """Carries out what is ``due``; can be run again after any crash."""

    settings: Settings
    due: Due

    @classmethod
    def of(cls, settings: Settings, topology: Topology, audit: str | None = None) -> Self:
        """The open misses of ``topology``, or (``audit``) those of them that this audit found; raises ``Terminal``."""
        due = corrections_due(Tables(settings.data), topology, audit)
        return cls(settings=settings, due=due)

    def ready(self) -> list[Correction]:
        """Return what would be corrected now; ``keyed`` rows too, where the stream stands at the audit's last batch."""
        keyed = self.due.of("keyed")
        is_still = bool(keyed) and self._stands() and self._last() == self.due.run.order
        return [*self.due.of("ready"), *(keyed if is_still else [])]

    def waiting(self) -> int:
        """How many backfills have been written but never published, because a run was killed in between."""
        return len(self._corrections.pending(published_backfills(self._connection, self._topology)))

    def run(self) -> Repaired:
        """Append and publish.

        Raises ``Transient`` or ``Terminal`` as the Kafka transaction does; run it again after either. ``Terminal`` too
        where rows that are to be published are not what an audit gives, where somebody has written to what audits have
        kept for it, and where the tables are older than Kafka.
        """
        tables, left = self._corrections, LeftForBackfills.of(self.settings, self._topology.name)
        left.require_unaltered(self.due.run)
        written = tables.with_pending(published_backfills(self._connection, self._topology))
        has_keyed = bool(self.due.of("keyed")) or any(map(is_keyed, written))
        with self._outputs(still=has_keyed and self._stands()) as (output, is_still):
            done = backfills_of(output, self._connection)
            last = self._last() if is_still else None
            for identity in filter(is_keyed, tables.with_pending(done)):
                tables.take_back(identity, done, last)
            require_asked(tables, left, tables.pending(done))
            keyed = self.due.of("keyed") if last == self.due.run.order else []
            wanted = [*self.due.of("ready"), *keyed]
            backfill = self._append(wanted, done) if wanted else None
            pending = tables.pending(done)
            require_asked(tables, left, pending)
            for number, name in pending:
                publish_backfill(output, self._connection, number, name, self._records(number))
            names = tuple(name for _, name in pending)
            return Repaired(backfill=backfill, corrections=len(wanted), published=names)

    @property
    def _topology(self) -> Topology:
        return self.due.topology

    @property
    def _connection(self) -> Connection:
        return Connection.of(self.settings)

    @property
    def _corrections(self) -> CorrectionTables:
        return CorrectionTables(tables=Tables(self.settings.data), topology=self._topology)

    @contextmanager
    def _outputs(self, *, still: bool) -> Iterator[tuple[OutputTransaction, bool]]:
        """The outputs of the backfills, and whether the stream stands still while they are held."""
        if still:
            with standstill(self._connection, self._topology) as (_, of_backfills):
                yield of_backfills, True
            return
        group = self._connection.backfill_group(self._topology.name)
        with closing(OutputTransaction(self._connection, self._topology.name, BACKFILL_SLOT, group=group)) as output:
            yield output, False

    def _stands(self) -> bool:
        try:
            require_no_driver(self._connection, self._topology)
        except Terminal as running:
            _LOG.info("rows that the stream may go on with are left as they are: %s", running)
            return False
        return True

    def _last(self) -> Order | None:
        """The stream's last batch; None where Kafka has one after it."""
        proof = Ledger.read(Tables(self.settings.data), self._topology.name).proofs[-1]
        ends = proof.ends
        reached = published_offsets(self._connection, self._topology)
        return proof.order if all(ends.get(place, -1) >= offset for place, offset in reached.items()) else None

    def _append(self, wanted: Sequence[Correction], done: int) -> str:
        forged = [one for one in wanted if one.revision is None][:_SHOWN]
        if forged:
            raise Terminal(
                f"rows of {self._topology.name} have the largest revision there is, which no stream comes to",
                given=", ".join(str((one.key, one.window_start, one.origin)) for one in forged),
                expected="revisions that count up from 0",
                remedy=DELETE_THEM,
            )
        tables, audit = self._corrections, self.due.run.audit
        erased = ErasedKeys.of(self.settings, self._topology.name).backfills
        number = tables.next_number(done, erased=erased)
        backfill = f"{audit}.{number}" if any(one.name == audit for one in tables.listed()) else audit
        about = {BACKFILL: backfill, BACKFILL_NUMBER: number, PUBLISHED_AT: clock_ms()}
        by_table: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for one in wanted:
            by_table[one.identity.written.table] += [{**row, **about} for row in one.rows(self.due.run.order)]
        for identity in tables.identities:
            if by_table[identity.written.table]:
                tables.append(identity, by_table[identity.written.table])
        return backfill

    def _records(self, number: int) -> list[KafkaRecord]:
        version = DeclarationLog(self.settings.data, self._topology.name).version()
        rows = {node: self._corrections.rows(node, number) for node in self._topology.written}
        return [record_of(row, node, version) for node, found in rows.items() for row in in_order(found, node)]


def require_asked(tables: CorrectionTables, left: LeftForBackfills, pending: Sequence[tuple[int, str]]) -> None:
    """Raise ``Terminal`` unless each of the backfills is, once, what the audit has kept that it is named for.

    Terminal too where somebody has written to what that audit has kept.
    """
    store = AuditStore(tables.tables, tables.topology.name)
    runs = {run.audit: run for run in store.runs()} if pending else {}
    for number, name in pending:
        run = next((runs[audit] for audit in audit_of(name) if audit in runs), None)
        rows = [] if run is None else kept_misses(store, tables.tables, tables.topology, run).to_dicts()
        if run is not None:
            left.require_unaltered(run)
        asked = {(row[SINK], *(row[part] for part in IDENTITY)): row for row in rows}
        for identity in tables.identities:
            topic = identity.written.topic.name
            written = tables.by_identity(identity, number)
            strange = [
                place for place in written if not _is_asked(identity, asked.get((topic, *place)), written[place])
            ]
            if strange:
                raise Terminal(
                    f"corrections/{identity.written.table} has corrections that follow from no audit",
                    given=f"backfill {name}, among others {', '.join(map(str, strange[:_SHOWN]))}",
                    expected="the rows that the audit has kept which the backfill is named for",
                    remedy=DELETE_THEM,
                )


def _is_asked(identity: Identity, kept: Mapping[str, Any] | None, rows: Rows) -> bool:
    if kept is None:
        return False
    asked = Correction(
        identity=identity,
        **{name: kept[name] for name in IDENTITY},
        complete=kept[COMPLETE_TEXT],
        gone_ms=kept[GONE_MS],
        is_open=kept[IS_OPEN],
        revision=0,
        now="",
    )
    return said(rows, identity) == said(asked.rows((0, 0)), identity)
