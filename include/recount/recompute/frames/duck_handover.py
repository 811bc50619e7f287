"""Frames on their way from Spark, whose tasks read and decode the log, and back to it, where they are compared.

Few rows pass through this process. Many lie for a while as files in a folder that this process and Spark's tasks reach.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from math import ceil
from typing import TypeVar

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem, FileType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from recount.recompute.frames.duck_database import DEFAULT_MEMORY, Database
from recount.recompute.frames.duck_frames import Frame, frame_of, frame_of_files
from recount.recompute.raw_log import Pass, RawLog, in_one_task

_K = TypeVar("_K")
SMALL_BYTES = 8 * 2**20
"""Rows of fewer bytes lie in Spark's plans."""
_ROWS_OF_A_TASK = 50_000
_NUMBER = "number"
_LEFT_BEHIND = timedelta(days=1)
"""Files so old are of a process that has died."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """Limits of a recompute: ``memory`` before it spills, and a ``folder`` that Spark's tasks reach too.

    Through files in the folder go frames of many rows; without one all go through this process.
    """

    memory: str = DEFAULT_MEMORY
    folder: str | None = None


@dataclass(kw_only=True)
class Handover:
    """Hands frames from ``session`` to ``database`` and back; many rows by files in ``folder``, where there is one."""

    session: SparkSession
    database: Database
    folder: str | None = None
    _name: str = field(default_factory=lambda: uuid.uuid4().hex)
    _files: int = 0

    @classmethod
    def of(cls, session: SparkSession, room: Room) -> Handover:
        """To a new database in ``room``."""
        return cls(session=session, database=Database(room.memory), folder=room.folder)

    def taken(self, rows: DataFrame | pa.Table) -> Frame:
        """``rows`` of Spark, which are computed now, or of this process as a frame."""
        if isinstance(rows, pa.Table):
            return frame_of(self.database, [rows], rows.schema)
        schema = to_arrow_schema(rows.schema)
        if self.folder is None:
            return frame_of(self.database, [_typed(rows.toArrow(), schema)], schema)
        place = self._place()
        rows.toDF(*map(str, range(len(rows.columns)))).write.parquet(place)
        files, path = _files_at(place)
        found = ds.dataset(path, filesystem=files, format="parquet")
        # by default Arrow reads up to 64 batches of 131,072 rows ahead of a database that spills
        batches = found.to_batches(batch_size=_ROWS_OF_A_TASK, batch_readahead=1, fragment_readahead=1)
        return frame_of(self.database, (_typed(one, schema) for one in batches), schema)

    def passed(self, raw: RawLog, schema: T.StructType, *passes: Pass) -> Frame:
        """The output of ``passes`` over ``raw``, computed now. Tasks write many rows to files, where they stay."""
        if self.folder is None:
            return self.taken(raw.through(schema, *passes))
        place, kinds = self._place(), to_arrow_schema(schema)
        files, path = _files_at(place)
        files.create_dir(path)
        written = raw.through("file string", *passes, _Writing(place=place, schema=kinds)).collect()
        return frame_of_files(self.database, files, sorted(row.file for row in written), kinds)

    def given(self, frame: Frame) -> DataFrame:
        """``frame`` as rows of Spark."""
        schema, batches = frame.schema, frame.batches()
        rows, size = list[pa.RecordBatch](), 0
        for batch in batches:
            rows.append(batch)
            size += batch.nbytes
            if self.folder is not None and size > SMALL_BYTES:
                return self._by_file(chain(rows, batches), schema)
        return local_rows(self.session, pa.Table.from_batches(rows, frame.arrow_schema), schema)

    def _by_file(self, batches: Iterable[pa.RecordBatch], schema: T.StructType) -> DataFrame:
        """The same rows, dealt out to tasks: Spark would give one task a file of so few bytes, however many rows."""
        place, numbered = self._place(), _numbered(schema).add(_NUMBER, T.LongType())
        files, path = _files_at(place)
        files.create_dir(path)
        kinds, rows = to_arrow_schema(numbered), 0
        with pq.ParquetWriter(f"{path}/part.parquet", kinds, filesystem=files, compression="zstd") as writer:
            for batch in batches:
                numbers = pa.array(range(rows, rows + batch.num_rows), pa.int64())
                writer.write_table(_typed(batch.append_column(_NUMBER, numbers), kinds))
                rows += batch.num_rows
        found = self.session.read.schema(numbered).parquet(place)
        return found.repartition(ceil(rows / _ROWS_OF_A_TASK), _NUMBER).drop(_NUMBER).toDF(*schema.names)

    def all_given(self, frames: Mapping[_K, Frame]) -> Given[_K]:
        """``frames`` as rows of Spark, each when it is first read."""
        return Given(frames=frames, given=self.given)

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
class Given(Mapping[_K, DataFrame]):
    """``frames`` as rows of Spark, each ``given`` when it is first read."""

    frames: Mapping[_K, Frame]
    given: Callable[[Frame], DataFrame]
    _known: dict[_K, DataFrame] = field(default_factory=dict)

    def __getitem__(self, name: _K) -> DataFrame:
        if name not in self._known:
            self._known[name] = self.given(self.frames[name])
        return self._known[name]

    def __iter__(self) -> Iterator[_K]:
        return iter(self.frames)

    def __len__(self) -> int:
        return len(self.frames)


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


def local_rows(session: SparkSession, rows: pa.Table, schema: T.StructType) -> DataFrame:
    """``rows`` of this process as rows of Spark.

    Spark fails at nested columns without a row, and takes a batch of Arrow without one, as an empty file of a table is,
    for the end: the rows behind it would be lost. And it looks columns up by their bare names, where a dot is a step.
    """
    numbered = rows.rename_columns([str(at) for at in range(rows.num_columns)]).combine_chunks()
    frame = session.createDataFrame(numbered if rows.num_rows else [], _numbered(schema))
    return in_one_task(frame.toDF(*schema.names))


def _clean(folder: str) -> None:
    files, path = _files_at(folder)
    oldest = datetime.now(UTC) - _LEFT_BEHIND
    for one in files.get_file_info(FileSelector(path, allow_not_found=True)):
        if one.type == FileType.Directory and one.mtime is not None and one.mtime < oldest:
            files.delete_dir(one.path)


def _numbered(schema: T.StructType) -> T.StructType:
    return T.StructType([T.StructField(str(at), one.dataType) for at, one in enumerate(schema)])


def _typed(rows: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    return table.rename_columns(schema.names).cast(schema)


def _files_at(place: str) -> tuple[FileSystem, str]:
    found: tuple[FileSystem, str] = FileSystem.from_uri(place.replace("s3a://", "s3://", 1))
    return found
