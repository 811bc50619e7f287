"""What expectations look at of an audit's results, in full size: the output tables, and what the audit compared.

Nobody's verdict is in these frames. They know which rows a person has accepted, for those are no failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.audit.compared import SIDES
from recount.audit.copies import DELTA, is_after
from recount.audit.delta_frames import delta_frame
from recount.audit.fidelity import PLACES
from recount.audit.in_force import InForce
from recount.audit.register import ROW, AcceptedRow, accepted_corrections, accepted_rows
from recount.audit.shape import flow_of
from recount.audit.store import RECONCILIATION, AuditStore, Run
from recount.audit.topologies.identity import identity_of
from recount.core.finding import Finding
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.own_columns import JUDGED_KEY, ORIGIN
from recount.core.retention import AGE_COLUMN, Released, ageing
from recount.core.tables import Tables
from recount.core.topology import Topology, Written
from recount.recompute.columns import named

_ACCEPTED_SCHEMA = ", ".join(
    f"accepted_{name} {kind}" for name, kind in zip(ROW, ("string", "string", "long", "long", "string"), strict=True)
)


@dataclass(frozen=True, kw_only=True)
class AuditedRows:
    """The results of one complete audit; ``accepted`` are the findings that are accepted now.

    ``removed`` is what the stream may have removed from its tables by now.
    """

    session: SparkSession
    tables: Tables
    topology: Topology
    run: Run
    accepted: Sequence[Finding]
    removed: Released | None = None

    def reconciliation(self) -> DataFrame:
        """A row for each row that the audit judged, see ``recount.audit.compared``; ``<side>`` is one text here.

        ``<side>_rows`` are the single ones. ``<place>_is_accepted``: what differs there is.
        """
        store = AuditStore(self.session, self.tables, self.topology.name)
        rows = store.read(RECONCILIATION, [self.run.audit])
        for side in SIDES:
            text = F.when(F.size(side) > 0, F.array_join(side, "\n"))
            rows = rows.withColumn(f"{side}_rows", F.col(side)).withColumn(side, text)
        row = {name: F.col(name) for name in ROW}
        for place in PLACES:
            marks = accepted_rows(self.topology, self.accepted, place)
            rows = self._marked(rows, f"{place}_is_accepted", marks, row)
        return self._marked(rows, "correction_is_accepted", accepted_corrections(self.accepted), row)

    def output(self, written: Written) -> DataFrame:
        """The sink's table up to the cut, whole, with own columns ``recount_*`` that those of all sinks have alike.

        Of what the stream may have removed, that of a single aggregation is left out: no audit judges it.
        """
        identity = identity_of(written)
        rows = delta_frame(self.session, self.tables.output(written.table))
        rows = rows.where(~F.coalesce(is_after(self.run.order), F.lit(False)))
        is_kept = self._is_kept(written)
        if flow_of(self.topology) is not None:
            rows = rows.where(is_kept)
        bounds = (WINDOW_START, WINDOW_END)
        none = F.lit(None).cast("long")
        rows = rows.withColumns(
            {
                **{bound: none for bound in bounds if bound not in rows.columns},
                JUDGED_KEY: named(written.key).cast("string"),
                "recount_is_latest": F.lit(identity.is_latest),
                "recount_is_dense": F.lit(identity.is_dense) & is_kept,
                "recount_was_added": F.lit(written.topic.name in InForce.of(self.topology, self.tables.root).added),
            }
        )
        has_origin = not identity.is_latest and ORIGIN in rows.columns
        row = {
            "sink": F.lit(written.topic.name),
            "key": F.col(JUDGED_KEY),
            **{bound: F.col(bound) if identity.has_bounds else none for bound in bounds},
            "origin": F.col(ORIGIN) if has_origin else F.lit(None),
        }
        marks = accepted_rows(self.topology, self.accepted, DELTA)
        return self._marked(rows, "recount_is_accepted", marks, row)

    def _is_kept(self, written: Written) -> Column:
        """Whether the row is one of a key and window of which the stream has removed no revision."""
        found, by = self.removed, ageing(written)
        if found is None or by is None:
            return F.lit(True)
        if by == "table":
            return F.lit(False)
        return F.coalesce(F.col(AGE_COLUMN[by]) >= F.lit(found.before_ms), F.lit(True))

    def _marked(
        self, rows: DataFrame, name: str, accepted: Sequence[AcceptedRow], row: Mapping[str, Column]
    ) -> DataFrame:
        """``rows`` with the column ``name``: whether ``row``, what identifies one of them, is among ``accepted``."""
        if not accepted:
            return rows.withColumn(name, F.lit(False))
        known = self.session.createDataFrame(accepted, _ACCEPTED_SCHEMA)
        is_it = reduce(and_, (F.col(f"accepted_{part}").eqNullSafe(value) for part, value in row.items()))
        marked = rows.join(F.broadcast(known), is_it, "left").withColumn(name, F.col("accepted_sink").isNotNull())
        return marked.drop(*known.columns)
