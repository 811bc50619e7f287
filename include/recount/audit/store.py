"""The audit's own tables: what it recomputed and saw, so that the next audit costs its own records only.

Every row carries its ``audit``; a row of ``runs``, written last, makes an audit complete. An audit begins where its
seed ended, and its ``lineage`` names all audits whose partials and publications add up to the stream's beginning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import polars as pl
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.audit.ledger import Ledger, Order
from recount.core.errors import Terminal
from recount.core.tables import Tables
from recount.core.verdict import Difference, GraceMiss, PartitionAccount

PARTIALS, PUBLISHED, VERDICTS, PLANS = "partials", "published", "verdicts", "plans"
RUNS, PARTITIONS, DIFFERENCES, MISSES = "runs", "partitions", "differences", "misses"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_TYPES = {"str": pl.String(), "int": pl.Int64(), "bool": pl.Boolean(), "tuple[str, ...]": pl.List(pl.String())}


@dataclass(frozen=True, kw_only=True)
class Run:
    """A complete audit: what it covered and what it found. ``published_ends`` are offsets of the sink's topic."""

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
    published_ends: Mapping[int, int]
    outcome: str
    certificate: str
    counts: Mapping[str, int]

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

    def __init__(self, session: SparkSession, tables: Tables, stream: str) -> None:
        self._session = session
        self._tables = tables
        self._stream = stream

    def seed_for(self, ledger: Ledger, cut: Order) -> Seed:
        """The newest complete audit of a batch before ``cut`` that this very ledger holds, or ``NOTHING``."""
        known = {proof.order: proof for proof in ledger.proofs}
        earlier = [run for run in self.runs() if run.order < cut and run.order in known]
        for run in sorted(earlier, key=lambda run: (run.order, run.finished_ms), reverse=True):
            parts = self.partitions(run.audit)
            ends = {part.partition: part.end for part in known[run.order].partitions}
            if ends == {part.partition: part.end for part in parts}:
                return Seed(run=run, stream_times={part.partition: part.stream_time_ms for part in parts})
        return NOTHING

    def require_new(self, audit: str) -> None:
        """Raise ``Terminal`` unless ``audit`` can name an audit and no complete one has that name."""
        if not _NAME.fullmatch(audit):
            raise Terminal("invalid name of an audit", given=audit, expected="letters, digits, '-', '_', '.'")
        if any(run.audit == audit for run in self.runs()):
            raise Terminal(
                "an audit of that name is complete",
                given=audit,
                expected="a new name: later audits build on what that one recomputed",
                remedy="leave --audit out",
            )

    def runs(self) -> list[Run]:
        """All complete audits, oldest first."""
        rows = self._rows(RUNS)
        runs = [_run(row) for row in rows]
        return sorted(runs, key=lambda run: run.finished_ms)

    def partitions(self, audit: str) -> list[PartitionAccount]:
        """The account of every partition in ``audit``."""
        rows = self._rows(PARTITIONS, audit)
        # a column that is younger than the row is null in it: then the default holds
        known = [{name: value for name, value in row.items() if value is not None} for row in rows]
        return [PartitionAccount(**row) for row in known]

    def differences(self, audit: str) -> list[Difference]:
        """The differences that ``audit`` found."""
        return [Difference(**{**row, "evidence": tuple(row["evidence"])}) for row in self._rows(DIFFERENCES, audit)]

    def misses(self, audit: str) -> list[GraceMiss]:
        """The grace misses that ``audit`` found."""
        return [GraceMiss(**{**row, "late": tuple(row["late"])}) for row in self._rows(MISSES, audit)]

    def read(self, name: str, audits: Sequence[str]) -> DataFrame:
        """The rows of ``audits`` in the table ``name``, which must exist."""
        rows = self._session.read.format("delta").load(self._tables.audit(self._stream, name))
        return rows.where(F.col("audit").isin(list(audits)))

    def rows(self, name: str, audits: Sequence[str]) -> pl.LazyFrame:
        """The same, to be read without Spark."""
        return pl.scan_delta(self._tables.audit(self._stream, name)).filter(pl.col("audit").is_in(list(audits)))

    def put(self, name: str, audit: str, rows: DataFrame) -> None:
        """Make ``rows`` those of ``audit``: an audit that is tried again replaces what its first try left."""
        path = self._tables.audit(self._stream, name)
        mine = rows.withColumn("audit", F.lit(audit)).coalesce(1)
        writer = mine.write.format("delta").mode("overwrite").partitionBy("audit").option("mergeSchema", "true")
        writer.option("replaceWhere", f"audit = '{audit}'").save(path)

    def put_rows(self, name: str, audit: str, rows: pl.DataFrame, *, part: int = 0) -> None:
        """The same without Spark, which would take a second over few rows; parts after the first come beside it."""
        path, mine = self._tables.audit(self._stream, name), rows.with_columns(audit=pl.lit(audit))
        if part:
            write_deltalake(path, mine, mode="append")
            return
        write_deltalake(
            path,
            mine,
            mode="overwrite",
            predicate=f"audit = '{audit}'",
            partition_by=["audit"],
            schema_mode="merge",
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

    def _rows(self, name: str, audit: str | None = None) -> list[dict[str, Any]]:
        path = self._tables.audit(self._stream, name)
        if not DeltaTable.is_deltatable(path):
            return []
        rows = pl.scan_delta(path)
        if audit is not None:
            rows = rows.filter(pl.col("audit") == audit)
        return rows.drop("audit").collect().to_dicts()


@dataclass(frozen=True)
class _Document:
    document: str


def _schema(kind: type[Any]) -> dict[str, pl.DataType]:
    return {field.name: _TYPES[str(field.type).removesuffix(" | None")] for field in fields(kind)}


def _run(row: Mapping[str, Any]) -> Run:
    document = json.loads(row["document"])
    document["lineage"] = tuple(document["lineage"])
    document["published_ends"] = {int(p): offset for p, offset in document["published_ends"].items()}
    return Run(**document)
