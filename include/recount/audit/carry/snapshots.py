"""Snapshots that audits keep for later ones: frames of any columns in one table.

A row of ``audits/<stream>/snapshots`` is one Arrow batch of a frame: ``part`` and ``name`` say of which, ``rows`` is
the batch as an Arrow stream. One more row of each frame, with no ``rows``, has its columns in ``schema`` (JSON of
Spark).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, DeltaTable, WriterProperties
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from recount.audit.audit_session import FEW_OFFSETS
from recount.audit.carry.delta_frames import bytes_of, is_small, local_frame
from recount.audit.carry.store import SNAPSHOTS, AuditStore, complete_runs
from recount.declare.columns import AUDIT
from recount.recompute.frames.duck_frames import Frame
from recount.tables.places import Tables

Frames = Mapping[str, DataFrame | Frame]
KEPT = 8
"""So many audits keep theirs: an audit as of an earlier time, or one that is repeated, begins at one of them."""
SMALL_BYTES = 64 * 2**20
"""Of the snapshots that are kept, together: then one more may go through the driver."""
_BATCHES_AT_A_TIME = 2
_BLOBS = WriterProperties(
    column_properties={"rows": ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")}
)
"""Otherwise the writer has several copies of a batch, which is of megabytes: in a dictionary, as least and largest."""
_SCHEMA = "part string, name string, schema string, rows binary"
COLUMNS = {"part": pl.String, "name": pl.String, "schema": pl.String, "rows": pl.Binary}
PASSING = "passing"
"""The folder of the rows of an audit at work that go from Spark to the recompute, and back."""


@dataclass(frozen=True, kw_only=True)
class Snapshots:
    """The snapshots of the audits of ``stream``."""

    session: SparkSession
    tables: Tables
    stream: str

    @property
    def _path(self) -> str:
        return self.tables.audit(self.stream, SNAPSHOTS)

    @property
    def _store(self) -> AuditStore:
        return AuditStore(self.session, self.tables, self.stream)

    def put(self, audit: str, parts: Mapping[str, Frames], offsets: int) -> None:
        """Make the frames of all ``parts`` the snapshot of ``audit``, in place of one that its first try left.

        ``offsets``: so many the audit has read. Where they are few and no snapshot before is large, the frames go
        through this process: a Spark job that writes them takes seconds, whatever their size.
        Those of the recompute go through it always, some batches at a time: they are not Spark's.
        """
        told = [(part, name, frame) for part, frames in parts.items() for name, frame in frames.items()]
        headers = [(part, name, json.dumps(frame.schema.jsonValue()), None) for part, name, frame in told]
        if offsets <= FEW_OFFSETS and self._bytes() <= SMALL_BYTES:
            batches = [
                (part, name, None, stream_of(batch))
                for part, name, frame in told
                for batch in _batches(frame)
                if batch.num_rows
            ]
            self._store.put_rows(SNAPSHOTS, audit, pl.DataFrame([*headers, *batches], COLUMNS, orient="row"))
            return
        # a page of a Parquet file has a hundred rows, or all of a file, in memory: here each is of megabytes
        by_spark = reduce(
            DataFrame.unionByName,
            [_packed(part, name, frame) for part, name, frame in told if isinstance(frame, DataFrame)],
            self.session.createDataFrame(headers, _SCHEMA),
        )
        writer = by_spark.withColumn(AUDIT, F.lit(audit)).write.format("delta").mode("overwrite").partitionBy(AUDIT)
        writer.option("maxRecordsPerFile", 2).option("replaceWhere", f"{AUDIT} = '{audit}'").save(self._path)
        ours = ((part, name, frame) for part, name, frame in told if isinstance(frame, Frame))
        rows = ((part, name, None, stream_of(one)) for part, name, frame in ours for one in _batches(frame))
        for number, some in enumerate(iter(lambda: list(islice(rows, _BATCHES_AT_A_TIME)), []), start=1):
            few = pl.DataFrame(some, COLUMNS, orient="row")
            self._store.put_rows(SNAPSHOTS, audit, few, part=number, writer=_BLOBS)
            pa.default_memory_pool().release_unused()

    def sha256(self, audit: str) -> str:
        """Return a hash of the content of the snapshot of ``audit``, whatever its files."""
        return snapshot_sha256(self.tables, self.stream, audit)

    def has(self, audit: str) -> bool:
        """Whether ``audit`` has a snapshot."""
        return self._store.has(SNAPSHOTS, audit)

    def of(self, audit: str) -> Snapshot:
        """Return the snapshot of ``audit``, which has one."""
        if is_small(DeltaTable(self._path)):
            return self._through_this_process(audit)
        rows = self.session.read.format("delta").load(self._path).where(F.col(AUDIT) == audit).persist()
        headers = rows.where(F.col("rows").isNull()).select("part", "name", "schema").collect()
        schemas = {(row.part, row.name): _schema(row.schema) for row in headers}
        frames = {at: _unpacked_by_spark(rows, *at, schemas[at]) for at in schemas}
        return Snapshot(session=self.session, frames=frames, cached=rows)

    def _through_this_process(self, audit: str) -> Snapshot:
        schemas: dict[tuple[str, str], T.StructType] = {}
        batches: dict[tuple[str, str], list[pa.RecordBatch]] = {}
        for row in snapshot_rows(self.tables, self.stream, audit):
            at = row["part"], row["name"]
            if row["rows"] is None:
                schemas[at] = _schema(row["schema"])
            else:
                batches.setdefault(at, []).extend(_unpacked([row["rows"]]))
        tables = {}
        for at, schema in schemas.items():
            numbered = _numbered_schema(schema)
            rows = pa.Table.from_batches(batches[at]) if at in batches else to_arrow_schema(numbered).empty_table()
            tables[at] = LocalRows(rows=rows, schema=schema)
        return Snapshot(session=self.session, tables=tables)

    def _bytes(self) -> int:
        """Return the bytes of all snapshots, as they are on disk."""
        return bytes_of(DeltaTable(self._path)) if DeltaTable.is_deltatable(self._path) else 0

    def keep_newest(self, newest: str, number: int = KEPT, *, beside: AbstractSet[str] = frozenset()) -> None:
        """Delete all but those of the last ``number`` audits, and of ``beside``; ``newest`` is about to be complete.

        The names do not say which were the last: some were given by people, some while a clock was wrong.
        Of those that are not complete the last by name stays: another audit may be at work.
        """
        there = {str(one[AUDIT]) for one in DeltaTable(self._path).partitions()}
        complete = [run.audit for run in complete_runs(self.tables, self.stream) if run.audit in there]
        at_work = sorted(there - {newest, *complete})[-1:]
        kept = {newest, *beside, *complete[len(complete) + 1 - number :], *at_work}
        if gone := sorted(there - kept):
            names = ", ".join(f"'{audit}'" for audit in gone)
            DeltaTable(self._path).delete(f"{AUDIT} IN ({names})")


@dataclass(frozen=True, kw_only=True)
class LocalRows:
    """Rows of this process, whose columns are numbered, and their ``schema``."""

    rows: pa.Table
    schema: T.StructType


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The ``frames`` of one audit by part and name, made of what Spark has ``cached``; or ``tables`` of few rows."""

    session: SparkSession
    frames: Mapping[tuple[str, str], DataFrame] = field(default_factory=dict)
    tables: Mapping[tuple[str, str], LocalRows] = field(default_factory=dict)
    cached: DataFrame | None = None

    def part(self, part: str) -> Mapping[str, DataFrame]:
        """The frames of ``part`` by name."""
        found = {name: frame for (of, name), frame in self.frames.items() if of == part}
        for (of, name), one in self.tables.items():
            if of == part:
                local = local_frame(self.session, one.rows, _numbered_schema(one.schema))
                found[name] = local.toDF(*one.schema.names)
        return found

    def read(self, part: str, name: str) -> DataFrame | pa.Table | None:
        """The rows of the frame ``name`` of ``part``, where they lie; None where it was not kept."""
        one = self.tables.get((part, name))
        return self.frames.get((part, name)) if one is None else one.rows.rename_columns(one.schema.names)

    def release(self) -> None:
        """Give the cached rows back."""
        if self.cached is not None:
            self.cached.unpersist()


def snapshot_rows(tables: Tables, stream: str, audit: str) -> Iterator[dict[str, Any]]:
    """The rows of the snapshot of ``audit``, a few at a time: each is a batch of a frame, or has its columns."""
    table = DeltaTable(tables.audit(stream, SNAPSHOTS)).to_pyarrow_dataset()
    mine = pc.field(AUDIT) == audit
    few = {"batch_size": _BATCHES_AT_A_TIME, "batch_readahead": 1, "fragment_readahead": 1}
    for batch in table.to_batches(columns=list(COLUMNS), filter=mine, **few):
        yield from batch.to_pylist()
        pa.default_memory_pool().release_unused()


def snapshot_sha256(tables: Tables, stream: str, audit: str) -> str:
    """Return a hash of the content of the snapshot of ``audit``, whatever its files."""
    lines = []
    for row in snapshot_rows(tables, stream, audit):
        rows = row.pop("rows")
        told = row | {"sha256": None if rows is None else hashlib.sha256(rows).hexdigest()}
        lines.append(json.dumps(told, sort_keys=True))
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _schema(told: str) -> T.StructType:
    return T.StructType.fromJson(json.loads(told))


def _numbered_schema(schema: T.StructType) -> T.StructType:
    return T.StructType([T.StructField(str(at), one.dataType) for at, one in enumerate(schema)])


def _unpacked_by_spark(rows: DataFrame, part: str, name: str, schema: T.StructType) -> DataFrame:
    mine = (F.col("part") == part) & (F.col("name") == name) & F.col("rows").isNotNull()

    def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _unpacked(batch.column("rows").to_pylist())

    return rows.where(mine).select("rows").mapInArrow(unpacked, _numbered_schema(schema)).toDF(*schema.names)


def _packed(part: str, name: str, frame: DataFrame) -> DataFrame:
    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                columns = [[part], [name], [None], [stream_of(batch)]]
                types = [pa.string(), pa.string(), pa.string(), pa.binary()]
                arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
                yield pa.record_batch(arrays, names=list(COLUMNS))

    return _numbered(frame).mapInArrow(packed, _SCHEMA)


def _batches(frame: DataFrame | Frame) -> Iterator[pa.RecordBatch]:
    if isinstance(frame, DataFrame):
        yield from _numbered(frame).toArrow().to_batches()
        return
    for batch in frame.batches():
        yield batch.rename_columns(list(map(str, range(batch.num_columns))))


def _numbered(frame: DataFrame) -> DataFrame:
    """PySpark takes a dot in the name of a column for a step into a struct."""
    return frame.toDF(*map(str, range(len(frame.columns))))


def stream_of(rows: pa.RecordBatch | pa.Table) -> bytes:
    """``rows`` as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write(rows)
    return bytes(sink.getvalue().to_pybytes())


def _unpacked(streams: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    for rows in streams:
        with pa.ipc.open_stream(rows) as stream:
            yield from stream
