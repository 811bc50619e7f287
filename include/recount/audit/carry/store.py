"""The audit's own tables: what it found, and what it leaves, so that the next audit costs its own records only.

Every row carries its ``recount_audit``; a row of ``runs``, written last, makes an audit complete. An audit begins where
its seed ended, and its ``lineage`` names the audits before, each of which begins at another's end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable, WriterProperties, write_deltalake
from pyspark.sql.pandas.types import to_arrow_schema

from recount.audit.carry.delta_frames import purge
from recount.audit.cut.audited_ledger import Ledger, Order
from recount.audit.integrity.table_checksums import LeftRows, TableChecksums
from recount.certificate.finding import Difference, GraceMiss, PartitionAccount, difference_from
from recount.declare.columns import AUDIT
from recount.recompute.frames.duck_frames import Frame
from recount.runtime.errors import Terminal
from recount.runtime.times import clock_ms
from recount.tables.batch_proofs import MISSES, RUNS
from recount.tables.ledger import BatchProof
from recount.tables.places import Released, Tables

VERDICTS, PLANS = "verdicts", "plans"
RECONCILIATION, CORRECTIONS = "reconciliation", "corrections"
PARTITIONS, DIFFERENCES = "partitions", "differences"
SNAPSHOTS = "snapshots"
OF_ROWS = (VERDICTS, RECONCILIATION, CORRECTIONS)
"""The tables with a row for each row of a sink."""
_CHECKPOINTS = {"delta.checkpointInterval": "10"}
"""A reader of a table reads all commits after its last checkpoint; each night opens each table several times."""
_AS_USUAL = WriterProperties()
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_TYPES = {"str": pl.String(), "int": pl.Int64(), "bool": pl.Boolean(), "tuple[str, ...]": pl.List(pl.String())}


@dataclass(frozen=True, kw_only=True)
class Run:
    """A complete audit: what it covered and what it found.

    ``read_to`` are offsets by topic of a sink, ``tables`` the checksums by table at the cut, ``repaired`` ids of
    findings of earlier audits that it closed. Its snapshot is of use to the declaration ``fingerprint`` (None: an
    earlier release has left none).
    ``checkpoint_id`` is that of the cut's batch: another version of the stream can have a batch of the same number.
    ``released`` is what the stream may remove from its tables, once a later audit is complete. ``built_on`` has the
    checksum of what a backfill would publish.
    Runs are ordered by ``finished_ms``, which is after that of every earlier one whatever the clock says.
    """

    audit: str
    finished_ms: int
    interval_start_ms: int | None
    interval_end_ms: int | None
    source: str
    seed: str | None
    lineage: tuple[str, ...]
    generation: int
    batch: int
    frontier_ms: int | None
    outcome: str
    certificate: str
    counts: Mapping[str, int]
    checkpoint_id: str | None = None
    repaired: tuple[str, ...] = ()
    certificate_sha256: str = ""
    read_to: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    tables: Mapping[str, TableChecksums] = field(default_factory=dict)
    fingerprint: str | None = None
    released: Released | None = None
    built_on: tuple[LeftRows, ...] = ()

    @property
    def order(self) -> Order:
        """The cut."""
        return self.generation, self.batch


@dataclass(frozen=True, kw_only=True)
class Seed:
    """Where an audit begins: at the cut of an earlier one, or (``NOTHING``) at the beginning."""

    run: Run | None
    stream_times: Mapping[int, int | None]

    @property
    def lineage(self) -> tuple[str, ...]:
        """The audits before."""
        return self.run.lineage if self.run else ()

    @property
    def order(self) -> Order | None:
        """The batch that was judged last."""
        return self.run.order if self.run else None


NOTHING = Seed(run=None, stream_times={})


class AuditStore:
    """The tables below ``audits/<stream>``."""

    def __init__(self, tables: Tables, stream: str) -> None:
        self._tables = tables
        self._stream = stream

    def seed_for(self, ledger: Ledger, cut: Order, usable: Callable[[Run], bool] = lambda _: True) -> Seed:
        """The newest complete audit of a batch before ``cut`` that this very ledger holds, or ``NOTHING``.

        One that is not ``usable`` is passed over.
        """
        return self._newest([run for run in self.runs() if run.order < cut], ledger, usable)

    def seed_at(self, ledger: Ledger, cut: Order, usable: Callable[[Run], bool] = lambda _: True) -> Seed:
        """The newest complete audit of the batch ``cut`` itself, as this very ledger holds it, or ``NOTHING``."""
        return self._newest([run for run in self.runs() if run.order == cut], ledger, usable)

    def _newest(self, runs: Sequence[Run], ledger: Ledger, usable: Callable[[Run], bool]) -> Seed:
        known = {proof.order: proof for proof in ledger.proofs}
        found = [run for run in runs if _is_of(run, known.get(run.order))]
        for run in sorted(found, key=lambda run: (run.order, run.finished_ms), reverse=True):
            parts = self.partitions(run.audit)
            ends = known[run.order].ends
            if ends == {(part.topic, part.partition): part.end for part in parts} and usable(run):
                return Seed(run=run, stream_times={part.partition: part.stream_time_ms for part in parts})
        return NOTHING

    def furthest(self) -> Run | None:
        """The complete audit that has judged furthest, and of several the last one.

        Its batch must be in the stream's ledger as it was then. Audits that are younger than the backup from which the
        stream was restored are of records that are lost.
        """

        def is_of_ledger(run: Run) -> bool:
            ledger = Ledger.read(self._tables, self._stream, run.order)
            return self._newest([run], ledger, lambda _: True).run is not None

        furthest_first = sorted(self.runs(), key=lambda run: (run.order, run.finished_ms), reverse=True)
        return next(filter(is_of_ledger, furthest_first), None)

    def seed_of(self, audit: str | None) -> Seed:
        """The complete audit ``audit`` as a seed (None: ``NOTHING``); raises ``Terminal`` when it is not there."""
        if audit is None:
            return NOTHING
        for run in self.runs():
            if run.audit == audit:
                times = {part.partition: part.stream_time_ms for part in self.partitions(audit)}
                return Seed(run=run, stream_times=times)
        raise Terminal(
            "the audit on which this one builds is not in the audit's tables",
            given=audit,
            expected=f"a complete audit of {self._stream}",
            remedy=f"recount audit --stream {self._stream} --from-the-beginning",
        )

    def forget(self, audit: str) -> None:
        """Take every row of ``audit``, which is not complete, out of the tables."""
        for path in self._paths_of_audits():
            DeltaTable(path).delete(f"{AUDIT} = '{audit}'")

    def purge(self) -> None:
        """Remove from the disk what was forgotten."""
        for path in self._paths_of_audits():
            purge(path)

    def _paths_of_audits(self) -> list[str]:
        names = (*OF_ROWS, PARTITIONS, DIFFERENCES, MISSES, SNAPSHOTS)
        paths = [self._tables.audit(self._stream, name) for name in names]
        return [path for path in paths if DeltaTable.is_deltatable(path)]

    def require_new(self, audit: str) -> None:
        """Raise ``Terminal`` unless ``audit`` can name an audit and no complete one has that name."""
        if not _NAME.fullmatch(audit):
            raise Terminal(
                "invalid name of an audit",
                given=audit,
                expected="letters, digits, '-', '_', '.'",
                remedy="leave --audit out, or name it like 20260101T010000Z-1",
            )
        if any(run.audit == audit for run in self.runs()):
            raise Terminal(
                "an audit of that name is complete",
                given=audit,
                expected="a new name: later audits build on what that one recomputed",
                remedy="leave --audit out; in Airflow, trigger the DAG again instead of clearing its task",
            )

    def runs(self) -> list[Run]:
        """All complete audits, oldest first."""
        return complete_runs(self._tables, self._stream)

    def document_of(self, audit: str) -> dict[str, Any]:
        """The row of ``runs`` of the complete audit ``audit``, as it was written."""
        [row] = self._rows(RUNS, audit)
        document: dict[str, Any] = json.loads(row["document"])
        return document

    def put_document(self, document: Mapping[str, Any]) -> None:
        """Put ``document`` in the place of that row."""
        self._put_small(RUNS, document["audit"], _Document, [_Document(document=json.dumps(document))])

    def next_ms(self) -> int:
        """The time at which an audit that is about to be complete ends."""
        return max([clock_ms(), *(run.finished_ms + 1 for run in self.runs())])

    def partitions(self, audit: str) -> list[PartitionAccount]:
        """The account of every partition in ``audit``."""
        rows = self._rows(PARTITIONS, audit)
        # a column that is younger than the row is null in it: then the default holds
        known = [{name: value for name, value in row.items() if value is not None} for row in rows]
        return [PartitionAccount(**row) for row in known]

    def differences(self, audit: str) -> list[Difference]:
        """The differences that ``audit`` found."""
        return self.all_differences().get(audit, [])

    def all_differences(self) -> dict[str, list[Difference]]:
        """The differences that each audit found; of one that is not complete too."""
        found: dict[str, list[Difference]] = {}
        for row in self._rows(DIFFERENCES, with_audit=True):
            found.setdefault(row[AUDIT], []).append(difference_from(row))
        return found

    def misses(self, audit: str) -> list[GraceMiss]:
        """The grace misses that ``audit`` found."""
        return [GraceMiss(**{**row, "late": tuple(row["late"])}) for row in self._rows(MISSES, audit)]

    def rows(self, name: str, audits: Sequence[str]) -> pl.LazyFrame:
        """The rows of ``audits`` in the table ``name``, which must exist."""
        return pl.scan_delta(self._tables.audit(self._stream, name)).filter(pl.col(AUDIT).is_in(list(audits)))

    def has(self, name: str, audit: str) -> bool:
        """Whether the table ``name`` has rows of ``audit``."""
        path = self._tables.audit(self._stream, name)
        return DeltaTable.is_deltatable(path) and any(one[AUDIT] == audit for one in DeltaTable(path).partitions())

    def put(self, name: str, audit: str, rows: Frame) -> None:
        """Make ``rows`` those of ``audit``: an audit that is tried again replaces what its first try left."""
        schema = to_arrow_schema(rows.schema)
        batches = (one for batch in rows.batches() for one in pa.table(batch).cast(schema).to_batches())
        self.put_batches(name, audit, batches, schema)

    def put_batches(
        self,
        name: str,
        audit: str,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        writer: WriterProperties = _AS_USUAL,
    ) -> None:
        """The same of ``batches`` with ``schema``, which are never in memory all at once."""
        mine = schema.append(pa.field(AUDIT, pa.string()))
        marked = (batch.append_column(AUDIT, pa.array([audit] * batch.num_rows, pa.string())) for batch in batches)
        self._replace(name, audit, pa.RecordBatchReader.from_batches(mine, marked), writer)

    def put_rows(self, name: str, audit: str, rows: pl.DataFrame) -> None:
        """The same of few rows."""
        self._replace(name, audit, rows.with_columns(pl.lit(audit).alias(AUDIT)), _AS_USUAL)

    def _replace(
        self, name: str, audit: str, rows: pl.DataFrame | pa.RecordBatchReader, writer: WriterProperties
    ) -> None:
        write_deltalake(
            _with_checkpoints(self._tables.audit(self._stream, name)),
            rows,
            mode="overwrite",
            predicate=f"{AUDIT} = '{audit}'",
            partition_by=[AUDIT],
            schema_mode="merge",
            configuration=_CHECKPOINTS,
            writer_properties=writer,
        )

    def put_findings(
        self,
        audit: str,
        accounts: Iterable[PartitionAccount],
        differences: Iterable[Difference],
        misses: Iterable[GraceMiss],
    ) -> None:
        """Put the small tables."""
        self._put_small(PARTITIONS, audit, PartitionAccount, accounts)
        self._put_small(DIFFERENCES, audit, Difference, differences)
        self._put_small(MISSES, audit, GraceMiss, misses)

    def complete(self, run: Run) -> None:
        """Make the audit a complete one."""
        self._put_small(RUNS, run.audit, _Document, [_Document(document=json.dumps(asdict(run)))])

    def _put_small(self, name: str, audit: str, kind: type[Any], found: Iterable[Any]) -> None:
        self.put_rows(name, audit, pl.DataFrame([asdict(one) for one in found], schema=_schema(kind)))

    def _rows(self, name: str, audit: str | None = None, *, with_audit: bool = False) -> list[dict[str, Any]]:
        return _rows_of(self._tables.audit(self._stream, name), audit, with_audit=with_audit)


def complete_runs(tables: Tables, stream: str) -> list[Run]:
    """All complete audits of ``stream``, oldest first; without Spark."""
    found = (msgspec.json.decode(row["document"], type=Run) for row in _rows_of(tables.audit(stream, RUNS)))
    return sorted(found, key=lambda run: run.finished_ms)


def _with_checkpoints(path: str) -> DeltaTable | str:
    """The table at ``path``, or ``path`` where there is none; one of an earlier release has checkpoints from now on."""
    if not DeltaTable.is_deltatable(path):
        return path
    table = DeltaTable(path)
    if not _CHECKPOINTS.keys() <= table.metadata().configuration.keys():
        table.alter.set_table_properties(_CHECKPOINTS)
    return table


def _is_of(run: Run, proof: BatchProof | None) -> bool:
    return proof is not None and run.checkpoint_id in (None, proof.checkpoint_id)


def _rows_of(path: str, audit: str | None = None, *, with_audit: bool = False) -> list[dict[str, Any]]:
    if not DeltaTable.is_deltatable(path):
        return []
    rows = pl.scan_delta(path)
    if audit is not None:
        rows = rows.filter(pl.col(AUDIT) == audit)
    return (rows if with_audit else rows.drop(AUDIT)).collect().to_dicts()


@dataclass(frozen=True)
class _Document:
    document: str


def _schema(kind: type[Any]) -> dict[str, pl.DataType]:
    return {field.name: _TYPES[str(field.type).removesuffix(" | None")] for field in fields(kind)}
