"""Delta tables as frames of Spark: a small one comes through this process.

Spark's reader runs jobs of its own for every query on a Delta table (which files, which version, its checkpoint): a
tenth to a half of a second each, whatever the size of the table.
"""

from __future__ import annotations

import json

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from recount.recompute.once import in_one_task

SMALL_BYTES = 2 * 2**20
"""Of the files of a table, compressed. Its rows lie in the plans of all queries that read it."""


def delta_frame(session: SparkSession, path: str) -> DataFrame:
    """The rows of the newest version of the table at ``path``, with the columns that Spark knows it by."""
    table = DeltaTable(path)
    if not is_small(table):
        return session.read.format("delta").load(path)
    schema = T.StructType.fromJson(json.loads(table.schema().to_json()))
    return local_frame(session, table.to_pyarrow_table(), schema)


def local_frame(session: SparkSession, rows: pa.Table, schema: T.StructType) -> DataFrame:
    """``rows`` of this process as a frame.

    Spark fails at nested columns without a row, and takes a batch of Arrow without one, as an empty file of a table is,
    for the end: the rows behind it would be lost.
    """
    return in_one_task(session.createDataFrame(rows.combine_chunks() if rows.num_rows else [], schema))


def is_small(table: DeltaTable) -> bool:
    """Whether the rows may pass through this process, and its files are all that there is to read."""
    return table.protocol().min_reader_version <= 1 and bytes_of(table) <= SMALL_BYTES


def bytes_of(table: DeltaTable) -> int:
    """Of the files of its newest version."""
    return sum(int(size) for size in table.get_add_actions().column("size_bytes").to_pylist())
