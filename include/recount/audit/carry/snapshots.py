"""Snapshots that audits keep for later ones: frames of any columns in one table.

A row of ``audits/<stream>/snapshots`` is one Arrow batch of a frame: ``part`` and ``name`` say of which, ``rows`` is
the batch as an Arrow stream, whose columns are numbered. One more row of each frame, with no ``rows``, has its columns
in ``schema`` (JSON of Spark).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, DeltaTable, WriterProperties
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from recount.audit.carry.store import SNAPSHOTS, AuditStore, complete_runs
from recount.declare.columns import AUDIT
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame, frame_of
from recount.tables.places import Tables

Frames = Mapping[str, Frame]
KEPT = 8
"""So many audits keep theirs: an audit as of an earlier time, or one that is repeated, begins at one of them."""
_BATCHES_AT_A_TIME = 2
_BLOBS = WriterProperties(
    compression="UNCOMPRESSED",
    max_row_group_size=_BATCHES_AT_A_TIME,
    write_batch_size=1,
    column_properties={"rows": ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")},
)
"""A row is a compressed batch of megabytes. Otherwise the writer has many of them in memory, some several times."""
COLUMNS = {"part": pl.String, "name": pl.String, "schema": pl.String, "rows": pl.Binary}
_SCHEMA = pa.schema([(name, pa.binary() if name == "rows" else pa.string()) for name in COLUMNS])
PASSING = "passing"
"""The folder of the rows of an audit at work that go from Spark to the recompute."""


@dataclass(frozen=True, kw_only=True)
class Snapshots:
    """The snapshots of the audits of ``stream``."""

    tables: Tables
    stream: str

    @property
    def _path(self) -> str:
        return self.tables.audit(self.stream, SNAPSHOTS)

    @property
    def _store(self) -> AuditStore:
        return AuditStore(self.tables, self.stream)

    def put(self, audit: str, parts: Mapping[str, Frames]) -> None:
        """Make the frames of all ``parts`` the snapshot of ``audit``, in place of one that its first try left."""

        def batches() -> Iterator[pa.RecordBatch]:
            for part, frames in parts.items():
                for name, frame in frames.items():
                    yield _row(part, name, json.dumps(frame.schema.jsonValue()), None)
                    for batch in frame.batches():
                        if batch.num_rows:
                            numbered = batch.rename_columns(list(map(str, range(batch.num_columns))))
                            yield _row(part, name, None, stream_of(numbered))

        self._store.put_batches(SNAPSHOTS, audit, batches(), _SCHEMA, _BLOBS)

    def sha256(self, audit: str) -> str:
        """Return a hash of the content of the snapshot of ``audit``, whatever its files."""
        return snapshot_sha256(self.tables, self.stream, audit)

    def has(self, audit: str) -> bool:
        """Whether ``audit`` has a snapshot."""
        return self._store.has(SNAPSHOTS, audit)

    def of(self, audit: str) -> Snapshot:
        """Return the snapshot of ``audit``, which has one."""
        return Snapshot(tables=self.tables, stream=self.stream, audit=audit)

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
class Snapshot:
    """The frames that ``audit`` has kept, by part and name: read whole, into the first database that asks for one."""

    tables: Tables
    stream: str
    audit: str
    _frames: dict[tuple[str, str], Frame] = field(default_factory=dict)

    def part(self, part: str, database: Database) -> Mapping[str, Frame]:
        """The frames of ``part`` by name."""
        return {name: frame for (of, name), frame in self._loaded(database).items() if of == part}

    def _loaded(self, database: Database) -> Mapping[tuple[str, str], Frame]:
        if not self._frames:
            table = DeltaTable(self.tables.audit(self.stream, SNAPSHOTS)).to_pyarrow_dataset()
            headers = pc.is_valid(pc.field("schema")) & (pc.field(AUDIT) == self.audit)
            for row in table.to_table(columns=["part", "name", "schema"], filter=headers).to_pylist():
                schema = to_arrow_schema(T.StructType.fromJson(json.loads(row["schema"])))
                self._frames[row["part"], row["name"]] = frame_of(database, [], schema)
            for row in snapshot_rows(self.tables, self.stream, self.audit):
                if row["rows"] is not None:
                    with pa.ipc.open_stream(row["rows"]) as stream:
                        self._frames[row["part"], row["name"]].add(stream.read_all())
        return self._frames


def _row(part: str, name: str, schema: str | None, rows: bytes | None) -> pa.RecordBatch:
    values = zip((part, name, schema, rows), _SCHEMA.types, strict=True)
    return pa.record_batch([pa.array([value], kind) for value, kind in values], schema=_SCHEMA)


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


def stream_of(rows: pa.RecordBatch | pa.Table) -> bytes:
    """``rows`` as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write(rows)
    return bytes(sink.getvalue().to_pybytes())
