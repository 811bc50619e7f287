"""Spark's own checkpoint, read: which offsets a batch spans and the time that was recorded for it.

Spark writes ``offsets/<batch>`` before it runs the batch and plans a replay from it, so range and time are the same in
every try. Files are read through Hadoop's file system, wherever the checkpoint is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from recount.runtime.errors import Terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Partition = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class BatchRange:
    """The input of batch ``batch``: offsets ``start`` <= o < ``end`` per partition, at ``timestamp_ms``.

    Of these ``set_aside`` names the offsets that somebody has ordered to set aside.
    """

    batch: int
    timestamp_ms: int
    start: Mapping[Partition, int]
    end: Mapping[Partition, int]
    set_aside: Mapping[Partition, frozenset[int]] = field(default_factory=dict)


class Planned(Protocol):
    """Where the batches of a query are planned; ``identity`` is the same over restarts."""

    @property
    def identity(self) -> str: ...

    def range_of(self, batch: int) -> BatchRange: ...


@dataclass(frozen=True, kw_only=True)
class OneBatch:
    """The plan of a single batch, whose ``span`` is known otherwise."""

    identity: str
    span: BatchRange

    def range_of(self, batch: int) -> BatchRange:  # noqa: ARG002 - it has one
        return self.span


class Checkpoint:
    """The checkpoint of one query with ``sources`` Kafka sources."""

    def __init__(self, session: SparkSession, location: str, sources: int = 1) -> None:
        self._location = location
        self._sources = sources
        jvm: Any = session._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._to_text = jvm.org.apache.commons.io.IOUtils.toString
        configuration = session._jsc.hadoopConfiguration()
        self._files = self._path(location).getFileSystem(configuration)

    @property
    def folder(self) -> str:
        return self._location

    @property
    def identity(self) -> str:
        """The query id, the same over restarts and another one for another checkpoint; known once the query started."""
        text = self._read("metadata")
        if text is None:
            raise Terminal.of("no-checkpoint", given=self._location)
        return str(json.loads(text)["id"])

    def last_planned(self) -> BatchRange | None:
        """The newest batch that a query has planned here, done or not; None before the first.

        Refuses, before Spark does in other words, a checkpoint of a query with more or fewer sources.
        """
        planned = self._files.globStatus(self._path(f"{self._location}/offsets/[0-9]*")) or ()
        names = [str(file.getPath().getName()) for file in planned]
        batches = [int(name) for name in names if name.isdigit()]
        return self.range_of(max(batches)) if batches else None

    def range_of(self, batch: int) -> BatchRange:
        """The offsets and the recorded time of ``batch``, which must be running or among the last 100."""
        timestamp_ms, end = self._planned(batch)
        if batch:
            _, start = self._planned(batch - 1)
        else:
            start = _merged(self._lines(f"sources/{number}/0")[-1] for number in range(self._sources))
        return BatchRange(batch=batch, timestamp_ms=timestamp_ms, start=_with_new(start, end), end=end)

    def _planned(self, batch: int) -> tuple[int, dict[Partition, int]]:
        _version, metadata, *sources = self._lines(f"offsets/{batch}")
        if len(sources) != self._sources:
            raise Terminal.of(
                "checkpoint-of-another-query",
                given=f"{self._location}, Kafka sources: {len(sources)}",
                sources=self._sources,
            )
        return int(json.loads(metadata)["batchTimestampMs"]), _merged(sources)

    def _lines(self, name: str) -> list[str]:
        text = self._read(name)
        if text is None:
            raise Terminal.of("checkpoint-incomplete", given=f"{self._location}/{name}")
        return text.strip().split("\n")

    def _read(self, name: str) -> str | None:
        path = self._path(f"{self._location}/{name}")
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return str(self._to_text(stream, "UTF-8"))
        finally:
            stream.close()


def _offsets(text: str) -> dict[Partition, int]:
    topics: dict[str, dict[str, int]] = json.loads(text[text.index("{") :])
    return {
        (topic, int(partition)): offset
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


def _merged(texts: Iterable[str]) -> dict[Partition, int]:
    """The offsets of all sources; none has a topic of another."""
    return {partition: offset for text in texts for partition, offset in _offsets(text).items()}


def _with_new(start: Mapping[Partition, int], end: Mapping[Partition, int]) -> dict[Partition, int]:
    """A partition that was added since the last batch is read from its first record."""
    return {partition: start.get(partition, 0) for partition in end}
