"""The fate of every record: the late ledger, and one fate for each place in the log."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from recount.recompute.operators.log_rows import OFFSET, PARTITION, PLACE, STREAM_TIME, TIME, TOPIC
from recount.recompute.operators.log_stateless import REASON
from recount.recompute.operators.log_tables import UNREAD_SCHEMA

FATES = ("counted", "late", "deduplicated", "null value", "null key", "filtered", "waiting")
"""Where operators differ about a record, the first of these holds."""
DEAD_LETTERED = "dead-lettered"
_LATE = (
    "topic string, partition int, offset long, timestamp_ms long, stream_time_ms long, key string, "
    "window_start long, window_end long, margin_ms long"
)


class Journal:
    """Filled by the operators as the topology is walked; nothing is computed before it is read."""

    def __init__(self) -> None:
        self._late: list[DataFrame] = []
        self._notes: list[DataFrame] = []
        self._unread: list[DataFrame] = []
        self._raised: list[DataFrame] = []

    def note(self, rows: DataFrame, fate: Column) -> None:
        """``fate`` of the rows that lie in the log, one of ``FATES``; null says nothing."""
        said = rows.where(F.col(OFFSET).isNotNull()).select(*PLACE, fate.alias("fate"))
        self._notes.append(said.where(F.col("fate").isNotNull()))

    def late_for(self, rows: DataFrame, key: Column, margin: Column, start: Column, end: Column) -> None:
        """Late ``rows``, each for the window from ``start`` to ``end``, null for a join or a deduplication."""
        self._late.append(
            rows.select(
                F.col(TOPIC).alias("topic"),
                F.col(PARTITION).alias("partition"),
                F.col(OFFSET).alias("offset"),
                F.col(TIME).alias("timestamp_ms"),
                F.col(STREAM_TIME).alias("stream_time_ms"),
                key.cast("string").alias("key"),
                start.cast("long").alias("window_start"),
                end.cast("long").alias("window_end"),
                margin.cast("long").alias("margin_ms"),
            )
        )

    def set_aside(self, rows: DataFrame) -> None:
        """The records behind those of ``rows`` that have a ``REASON``: for them a function raised."""
        self._raised.append(rows.where(F.col(REASON).isNotNull()).select(*PLACE, REASON))

    def with_raised(self, log: DataFrame) -> DataFrame:
        """The decoded ``log``, with the ``reason`` of records for which functions raised: the first of several."""
        if not self._raised:
            return log
        first = reduce(DataFrame.union, self._raised).groupBy(*PLACE).agg(F.min(REASON).alias(REASON))
        marked = log.join(first, list(PLACE), "left")
        return marked.withColumn("reason", F.coalesce("reason", REASON)).drop(REASON)

    def unread_by(self, rows: DataFrame) -> None:
        """The changes of a table that records would have found, had they been read (``UNREAD_SCHEMA``)."""
        self._unread.append(rows)

    def unread(self, log: DataFrame) -> DataFrame:
        """All of them; ``log`` only lends its session."""
        nothing = log.sparkSession.createDataFrame([], UNREAD_SCHEMA)
        return reduce(DataFrame.unionByName, self._unread, nothing)

    def late(self, log: DataFrame) -> DataFrame:
        """The late ledger; ``log`` only lends its session."""
        nothing = log.sparkSession.createDataFrame([], _LATE)
        return reduce(DataFrame.unionByName, self._late, nothing)

    def fates(self, log: DataFrame) -> DataFrame:
        """Topic, partition, offset and fate of every record of the decoded ``log``."""
        ranks = F.create_map(*(part for rank, fate in enumerate(FATES) for part in (F.lit(fate), F.lit(rank))))
        read = log.select(*PLACE, F.lit(True).alias("__read"), F.lit(None).cast("int").alias("__rank"), "reason")
        notes = [
            one.select(*PLACE, F.lit(False), ranks[F.col("fate")], F.lit(None).cast("string")) for one in self._notes
        ]
        told = reduce(DataFrame.union, notes, read).groupBy(*PLACE)
        found = told.agg(*(F.max(name).alias(name) for name in ("__read", "reason")), F.min("__rank").alias("__rank"))
        fate = F.array(*map(F.lit, FATES))[F.coalesce("__rank", F.lit(FATES.index("filtered")))]
        return found.where("__read").select(
            F.col(TOPIC).alias("topic"),
            F.col(PARTITION).alias("partition"),
            F.col(OFFSET).alias("offset"),
            F.when(F.col("reason").isNotNull(), DEAD_LETTERED).otherwise(fate).alias("fate"),
        )
