"""Delta tables as frames of Spark, a small one through this process, and the removal of files with deleted rows.

Spark's reader runs jobs of its own for every query on a Delta table (which files, which version, its checkpoint): a
tenth to a half of a second each, whatever the size of the table.

Delta keeps files that hold deleted rows, and its log keeps the least and largest values; ``purge`` removes both. A
reader of an earlier version of the table, or one that began before, finds its files removed and reads again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileType, PyFileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from recount.declare.columns import BATCH, GENERATION
from recount.recompute.raw_log import in_one_task

SMALL_BYTES = 2 * 2**20
"""Of the files of a table, compressed. Its rows lie in the plans of all queries that read it."""
_LOG = "_delta_log"
Order = tuple[int, int]
_NO_CLEANING = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def delta_frame(session: SparkSession, path: str) -> DataFrame:
    """The rows of the newest version of the table at ``path``, with the columns that Spark knows it by."""
    table = DeltaTable(path)
    if not is_small(table):
        return session.read.format("delta").load(path)
    schema = T.StructType.fromJson(json.loads(table.schema().to_json()))
    return local_frame(session, table.to_pyarrow_table(), schema)


def rows_between(path: str, after: Order | None, last: Order) -> tuple[Iterator[pa.RecordBatch], pa.Schema]:
    """The rows of the table at ``path`` of batches ``after`` one (None: all) up to ``last``, some at a time."""
    rows = DeltaTable(path).to_pyarrow_dataset()
    wanted = ~_is_after(last) if after is None else _is_after(after) & ~_is_after(last)
    few = {"batch_readahead": 1, "fragment_readahead": 1}
    return rows.to_batches(filter=wanted, **few), rows.schema


def _is_after(order: Order) -> pc.Expression:
    generation, batch = order
    same = (pc.field(GENERATION) == generation) & (pc.field(BATCH) > batch)
    return (pc.field(GENERATION) > generation) | same


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
    """Return the bytes of the files of its newest version."""
    return sum(int(size) for size in table.get_add_actions().column("size_bytes").to_pylist())


def purge_files(path: str) -> None:
    """Remove every file that the newest version of the table at ``path`` does not have. Its writer must stand still."""
    DeltaTable(path).vacuum(
        retention_hours=0,
        enforce_retention_duration=False,
        dry_run=False,
        full=True,
        post_commithook_properties=_NO_CLEANING,
    )


def purge(path: str, may_forget: Callable[[int], None] = lambda _: None) -> None:
    """The same, and every commit before the newest: a checkpoint takes their place.

    A commit holds the least and largest value of each column of a file, and what was deleted by which condition.
    ``may_forget`` is called with the newest version before any commit goes. A repetition changes nothing.
    """
    purge_files(path)
    table = DeltaTable(path)
    version = table.version()
    may_forget(version)
    table.create_checkpoint()
    files = PyFileSystem(DeltaStorageHandler(path))
    for file in files.get_file_info(FileSelector(_LOG, recursive=True)):
        if file.type == FileType.File and _is_before(file.base_name, version):
            files.delete_file(file.path)


def _is_before(name: str, version: int) -> bool:
    """Whether a file of the log is of a version before ``version``; Hadoop's checksum of a file is named after it."""
    number = name.lstrip(".").split(".")[0]
    return number.isdigit() and int(number) < version
