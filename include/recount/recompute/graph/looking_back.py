"""Lookups that see no further back than a history: as of when a row asks, and which versions can still be asked for.

A row asks as of its own time, but of no time before ``reached - history``. ``reached`` is how far time had come when
the row came to the lookup: the frontier after the batch before, or, of a record that comes as it is read, the stream
time of its own partition if that is later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from recount.core.joins import StreamTableJoin
from recount.recompute.columns import named
from recount.recompute.graph.frontiers import LEFT_IN, NONE_DUE
from recount.recompute.graph.judging import STREAM_TIME
from recount.recompute.graph.rows import ORDER, TIME

ASKED = "__asked_ms"
"""As of when a row looks its row of the table up."""


def reached_before(numbered: DataFrame, frontiers_ms: Sequence[int], first_ms: int) -> DataFrame:
    """``numbered`` with the later of ``STREAM_TIME`` and the frontier before the batch ``LEFT_IN``, as ``STREAM_TIME``.

    The frontier came from ``first_ms`` to ``frontiers_ms``; before there was one it says nothing.
    """
    known = [ms if ms > NONE_DUE else None for ms in (first_ms, *frontiers_ms)]
    before = F.udf(lambda number: known[number], "long")
    return numbered.withColumn(STREAM_TIME, F.greatest(STREAM_TIME, before(LEFT_IN))).drop(LEFT_IN)


def asking(timed: DataFrame, history_ms: int) -> DataFrame:
    """``timed`` rows with ``ASKED``."""
    return timed.withColumn(ASKED, F.greatest(F.col(TIME), F.col(STREAM_TIME) - history_ms))


def margin(history_ms: int) -> Column:
    """How much further a row would have to look back than it can, less 1 ms; it is late from 0 on."""
    return F.col(STREAM_TIME) - history_ms - F.col(TIME) - 1


def seen_by_all(read: Iterable[Mapping[str, int]]) -> Column:
    """Whether every row that had ``read`` so far of the partitions of tables had read a change."""
    told = list(read)
    if not told:
        return F.lit(True)
    least = {name: min(one.get(name, 0) for one in told) for name in set().union(*told)}
    ends = F.create_map(*(F.lit(part) for item in least.items() for part in item)) if least else None
    place = F.col(ORDER)[0]
    partition = F.concat(place["topic"], F.lit("-"), place["partition"].cast("string"))
    end = F.lit(0) if ends is None else F.coalesce(F.try_element_at(ends, partition), F.lit(0))
    return place["offset"] < end


def without_forgotten(node: StreamTableJoin, versions: DataFrame, bound_ms: int, is_seen: Column) -> DataFrame:
    """``versions`` without those that are older than the newest at ``bound_ms`` of their key, as all rows saw it."""
    newest = F.struct(F.col(TIME), F.col(ORDER))
    stands = versions.where((F.col(TIME) <= bound_ms) & is_seen).groupBy(named(node.right.key).alias("__of"))
    marked = versions.join(stands.agg(F.max(newest).alias("__stands")), named(node.right.key) == F.col("__of"), "left")
    kept = marked.where(F.col("__stands").isNull() | (newest >= F.col("__stands")))
    return kept.select(*map(named, versions.columns))
