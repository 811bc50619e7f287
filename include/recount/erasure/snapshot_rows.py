"""The snapshot of a general audit without the rows of a key, read and written without Spark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from recount.audit.store import SNAPSHOTS, AuditStore
from recount.audit.topologies.scope import COMPLETE_PART, TRUTH_PART
from recount.core.errors import Terminal
from recount.core.own_columns import AUDIT
from recount.core.tables import Tables
from recount.recompute.graph.carried_keys import ID_NAME, KEY_NAME
from recount.recompute.graph.carrying import CLOCKS


def snapshot_sha256(tables: Tables, stream: str, audit: str) -> str:
    """What tells the snapshot of ``audit`` from any other; the same as ``Snapshots.sha256``."""
    told = []
    for row in _rows(tables, stream, audit):
        digest = None if row["rows"] is None else hashlib.sha256(row["rows"]).hexdigest()
        about = {name: row[name] for name in ("part", "name", "schema")}
        told.append(json.dumps({**about, "sha256": digest}, sort_keys=True))
    return hashlib.sha256("\n".join(sorted(told)).encode()).hexdigest()


def count_in_snapshot(tables: Tables, stream: str, audit: str, key: str) -> int:
    """How many rows of ``key`` the snapshot of ``audit`` has, in frames that say where the key is."""
    rows = _rows(tables, stream, audit)
    schemas = _schemas(rows)
    keyed = [(row, batch) for row, batch in _batches(rows) if KEY_NAME in schemas[_place(row)]]
    return sum(batch.num_rows - _without(batch, schemas[_place(row)], row, key).num_rows for row, batch in keyed)


def erase_from_snapshots(tables: Tables, stream: str, audit: str, key: str) -> None:
    """Rewrite the snapshot of ``audit`` without ``key``, and drop those of all other audits."""
    rows = _rows(tables, stream, audit)
    schemas = _schemas(rows)
    kept = [row for row in rows if row["rows"] is None]
    for row, batch in _batches(rows):
        left = _without(batch, schemas[_place(row)], row, key)
        if left.num_rows == batch.num_rows:
            kept.append(row)
        elif left.num_rows:
            kept.append({**row, "rows": _stream_of(left)})
    columns = {"part": pl.String, "name": pl.String, "schema": pl.String, "rows": pl.Binary}
    told = pl.DataFrame([[row[name] for name in columns] for row in kept], columns, orient="row")
    AuditStore(None, tables, stream).put_rows(SNAPSHOTS, audit, told)
    DeltaTable(tables.audit(stream, SNAPSHOTS)).delete(f"{AUDIT} <> '{audit}'")


def frames_without_keys(tables: Tables, stream: str, audit: str) -> list[str]:
    """The frames of the snapshot of ``audit`` that do not say where the key is: an earlier release has written them."""
    schemas = _schemas(_rows(tables, stream, audit))
    told = {f"{part} {name}": columns for (part, name), columns in schemas.items()}
    return sorted(name for name, columns in told.items() if KEY_NAME not in columns and not name.endswith(f" {CLOCKS}"))


def ids_in_snapshot(tables: Tables, stream: str, audit: str | None, frame: str, key: str) -> list[str]:
    """The ids of the records of ``key`` in the frames called ``frame`` of the snapshot of ``audit``."""
    mine, _ = _ids(tables, stream, audit, frame, key)
    return sorted(mine)


def shared_ids_in_snapshot(tables: Tables, stream: str, audit: str | None, frame: str, key: str) -> int:
    """How many of these records of other keys have too."""
    mine, others = _ids(tables, stream, audit, frame, key)
    return len(mine & others)


def _ids(tables: Tables, stream: str, audit: str | None, frame: str, key: str) -> tuple[set[str], set[str]]:
    """The ids of the records of ``key``, and those of all others."""
    mine: set[str] = set()
    others: set[str] = set()
    if audit is None or not AuditStore(None, tables, stream).has(SNAPSHOTS, audit):
        return mine, others
    rows = [row for row in _rows(tables, stream, audit) if row["name"] == frame]
    schemas = _schemas(rows)
    for row, batch in _batches(rows):
        columns = schemas[_place(row)]
        if not {KEY_NAME, ID_NAME} <= set(columns):
            continue
        is_mine, ids = _is_of(batch, columns, key), _texts(batch, columns, ID_NAME)
        mine |= set(ids.filter(is_mine).to_pylist())
        others |= set(ids.filter(pc.invert(is_mine)).to_pylist())
    return mine, others


def _rows(tables: Tables, stream: str, audit: str) -> list[dict[str, Any]]:
    rows = pl.scan_delta(tables.audit(stream, SNAPSHOTS)).filter(pl.col(AUDIT) == audit)
    return rows.select("part", "name", "schema", "rows").collect().to_dicts()


def _place(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["part"], row["name"]


def _schemas(rows: list[dict[str, Any]]) -> dict[tuple[str, str], list[str]]:
    """By part and name of a frame its columns, in order."""
    headers = [row for row in rows if row["schema"] is not None]
    return {_place(row): [field["name"] for field in json.loads(row["schema"])["fields"]] for row in headers}


def _batches(rows: list[dict[str, Any]]) -> list[tuple[dict[str, Any], pa.Table]]:
    return [(row, pa.ipc.open_stream(row["rows"]).read_all()) for row in rows if row["rows"] is not None]


def _without(batch: pa.Table, columns: list[str], row: Mapping[str, Any], key: str) -> pa.Table:
    """``batch`` without the rows of ``key``; raises ``Terminal`` for a frame of which that cannot be told."""
    if _has_no_keys(row):
        return batch
    if KEY_NAME not in columns:
        raise Terminal(
            "the audit hands on rows of which the key is not known",
            given=f"{row['part']} {row['name']}, columns {', '.join(columns)}",
            expected=f"a column {KEY_NAME}",
            remedy="run `recount audit` with this release, then this again",
        )
    return batch.filter(pc.invert(_is_of(batch, columns, key)))


def _has_no_keys(row: Mapping[str, Any]) -> bool:
    return row["part"] in (TRUTH_PART, COMPLETE_PART) and row["name"] == CLOCKS


def _is_of(batch: pa.Table, columns: list[str], key: str) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(_texts(batch, columns, KEY_NAME), key), False)


def _texts(batch: pa.Table, columns: list[str], name: str) -> pa.ChunkedArray:
    return batch.column(columns.index(name)).cast(pa.string())


def _stream_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue().to_pybytes())
