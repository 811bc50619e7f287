"""Checks of the files of Delta tables: their statistics, their logs, and the order of rows that replace others.

A log says of each file, and the end of a file says of each of its row groups, how many rows it has, and of each column
the least and greatest value. By these statistics readers pass over files, audits too. False ones hide rows without a
change of any. So an audit reads all files without them, and compares. What files say of single pages is not compared:
no job of ours goes by it (``recount.tables.spark_session``), but Sparks of others do.

Readers differ on a log with a commit that both adds and removes one file, a compacted log, or a partition column: Spark
and delta-rs see other rows then, or other values, and each audit reads with one of them only. Recount writes none.

Readers take the row of the last batch for the newest; an audit takes the highest revision. Both are the same in what a
stream writes. An earlier revision that is made to name a later batch shows readers what had been replaced, and changes
no value that an audit judges.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from typing import Any
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem, PyFileSystem

from recount.audit.compare.identity import Identity
from recount.audit.compare.published import written_after
from recount.audit.cut.audited_ledger import LEDGER, Order
from recount.audit.integrity.table_checksums import ALL_FILES
from recount.certificate.finding import Difference
from recount.declare.columns import BATCH, GENERATION, REVISION
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.topology import Topology
from recount.tables.places import Tables

_LOG = "_delta_log"
_COMMIT = re.compile(r"\d{20}\.json")
_COMPACTED = ".compacted.json"
_READERS, _WRITERS = 1, 2
"""The version of the protocol for readers, and the highest for writers."""
_FILE, _ROWS = "__file", "__rows"
_BOUNDS = ("least", "most")
ROWS_AT_ONCE = 1_000_000


def altered_files(
    tables: Tables, topology: Topology, identities: Iterable[Identity], seed: Order | None, cut: Order
) -> list[Difference]:
    """All differences of this module; ``seed`` and ``cut`` as ``reordered_rows`` has them."""
    return [
        *false_statistics(tables, topology),
        *strange_logs(tables, topology),
        *reordered_rows(tables, identities, seed, cut),
    ]


def strange_logs(tables: Tables, topology: Topology) -> list[Difference]:
    """A difference for each table of results, late and rejected records whose log is not one that Recount writes.

    Of commits that a checkpoint has replaced only what they have made of the columns is looked at: the files all
    readers take from the checkpoint then.
    """
    results = output_places(tables, topology) | correction_places(tables, topology)
    paths = results | side_places(tables, topology)
    found = {place: list(_strange(path)) for place, path in paths.items() if DeltaTable.is_deltatable(path)}
    return [
        Difference(
            kind=LEDGER,
            place=place,
            verdict="altered",
            expected="a log that every reader takes in one way",
            actual=f"{faults[0][1]}; faults in all: {len(faults)}",
            cause="Recount writes no such log, and readers do not agree about it: somebody has changed it",
            evidence=(f"file {_LOG}/{faults[0][0]}",),
        )
        for place, faults in found.items()
        if faults
    ]


def _strange(path: str) -> Iterator[tuple[str, str]]:
    """The name of each file of the log at which something is wrong, and what."""
    folder = PyFileSystem(DeltaStorageHandler(path))
    for name in sorted(one.base_name for one in folder.get_file_info(FileSelector(_LOG))):
        if name.endswith(_COMPACTED):
            yield name, "a compacted log, which Spark reads and delta-rs does not"
        elif _COMMIT.fullmatch(name):
            with folder.open_input_stream(f"{_LOG}/{name}") as file:
                actions = [json.loads(line) for line in file.read().splitlines() if line.strip()]
            added, removed = ({_file(one[kind]) for one in actions if kind in one} for kind in ("add", "remove"))
            yield from ((name, f"{file_name} added and removed") for file_name, _ in sorted(added & removed))
    table = DeltaTable(path)
    yield from ((f"{table.version():020}.json", fault) for fault in _faults_of_columns(table))


def _file(action: dict[str, Any]) -> tuple[str, str]:
    """The file, and which of its rows do not count: a commit may put one such list in the place of another."""
    return action["path"], json.dumps(action.get("deletionVector"), sort_keys=True)


def _faults_of_columns(table: DeltaTable) -> Iterator[str]:
    readers, writers = table.protocol().min_reader_version, table.protocol().min_writer_version
    if readers != _READERS or writers > _WRITERS:
        yield f"version {readers} of the protocol for readers, {writers} for writers"
    if table.metadata().partition_columns:
        yield f"partition columns {', '.join(table.metadata().partition_columns)}"
    for column in table.schema().fields:
        if not column.nullable or column.metadata:
            yield f"column {column.name} with rules of its own"


def output_places(tables: Tables, topology: Topology) -> dict[str, str]:
    """The path of each table of results."""
    return {f"table outputs/{node.table}": tables.output(node.table) for node in topology.written}


def correction_places(tables: Tables, topology: Topology) -> dict[str, str]:
    """The path of each table of corrections, which may not be there."""
    return {f"table corrections/{node.table}": tables.corrections(node.table) for node in topology.written}


def side_places(tables: Tables, topology: Topology) -> dict[str, str]:
    """The paths of the tables of late and of rejected records."""
    return {"late table": tables.late(topology.name), "rejected table": tables.rejected(topology.name)}


def false_statistics(tables: Tables, topology: Topology) -> list[Difference]:
    """A difference for each table of results, late and rejected records with files of which its log says otherwise.

    Columns of texts, whole numbers and flags count. Others have statistics that are rounded.
    """
    results = output_places(tables, topology) | correction_places(tables, topology)
    paths = results | side_places(tables, topology)
    found = {place: _false_files(path) for place, path in paths.items()}
    return [
        Difference(
            kind=LEDGER,
            place=place,
            verdict="altered",
            expected="files in which is what they, and the table's log, say of them",
            actual=f"{len(files)} files have other rows, nulls or values",
            cause="readers that look for some rows pass over such a file: somebody has changed it, or the table's log",
            evidence=(f"file {files[0]}",),
        )
        for place, files in found.items()
        if files
    ]


def _false_files(path: str) -> list[str]:
    if not DeltaTable.is_deltatable(path):
        return []
    table = DeltaTable(path)
    said = pl.DataFrame(table.get_add_actions(flatten=True))
    if said.is_empty():
        return []
    kinds = {name: kind for name, kind in pl.scan_delta(table).collect_schema().items() if _is_exact(kind)}
    by_file = said.with_columns(pl.Series(_FILE, [_place(path, name) for name in said["path"]]))
    there, lies = zip(*(_in_file(file, kinds) for file in by_file[_FILE]), strict=True)
    types: dict[str, pl.DataType] = {_ROWS: pl.Int64(), **{f"{name} nulls": pl.Int64() for name in kinds}}
    types |= {f"{name} {bound}": kind for name, kind in kinds.items() for bound in _BOUNDS}
    beside = pl.concat([by_file, pl.DataFrame(there, types)], how="horizontal")
    is_false = pl.any_horizontal(*_contradictions(beside.schema, kinds), pl.Series(lies))
    return sorted(beside.filter(is_false.fill_null(value=False))["path"].to_list())


def _place(path: str, name: str) -> str:
    """Return the path of the file ``name`` of the table at ``path``; the log may name one that is elsewhere."""
    name = unquote(name)
    lies_elsewhere = name.startswith("/") or "://" in name
    return (name if lies_elsewhere else f"{path.rstrip('/')}/{name}").removeprefix("file://")


def _is_exact(kind: pl.DataType) -> bool:
    return kind.is_integer() or kind in (pl.String(), pl.Boolean())


def _in_file(file: str, kinds: Mapping[str, pl.DataType]) -> tuple[dict[str, Any], bool]:
    """Rows, nulls, least and greatest values in the file; and whether one of its row groups says otherwise."""
    found: dict[str, Any] = {_ROWS: 0, **{f"{name} nulls": 0 for name in kinds}}
    lies = False
    store, place = FileSystem.from_uri(file) if "://" in file else (LocalFileSystem(), file)
    with pq.ParquetFile(place, filesystem=store) as parquet:
        columns = [name for name in kinds if name in parquet.schema_arrow.names]
        for number in range(parquet.metadata.num_row_groups):
            rows, group = parquet.read_row_group(number, columns=columns), parquet.metadata.row_group(number)
            chunks = {one.path_in_schema: one for one in map(group.column, range(group.num_columns))}
            found[_ROWS] += rows.num_rows
            for name in kinds:
                nulls, least, most = _in_column(rows, name)
                lies |= name in columns and _contradicts(chunks[name].statistics, nulls, least, most)
                found[f"{name} nulls"] += nulls
                for bound, value, outer in zip(_BOUNDS, (least, most), (min, max), strict=True):
                    if value is not None:
                        found[f"{name} {bound}"] = outer(value, found.get(f"{name} {bound}", value))
    return {name: one.decode() if isinstance(one, bytes) else one for name, one in found.items()}, lies


def _in_column(rows: pa.Table, name: str) -> tuple[int, Any, Any]:
    """Number of nulls, least and greatest value; of texts their bytes. A column that is missing is null."""
    if name not in rows.column_names:
        return rows.num_rows, None, None
    column = rows.column(name)
    if not (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)):
        column = column.cast(pa.large_string()).cast(pa.large_binary())
    bounds = pc.min_max(column).as_py()
    return column.null_count, bounds["min"], bounds["max"]


def _contradicts(said: pq.Statistics | None, nulls: int, least: Any, most: Any) -> bool:
    if said is None:
        return False
    if said.has_null_count and said.null_count != nulls:
        return True
    return bool(said.has_min_max and least is not None and (least < said.min_raw or most > said.max_raw))


def _contradictions(columns: Mapping[str, pl.DataType], kinds: Mapping[str, pl.DataType]) -> Iterator[pl.Expr]:
    """Yield conditions that must not hold; null where the log says nothing."""
    yield pl.col("num_records") != pl.col(_ROWS)
    for name in kinds:
        if f"null_count.{name}" in columns:
            yield pl.col(f"null_count.{name}") != pl.col(f"{name} nulls")
        for said, found, is_less in ((f"min.{name}", f"{name} least", False), (f"max.{name}", f"{name} most", True)):
            if said in columns:
                one, other = (pl.col(column).cast(_comparable(kinds[name])) for column in (said, found))
                yield one < other if is_less else one > other


def _comparable(kind: pl.DataType) -> pl.DataType:
    return pl.Int8() if kind == pl.Boolean() else kind


def reordered_rows(
    tables: Tables,
    identities: Iterable[Identity],
    seed: Order | None,
    cut: Order,
    *,
    rows_at_once: int = ROWS_AT_ONCE,
) -> list[Difference]:
    """A difference for each sink of ``identities`` with rows of a revision that an earlier batch had exceeded.

    Rows of batches after ``seed`` (None: all) up to ``cut`` count: those before have been looked at, and one of them
    that comes to name a later batch is a revision from before the seed, which the verdicts find.
    """
    found = {one.written.table: _first_of(tables, one, seed, cut, rows_at_once) for one in identities if one.is_latest}
    return [
        Difference(
            kind=LEDGER,
            place=f"table outputs/{table}",
            verdict="altered",
            expected="revisions in the order of the batches that wrote them",
            actual=f"{number} rows of an earlier revision in a later batch",
            cause="readers take the row of the last batch for the newest: somebody has changed which batch a row names",
            evidence=(f"batch {generation}/{batch}",),
        )
        for table, (number, generation, batch) in found.items()
        if number
    ]


def _first_of(
    tables: Tables, identity: Identity, seed: Order | None, cut: Order, rows_at_once: int
) -> tuple[int, int | None, int | None]:
    """How many rows there are, and the first of the batches that they name."""
    path = tables.output(identity.written.table)
    if not DeltaTable.is_deltatable(path):
        return 0, None, None
    rows = pl.scan_delta(path).filter(~written_after(cut))
    if seed is not None:
        rows = rows.filter(written_after(seed))
    bounds = [WINDOW_START, WINDOW_END] if identity.has_bounds else []
    group = [identity.written.key, *bounds]
    order = [GENERATION, BATCH, REVISION]
    parts = max(1, ceil(rows.select(pl.len()).collect().item() / rows_at_once))
    late = []
    for part in range(parts):
        here = pl.col(identity.written.key).cast(pl.String).hash() % parts == part if parts > 1 else pl.lit(value=True)
        is_beyond = pl.col(REVISION) < pl.col(REVISION).cum_max().over(group)
        beyond = rows.filter(here).select(*group, *order).sort(order).filter(is_beyond).select(order)
        late.append(beyond.collect(optimizations=ALL_FILES))
    found = pl.concat(late).sort(order)
    return (found.height, *found.row(0)[:2]) if found.height else (0, None, None)
