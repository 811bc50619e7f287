"""Rows on their way from Spark, whose tasks read and decode the log, to the database of an audit.

Few rows pass through this process. Many lie for a while as files in a folder that this process and Spark's tasks reach.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem, FileType
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from recount.recompute.frames.duck_database import DEFAULT_MEMORY, Database
from recount.recompute.frames.duck_frames import Frame, frame_of, frame_of_files
from recount.recompute.raw_log import Pass, RawLog, RecordsAtHand

_ROWS_OF_A_TASK = 50_000
_LEFT_BEHIND = timedelta(days=1)
"""Files so old are of a process that has died."""


@dataclass(kw_only=True)
class Handover:
    """Hands rows of ``session`` to ``database``; many by files in ``folder``, where there is one."""

    session: SparkSession
    database: Database
    folder: str | None = None
    _name: str = field(default_factory=lambda: uuid.uuid4().hex)
    _files: int = 0

    @classmethod
    def of(cls, session: SparkSession, memory: str = DEFAULT_MEMORY, folder: str | None = None) -> Handover:
        """To a new database, which takes so much ``memory`` before it spills.

        Spark's tasks must reach the ``folder`` too; without one all rows go through this process.
        """
        return cls(session=session, database=Database(memory), folder=folder)

    def passed(self, raw: RawLog | RecordsAtHand, schema: T.StructType, *passes: Pass) -> Frame:
        """The output of ``passes`` over ``raw``, computed now. Tasks write many rows to files, where they stay."""
        kinds = to_arrow_schema(schema)
        if isinstance(raw, RecordsAtHand):
            return frame_of(self.database, (_typed(one, kinds) for one in raw.through(*passes)), kinds)
        if self.folder is None:
            return frame_of(self.database, [_typed(raw.through(schema, *passes).toArrow(), kinds)], kinds)
        place = self._place()
        files, path = _files_at(place)
        files.create_dir(path)
        written = raw.through("file string", *passes, _Writing(place=place, schema=kinds)).collect()
        return frame_of_files(self.database, files, sorted(row.file for row in written), kinds)

    def close(self) -> None:
        """Remove the files."""
        if self.folder is not None and self._files:
            files, path = _files_at(f"{self.folder}/{self._name}")
            files.delete_dir(path)

    def _place(self) -> str:
        assert self.folder is not None
        if not self._files:
            _clean(self.folder)
        self._files += 1
        return f"{self.folder}/{self._name}/{self._files}"


@dataclass(frozen=True, kw_only=True)
class _Writing:
    """One task's pass: writes its rows to a new file in ``place``, and says which. A task can run twice."""

    place: str
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files, path = _files_at(self.place)
        name, rows = f"{path}/{uuid.uuid4().hex}.parquet", 0
        with pq.ParquetWriter(
            name, self.schema, filesystem=files, compression="zstd", write_statistics=False
        ) as writer:
            for some in _many(batches):
                writer.write_table(_typed(pa.Table.from_batches(some), self.schema))
                rows += 1
        if rows:
            yield pa.record_batch([pa.array([name])], names=["file"])


def _many(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """``batches`` together, so that a group of rows in a file has some more than a batch of Spark."""
    some, rows = list[pa.RecordBatch](), 0
    for batch in batches:
        some.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS_OF_A_TASK:
            yield some
            some, rows = [], 0
    if some:
        yield some


def _clean(folder: str) -> None:
    files, path = _files_at(folder)
    oldest = datetime.now(UTC) - _LEFT_BEHIND
    for one in files.get_file_info(FileSelector(path, allow_not_found=True)):
        if one.type == FileType.Directory and one.mtime is not None and one.mtime < oldest:
            files.delete_dir(one.path)


def _typed(rows: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    return table.rename_columns(schema.names).cast(schema)


def _files_at(place: str) -> tuple[FileSystem, str]:
    found: tuple[FileSystem, str] = FileSystem.from_uri(place.replace("s3a://", "s3://", 1))
    return found
