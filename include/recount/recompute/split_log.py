"""The raw log of a topic of which Kafka has the newer part and its archive the older one, as one log.

A task goes through a whole partition: first the stretch that only the archive has, then the one from Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from recount.recompute.archive_log import ArchiveLog, ReadFiles, Stretch
from recount.recompute.log import HEADERS, SCHEMA, KafkaLog, Ranges, RawLog

_ARCHIVE_ONLY = -1
"""The offset of a row that stands for a partition of which nothing is read from Kafka."""


@dataclass(frozen=True, kw_only=True)
class SplitLog:
    """Each offset from ``kafka`` while it is there, else from ``archive``.

    ``since`` says of the partitions of a topic, each with the offsets to be read, from which offset on Kafka is read.
    Where that lies before the last of these offsets, Kafka must have a committed record there: a task that gets no
    record does not know whose archive to read. It is asked at every reading, for retention goes on meanwhile.
    """

    kafka: KafkaLog
    archive: ArchiveLog
    since: Callable[[str, Ranges], Mapping[int, int]]

    def read(
        self, session: SparkSession, topic: str, ranges: Ranges, *, with_key: bool = True, with_headers: bool = False
    ) -> RawLog:
        """One task per partition that Kafka has a part of."""
        since = self.since(topic, ranges)
        older = {p: (start, min(end, since[p])) for p, (start, end) in ranges.items() if start < min(end, since[p])}
        newer = {p: (max(start, since[p]), end) for p, (start, end) in ranges.items() if max(start, since[p]) < end}
        on_kafka = self.kafka.read(session, topic, newer, with_key=with_key, with_headers=with_headers)
        if not older:
            return on_kafka
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
    """One task's pass: before the first record of a partition come those of its stretch in the archive."""

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
