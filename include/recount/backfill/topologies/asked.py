"""Whether corrections that are to be published follow from an audit: nobody else can have anything published."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Row

from recount.audit.altered_lineage import Lineage
from recount.audit.store import AuditStore
from recount.audit.topologies.claims import IDENTITY
from recount.audit.topologies.corrections import COMPLETE_TEXT, GONE_MS
from recount.audit.topologies.identity import Identity
from recount.audit.topologies.judge import SINK
from recount.audit.topologies.listed_backfills import audit_of
from recount.audit.topologies.missed_rows import IS_OPEN
from recount.backfill.topologies.correction import Correction, said
from recount.backfill.topologies.correction_tables import DELETE_THEM, CorrectionTables, Rows
from recount.backfill.topologies.corrections_due import kept_misses
from recount.core.errors import Terminal

_SHOWN = 5


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
