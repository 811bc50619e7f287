"""What the log of a Delta table says of its files: how many rows, and of each column the least and greatest value.

Readers that look for some rows pass over files that have none by these statistics, audits too. Who makes them false
hides rows without a change of any. So an audit reads all files without them, and compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import unquote

import polars as pl
from deltalake import DeltaTable

from recount.audit.ledger_rules import LEDGER
from recount.audit.table_places import correction_places, output_places, side_places
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.core.verdict import Difference

_FILE, _ROWS = "__file", "__rows"


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
            expected="a log that says of its files what is in them",
            actual=f"{len(files)} files have other rows, nulls or values",
            cause="readers that look for some rows pass over such a file: somebody has changed the table's log",
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
    beside = by_file.join(_in_files(by_file[_FILE].to_list(), kinds), on=_FILE, how="left")
    # of a file without rows, as Spark leaves them where it deletes some, nothing was read
    beside = beside.with_columns(pl.col(_ROWS).fill_null(0))
    is_false = pl.any_horizontal(_contradictions(beside.schema, kinds))
    return sorted(beside.filter(is_false.fill_null(value=False))["path"].to_list())


def _place(path: str, name: str) -> str:
    """That of the file ``name`` of the table at ``path``; the log may name one that lies elsewhere."""
    name = unquote(name)
    lies_elsewhere = name.startswith("/") or "://" in name
    return (name if lies_elsewhere else f"{path.rstrip('/')}/{name}").removeprefix("file://")


def _is_exact(kind: pl.DataType) -> bool:
    return kind.is_integer() or kind in (pl.String(), pl.Boolean())


def _in_files(files: list[str], kinds: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Of each file the number of rows and, by column, of nulls, and the least and greatest value."""
    rows = pl.scan_parquet(
        files,
        schema=dict(kinds),
        use_statistics=False,
        include_file_paths=_FILE,
        missing_columns="insert",
        extra_columns="ignore",
    )
    found = [
        one
        for name in kinds
        for one in (
            pl.col(name).null_count().alias(f"{name} nulls"),
            pl.col(name).min().alias(f"{name} least"),
            pl.col(name).max().alias(f"{name} most"),
        )
    ]
    return rows.group_by(_FILE).agg(pl.len().alias(_ROWS), *found).collect(engine="streaming")


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
