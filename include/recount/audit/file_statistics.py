"""What a Delta table says of its files: how many rows, and of each column the least and greatest value.

Its log says so of each file, and the end of a file of each of its row groups. Readers that look for some rows pass over
what has none by these statistics, audits too. Who makes them false hides rows without a change of any. So an audit
reads all files without them, and compares. What files say of single pages is not compared: no job of ours goes by it
(``recount.sessions``), but Sparks of others do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileSystem, LocalFileSystem

from recount.audit.ledger_rules import LEDGER
from recount.audit.table_logs import correction_places, output_places, side_places
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.core.verdict import Difference

_FILE, _ROWS = "__file", "__rows"
_BOUNDS = ("least", "most")


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
    """That of the file ``name`` of the table at ``path``; the log may name one that lies elsewhere."""
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
    """What must not hold; null where the log says nothing."""
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
