"""The raw log of a topic from its Delta archive, alone or with the newer part from Kafka, as one log.

Delta's statistics say which files hold which offsets, so a range of offsets costs the files of that range. A task reads
those of its partitions by Arrow, without Spark's reader and without a shuffle. Files whose offsets overlap, as those of
one batch and several dates do, are sorted together: a task's memory is one batch of one partition. A task goes through
a whole partition: first the range that only the archive has, then the one from Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import PyFileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.recompute.raw_log import (
    COLUMNS,
    HEADERS,
    SCHEMA,
    KafkaLog,
    Log,
    Ranges,
    RawLog,
    RecordsAtHand,
    headers_never_null,
    null_headers,
)
from recount.tables.places import Tables

_BATCH_ROWS = 50_000
_STATISTICS = ("min.partition", "max.partition", "min.offset", "max.offset")
_ARROW_TYPES = (pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary())
_HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
_ARCHIVE_ONLY = -1
"""The offset of a row that stands for a partition of which nothing is read from Kafka."""


@dataclass(frozen=True, kw_only=True)
class ArchiveLog:
    """The Delta archives of topics."""

    tables: Tables

    def read(
        self, session: SparkSession, topic: str, ranges: Ranges, *, with_key: bool = True, with_headers: bool = False
    ) -> RawLog:
        """From the files that hold ``ranges``; where Delta does not say which do, Spark reads, shuffles and sorts."""
        spans = {partition: span for partition, span in ranges.items() if span[0] < span[1]}
        if not spans:
            return RawLog(frame=session.createDataFrame([], SCHEMA + (HEADERS if with_headers else "")))
        path = self.tables.archive(topic)
        stretches = self.stretches(topic, spans)
        if stretches is None:
            return _by_spark(session.read.format("delta").load(path), spans, with_headers)
        rows = [(one.partition, one.start, one.end, one.runs) for one in stretches]
        plan = session.createDataFrame(rows, "partition int, start long, end long, runs array<array<string>>")
        return RawLog(frame=plan, reading=ReadFiles(path=path, with_key=with_key, with_headers=with_headers))

    def stretches(self, topic: str, spans: Ranges) -> list[Stretch] | None:
        """The files that hold ``spans``, by partition; None where Delta does not say which do."""
        files = _files(self.tables.archive(topic))
        if files is None:
            return None
        return [
            Stretch(partition=p, start=start, end=end, runs=runs_of_files(files, p, start, end))
            for p, (start, end) in sorted(spans.items())
        ]


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Offsets ``start`` <= o < ``end`` of ``partition``, and the files that can hold them (``runs_of_files``)."""

    partition: int
    start: int
    end: int
    runs: list[list[str]]


def _files(path: str) -> pl.DataFrame | None:
    """The table's files with the least and largest partition and offset in each; None where that is not known."""
    table = DeltaTable(path)
    files = pl.DataFrame(table.get_add_actions(flatten=True))
    # a newer protocol may mean that rows of a file are deleted, of which the file itself says nothing
    if table.protocol().min_reader_version > 1 or not set(_STATISTICS) <= set(files.columns):
        return None
    known = files.select("path", *_STATISTICS)
    return None if known.drop_nulls().height < known.height else known


def runs_of_files(files: pl.DataFrame, partition: int, start: int, end: int) -> list[list[str]]:
    """The paths of the files that can hold offsets ``start`` <= o < ``end`` of ``partition``, in offset order.

    Files that overlap are in one run; a run's offsets are all before those of the next.
    """
    mine = files.filter(
        pl.col("min.partition") <= partition,
        pl.col("max.partition") >= partition,
        pl.col("min.offset") < end,
        pl.col("max.offset") >= start,
    ).sort("min.offset", "path")
    reached = pl.col("max.offset").cum_max().shift(1)
    begins = (pl.col("min.offset") > reached).fill_null(True)
    return mine.group_by(begins.cum_sum().alias("run"), maintain_order=True).agg("path")["path"].to_list()


@dataclass(frozen=True, kw_only=True)
class ReadFiles:
    """One task's first pass: from rows (partition, start, end, runs of files) to the records they name."""

    path: str
    with_key: bool
    with_headers: bool = False

    def __call__(self, plans: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of at most 50,000 records, those of a partition in offset order."""
        for plan in plans:
            for stretch in plan.to_pylist():
                yield from self.records(Stretch(**stretch))

    def records(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        """Records of ``stretch``, in offset order."""
        storage = PyFileSystem(DeltaStorageHandler(self.path))
        for files in stretch.runs:
            records = self._read(storage, files, stretch.partition, stretch.start, stretch.end)
            yield from records.to_batches(max_chunksize=_BATCH_ROWS)

    def _read(self, storage: PyFileSystem, files: Sequence[str], partition: int, start: int, end: int) -> pa.Table:
        types = dict(zip(COLUMNS, _ARROW_TYPES, strict=True)) | ({"headers": _HEADERS} if self.with_headers else {})
        stored = [name for name in types if self.with_key or name != "key"]
        tables = [pq.ParquetFile(storage.open_input_file(file)).read(columns=stored) for file in files]
        records = pa.concat_tables(tables)
        offset = records.column("offset")
        inside = pc.and_(pc.greater_equal(offset, start), pc.less(offset, end))
        mine = records.filter(pc.and_(inside, pc.equal(records.column("partition"), partition)))
        if not self.with_key:
            mine = mine.append_column("key", pa.nulls(mine.num_rows, pa.binary()))
        typed = mine.select(list(types)).cast(pa.schema(types.items()))
        return typed.sort_by("offset")


def _by_spark(archived: DataFrame, spans: Ranges, with_headers: bool) -> RawLog:
    held = [
        (F.col("partition") == partition) & (F.col("offset") >= start) & (F.col("offset") < end)
        for partition, (start, end) in spans.items()
    ]
    columns = [*map(F.col, COLUMNS), *([headers_never_null()] if with_headers else [])]
    rows = archived.where(reduce(lambda one, other: one | other, held)).select(*columns)
    ordered = rows.repartition(len(spans), "partition").sortWithinPartitions("partition", "offset")
    return RawLog(frame=ordered, reading=null_headers if with_headers else None)


@dataclass(frozen=True, kw_only=True)
class SplitLog:
    """Each offset from ``kafka`` while it is there, else from ``archive``; what Kafka has all of, from ``whole``.

    ``since`` says of the partitions of a topic, each with the offsets to be read, from which offset on Kafka is read.
    Where that is before the last of these offsets, Kafka must have a committed record there: a task that gets no
    record does not know whose archive to read. It is asked at every reading, for retention goes on meanwhile.
    """

    kafka: KafkaLog
    archive: ArchiveLog
    whole: Log
    since: Callable[[str, Ranges], Mapping[int, int]]

    def read(
        self, session: SparkSession, topic: str, ranges: Ranges, *, with_key: bool = True, with_headers: bool = False
    ) -> RawLog | RecordsAtHand:
        """One task per partition that Kafka has a part of."""
        since = self.since(topic, ranges)
        older = {p: (start, min(end, since[p])) for p, (start, end) in ranges.items() if start < min(end, since[p])}
        newer = {p: (max(start, since[p]), end) for p, (start, end) in ranges.items() if max(start, since[p]) < end}
        if not older:
            return self.whole.read(session, topic, newer, with_key=with_key, with_headers=with_headers)
        on_kafka = self.kafka.read(session, topic, newer, with_key=with_key, with_headers=with_headers)
        if not newer:
            return self.archive.read(session, topic, older, with_key=with_key, with_headers=with_headers)
        stretches = self.archive.stretches(topic, older)
        if stretches is None:
            archived = self.archive.read(session, topic, older, with_key=with_key, with_headers=with_headers)
            both = archived.frame.unionByName(on_kafka.frame).repartition(len(ranges), "partition")
            return RawLog(frame=both.sortWithinPartitions("partition", "offset"), reading=on_kafka.reading)
        headers: list[object] = [[]] if with_headers else []
        stand_ins = [(p, _ARCHIVE_ONLY, 0, None, None, *headers) for p in older.keys() - newer.keys()]
        only_archived = session.createDataFrame(stand_ins, SCHEMA + (HEADERS if with_headers else ""))
        first = _ArchiveFirst(
            stretches={one.partition: one for one in stretches},
            files=ReadFiles(path=self.archive.tables.archive(topic), with_key=with_key, with_headers=with_headers),
        )
        return RawLog(frame=on_kafka.frame.union(only_archived), reading=on_kafka.reading).before(first)


@dataclass(frozen=True, kw_only=True)
class _ArchiveFirst:
    """One task's pass: before the first record of a partition come those of its range in the archive."""

    stretches: Mapping[int, Stretch]
    files: ReadFiles

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begun: set[int] = set()
        for batch in batches:
            for partition in set(pc.unique(batch.column("partition")).to_pylist()) - begun:
                begun.add(partition)
                if partition in self.stretches:
                    yield from self.files.records(self.stretches[partition])
            # Spark puts the rows that stand for a partition and records of Kafka into different tasks
            if batch.num_rows and batch.column("offset")[0].as_py() != _ARCHIVE_ONLY:
                yield batch
