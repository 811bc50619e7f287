"""Corrections of all sinks of a stream, written to Delta and published on Kafka, each exactly once.

1. The corrections are appended to ``corrections/<table>`` of each sink, all with the next number of the stream's
   backfills. From then on no plan has them any more: readers of the tables see them.
2. Each backfill is published in one Kafka transaction that also commits the next number as the offset of the group
   ``recount.<stream>.backfill``. So a run after a crash finds out what was published; what was not is published first.

Rows that the stream may go on with (``keyed``) are written and published only while it stands still where the audit
ended: its lease is held, so that no newer row of the key can lie before the correction. Those of a killed backfill that
were not published by then are taken back: the next audit says what is to be corrected now.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Row, SparkSession

from recount.audit.altered_lineage import Lineage
from recount.audit.erased_keys import ErasedKeys
from recount.audit.ledger import Ledger
from recount.audit.settled import published_offsets
from recount.audit.store import AuditStore
from recount.audit.topologies.claims import IDENTITY
from recount.audit.topologies.corrections import COMPLETE_TEXT, GONE_MS
from recount.audit.topologies.identity import Identity
from recount.audit.topologies.judge import SINK
from recount.audit.topologies.listed_backfills import audit_of
from recount.audit.topologies.misses import IS_OPEN
from recount.backfill.repair import Repaired
from recount.backfill.topologies.correction import Correction, Order, in_order, is_keyed, record_of, said
from recount.backfill.topologies.correction_tables import DELETE_THEM, CorrectionTables, Rows
from recount.backfill.topologies.corrections_due import Due, kept_misses
from recount.core.errors import Terminal
from recount.core.own_columns import BACKFILL, BACKFILL_NUMBER, PUBLISHED_AT
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.declarations import DeclarationLog
from recount.kafka.backfill_count import backfills_of, publish_backfill, published_backfills
from recount.kafka.connection import BACKFILL_SLOT, Connection
from recount.kafka.kafka_record import KafkaRecord
from recount.kafka.transaction import OutputTransaction
from recount.versions.standstill import require_no_driver, standstill

_LOG = logging.getLogger(__name__)
_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class CarryingOut:
    """Carries out what is ``due``; can be run again after any crash."""

    session: SparkSession
    settings: Settings
    due: Due

    def ready(self) -> list[Correction]:
        """What would be corrected now: ``keyed`` rows too, where the stream stands still at the audit's last batch."""
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
        tables, lineage = self._corrections, Lineage.of(self.settings, self._topology.name)
        lineage.require_unaltered(self.due.run.audit)
        written = tables.with_pending(published_backfills(self._connection, self._topology))
        has_keyed = bool(self.due.of("keyed")) or any(map(is_keyed, written))
        with self._outputs(still=has_keyed and self._stands()) as (output, is_still):
            done = backfills_of(output, self._connection, self._topology)
            last = self._last() if is_still else None
            for identity in filter(is_keyed, tables.with_pending(done)):
                tables.take_back(identity, done, last)
            require_asked(tables, lineage, tables.pending(done))
            keyed = self.due.of("keyed") if last == self.due.run.order else []
            wanted = [*self.due.of("ready"), *keyed]
            backfill = self._append(wanted, done) if wanted else None
            pending = tables.pending(done)
            require_asked(tables, lineage, pending)
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
        return CorrectionTables(session=self.session, tables=Tables(self.settings.data), topology=self._topology)

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
        number = tables.next_number(done, erased=ErasedKeys.of(self.settings, self._topology.name).backfills)
        backfill = f"{audit}.{number}" if any(one.name == audit for one in tables.listed()) else audit
        about = {BACKFILL: backfill, BACKFILL_NUMBER: number, PUBLISHED_AT: time.time_ns() // 1_000_000}
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


def require_asked(tables: CorrectionTables, lineage: Lineage, pending: Sequence[tuple[int, str]]) -> None:
    """Raise ``Terminal`` unless each of the backfills is, once, what the audit has kept that it is named for.

    Terminal too where somebody has written to what that audit has kept.
    """
    store = AuditStore(tables.session, tables.tables, tables.topology.name)
    runs = {run.audit: run for run in store.runs()} if pending else {}
    for number, name in pending:
        run = next((runs[audit] for audit in audit_of(name) if audit in runs), None)
        kept = None if run is None else kept_misses(store, tables.tables, tables.topology, run)
        rows = [] if kept is None else kept.collect()
        if run is not None:
            lineage.require_unaltered(run.audit)
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


def _is_asked(identity: Identity, kept: Row | None, rows: Rows) -> bool:
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
