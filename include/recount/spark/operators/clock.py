"""Time as one operator sees it: stream times of its source partitions, and the frontier over them.

Every operator that judges time has a clock of its own, because a record with a null key does not advance the stream
time of an operator that needs the key, while it advances those of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

import polars as pl

from recount.spark.operators.keyed_rows import KeyedRows
from recount.spark.operators.rows import ENTRY, OFFSET, PARTITION, STREAM_TIME, TIMESTAMP, TOPIC

Partition = tuple[str, int]

READ_SCHEMA: dict[str, pl.DataType] = {
    TOPIC: pl.String(),
    PARTITION: pl.Int32(),
    OFFSET: pl.Int64(),
    TIMESTAMP: pl.Int64(),
    STREAM_TIME: pl.Int64(),
}
_FRONTIER: Partition = ("", -1)
"""Under this identity the clock remembers its frontier: partitions have names and numbers from 0."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One micro-batch: every good record that was ``read`` (``READ_SCHEMA``, each partition in offset order).

    ``known`` are all partitions that there are; ``awake`` those that hold the frontier back, for they are not idle.
    """

    read: pl.DataFrame
    known: Set[Partition]
    awake: Set[Partition]


@dataclass
class Clock:
    """The clock of one operator over the source ``topics`` that it waits for.

    ``delay_ms`` is how far behind the frontier the operators above let their results go. Call ``advance`` once a
    batch, before ``judged`` and ``frontier_ms`` are asked.
    """

    topics: frozenset[str]
    delay_ms: int = 0
    state: KeyedRows = field(init=False)
    before_ms: int | None = field(init=False, default=None)
    _frontier_ms: int | None = field(init=False, default=None)
    _settled_ms: int | None = field(init=False, default=None)
    _at: pl.DataFrame = field(init=False)

    def __post_init__(self) -> None:
        schema = {TOPIC: pl.String(), PARTITION: pl.Int32(), STREAM_TIME: pl.Int64()}
        self.state = KeyedRows(schema, [TOPIC, PARTITION])
        self._at = pl.DataFrame(schema=READ_SCHEMA)

    @property
    def frontier_ms(self) -> int | None:
        """The frontier after the batch, less the delay; it never falls back. ``before_ms`` is the one before it."""
        return self._frontier_ms

    @property
    def settled_ms(self) -> int | None:
        """What is older comes late from every partition, if at all; None while one of them has never spoken.

        Unlike the frontier it waits for idle partitions too: one that speaks again is on time by its own stream time.
        """
        return self._settled_ms

    def advance(self, batch: Batch, refused: pl.DataFrame | None = None) -> None:
        """Take the batch's records in; ``refused`` (``ENTRY``) have no key: they do not advance the stream time."""
        read = batch.read.filter(pl.col(TOPIC).is_in(self.topics))
        without = pl.DataFrame(schema={name: READ_SCHEMA[name] for name in ENTRY}) if refused is None else refused
        marked = without.select(ENTRY).unique().with_columns(pl.lit(True).alias("__refused"))
        carried = self.state.rows.rename({STREAM_TIME: "__carried"})
        timed = read.join(marked, on=ENTRY, how="left", maintain_order="left").join(
            carried, on=[TOPIC, PARTITION], how="left", maintain_order="left"
        )
        counted = pl.when(pl.col("__refused").is_null()).then(pl.col(TIMESTAMP))
        running = counted.cum_max().forward_fill().over(TOPIC, PARTITION)
        self._at = timed.with_columns(pl.max_horizontal(running, "__carried").alias(STREAM_TIME)).select(
            list(READ_SCHEMA)
        )
        last = self._at.group_by(TOPIC, PARTITION, maintain_order=True).agg(pl.col(STREAM_TIME).last())
        self.state.put(last.filter(pl.col(STREAM_TIME).is_not_null()))
        self._advance_frontier(batch)

    def judged(self, rows: pl.DataFrame) -> pl.Series:
        """The stream time by which each of ``rows`` is judged: of its own partition at its own offset, null if derived.

        A row that entered in an earlier batch (an operator above held it back) is judged as it stood then.
        """
        known = self._at.select(*ENTRY, pl.col(STREAM_TIME).alias("__judged"))
        joined = rows.select(*ENTRY, STREAM_TIME).join(known, on=ENTRY, how="left", maintain_order="left")
        return joined.select(pl.coalesce("__judged", STREAM_TIME).alias(STREAM_TIME)).to_series()

    def _advance_frontier(self, batch: Batch) -> None:
        times = {(topic, partition): ms for topic, partition, ms in self.state.rows.iter_rows()}
        self.before_ms = times.get(_FRONTIER)
        self._frontier_ms = self.before_ms
        reached = self._slowest(batch.awake, times)
        if reached is not None:
            self._frontier_ms = reached if self.before_ms is None else max(reached, self.before_ms)
            topic, partition = _FRONTIER
            self.state.put(pl.DataFrame([(topic, partition, self._frontier_ms)], self.state.schema, orient="row"))
        self._settled_ms = self._slowest(batch.known, times)

    def _slowest(self, partitions: Iterable[Partition], times: Mapping[Partition, int]) -> int | None:
        """The smallest stream time of those ``partitions`` that are read here, less the delay; None if one has none."""
        waited = [times.get(source) for source in partitions if source[0] in self.topics]
        known = [ms for ms in waited if ms is not None]
        return min(known) - self.delay_ms if known and len(known) == len(waited) else None
