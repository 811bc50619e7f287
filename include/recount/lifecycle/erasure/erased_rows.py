"""The rows of one key in a general audit's snapshot and in a stream's state: found and removed without Spark.

``operator_states`` says of the declaration which column of each state has the key. The winners of a deduplication by
something else have an id only: which ids are those of a key follows from what the newest audit hands on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from recount.audit.audit_shape import flow_of
from recount.audit.carry.store import SNAPSHOTS, AuditStore
from recount.audit.cut.scope import COMPLETE_PART, TRUTH_PART
from recount.declare.columns import AUDIT
from recount.declare.operators.joins import StreamTableJoin
from recount.declare.operators.nodes import Node
from recount.declare.operators.processing import Deduplicate
from recount.declare.operators.tables import TableAggregate
from recount.declare.topology import Topology
from recount.engine.operators.batch_graph import Graph
from recount.engine.operators.batch_processing import key_column
from recount.engine.stage.partials import plan_of
from recount.lifecycle.erasure.holdings import goes_by_key, quoted
from recount.recompute.operators.carried import CLOCKS, ID_NAME, KEY_NAME, frame_name, names_of
from recount.runtime.errors import Terminal
from recount.tables.decisions import DeclarationLog
from recount.tables.places import Tables

_AT_ONCE = 200


def snapshot_sha256(tables: Tables, stream: str, audit: str) -> str:
    """The hash that identifies the snapshot of ``audit``; the same as ``Snapshots.sha256``."""
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
    """The columns of a frame in order, by its part and name."""
    headers = [row for row in rows if row["schema"] is not None]
    return {_place(row): [field["name"] for field in json.loads(row["schema"])["fields"]] for row in headers}


def _batches(rows: list[dict[str, Any]]) -> list[tuple[dict[str, Any], pa.Table]]:
    return [(row, pa.ipc.open_stream(row["rows"]).read_all()) for row in rows if row["rows"] is not None]


def _without(batch: pa.Table, columns: list[str], row: Mapping[str, Any], key: str) -> pa.Table:
    """``batch`` without the rows of ``key``; raises ``Terminal`` for a frame whose rows of a key cannot be found."""
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


@dataclass(frozen=True, kw_only=True)
class OperatorState:
    """One ``state`` of ``node``, called ``name`` in the state table: its rows have the key, or an id, in ``column``."""

    name: str
    node: Node
    state: str
    column: str
    kind: pl.DataType

    @property
    def has_ids(self) -> bool:
        """Whether the column has ids that say nothing of a key."""
        return isinstance(self.node, Deduplicate) and self.state == "winners" and not goes_by_key(self.node)

    @property
    def has_other_keys(self) -> bool:
        """Whether it has rows of another key than that of the records which the operator makes results of."""
        match self.node, self.state:
            case (StreamTableJoin() as node, "table") | (TableAggregate() as node, "groups"):
                return not goes_by_key(node)
        return False

    def of(self, table: pl.LazyFrame) -> pl.LazyFrame:
        """The ``row`` of each row that the state ``table`` has of it, and its key as text in ``value``."""
        decoded = pl.col("row").str.json_decode(pl.Struct({self.column: self.kind})).struct.field(self.column)
        return table.filter(pl.col("state") == self.name).select("state", "row", decoded.cast(pl.String).alias("value"))


def operator_states(topology: Topology, root: str) -> list[OperatorState]:
    """States of the stream whose tables are below ``root``; none where it keeps its windows in columns of a table."""
    if plan_of(topology) is not None:
        return []
    enacted = DeclarationLog(root, topology.name).all()
    graph = Graph(topology, added=enacted[-1].additions) if enacted else Graph(topology)
    found = []
    for name, (node, state) in graph.owners.items():
        column = key_column(node, state)
        kind = graph.states[name].schema[column]
        found.append(OperatorState(name=name, node=node, state=state, column=column, kind=kind))
    return found


@dataclass(frozen=True, kw_only=True)
class StateRows:
    """The rows of ``key`` in the state of ``topology``; ``audit`` is the newest, which hands ids on."""

    tables: Tables
    topology: Topology
    audit: str | None
    key: str

    def count(self) -> int:
        """How many there are, those included that later ones have replaced."""
        return sum(self._of(one).select(pl.len()).collect().item() for one in self._states)

    def remove(self) -> None:
        """Delete them. The commits name them: ``purge_state`` takes these out of the log."""
        for one in self._states:
            texts = self._of(one).select("row").unique(maintain_order=True).collect()["row"].to_list()
            for start in range(0, len(texts), _AT_ONCE):
                told = ", ".join(map(quoted, texts[start : start + _AT_ONCE]))
                DeltaTable(self._path).delete(f'state = {quoted(one.name)} AND "row" IN ({told})')

    def hindrances(self) -> Iterator[str]:
        """Where the key is that of rows by which rows of other keys are made."""
        for one in self._states:
            if one.has_other_keys and self._with(one, [self.key]).head(1).collect().height:
                what = "a group" if isinstance(one.node, TableAggregate) else "a key of the table"
                yield (
                    f"the key is {what} of [{one.node}], by which rows of other keys are made: erase those"
                    " keys, or take the row out of its source and let the stream read on"
                )
        for operator in self._by_id:
            shared = shared_ids_in_snapshot(self.tables, self.topology.name, self.audit, operator, self.key)
            if shared:
                yield (
                    f"[{self._by_id[operator]}] remembers {shared} ids of the key that records of other keys have too:"
                    " erase when they are further back than its horizon"
                )

    @cached_property
    def _states(self) -> list[OperatorState]:
        is_there = DeltaTable.is_deltatable(self._path)
        return operator_states(self.topology, self.tables.root) if is_there else []

    def _of(self, one: OperatorState) -> pl.LazyFrame:
        return self._with(one, self._ids(one.node) if one.has_ids else [self.key])

    def _with(self, one: OperatorState, values: list[str]) -> pl.LazyFrame:
        return one.of(pl.scan_delta(self._path)).filter(pl.col("value").is_in(values))

    def _ids(self, node: Node) -> list[str]:
        [operator] = (name for name, one in self._by_id.items() if one is node)
        return ids_in_snapshot(self.tables, self.topology.name, self.audit, operator, self.key)

    @cached_property
    def _by_id(self) -> Mapping[str, Node]:
        """The deduplications by something else than the key, by the name of their frame in a snapshot."""
        if flow_of(self.topology) is not None:
            return {}
        named = names_of(self.topology).items()
        by_id = [(node, name) for node, name in named if isinstance(node, Deduplicate) and not goes_by_key(node)]
        return {frame_name(name, "records"): node for node, name in by_id}

    @property
    def _path(self) -> str:
        return self.tables.state(self.topology.name)
