"""The stream time by which an operator judges each record, at the record's own offset."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from recount.recompute.columns import named
from recount.recompute.graph.rows import CARRIED, OFFSET, PARTITION, PLACE, REACHED, TIME, TOPIC
from recount.recompute.once import once

STREAM_TIME = "__stream_time_ms"


def refused(judging: Sequence[tuple[DataFrame, Column, Column]], above: Sequence[DataFrame] = ()) -> DataFrame | None:
    """The places of records that do not advance the stream time of an operator: those without the key that it needs.

    ``judging`` has of each input the rows, whether one lacks the key, and whether one is judged; ``above`` the places
    that operators further up refused. Of the rows that a flat-map made of one record, one that is judged is enough.
    None where there are no such records; so the rows are read here.
    """
    rows = [(frame.where(F.col(OFFSET).isNotNull()), lacks, judged) for frame, lacks, judged in judging]
    said = [frame.where(lacks).select(*PLACE) for frame, lacks, _ in rows]
    lacking = once(reduce(DataFrame.union, [*said, *(frame.select(*PLACE) for frame in above)]))
    if lacking.count() == 0:
        return None
    taken = reduce(DataFrame.union, [frame.where(judged).select(*PLACE) for frame, _, judged in rows])
    found = lacking.distinct().join(taken, list(PLACE), "left_anti")
    return once(found.select(*PLACE, F.lit(True).alias("__refused")))


def advancing(entries: DataFrame, without: DataFrame | None) -> DataFrame:
    """Those of ``entries`` that are not among the places ``without``."""
    return entries if without is None else entries.join(without, list(PLACE), "left_anti")


def stream_times(
    entries: DataFrame, without: DataFrame | None, stood: Mapping[tuple[str, int], int], *, before: bool = False
) -> DataFrame:
    """Stream time at every place: the largest event time of the partition up to it, passing over ``without``.

    The record itself counts, unless ``before`` asks for the stream time that it found. ``stood`` has what partitions
    had reached before the first of ``entries``. Null: nothing advanced it yet.
    """
    last = -1 if before else Window.currentRow
    so_far = Window.partitionBy(TOPIC, PARTITION).orderBy(OFFSET).rowsBetween(Window.unboundedPreceding, last)
    time = F.col(TIME)
    if without is not None:
        entries, time = entries.join(without, list(PLACE), "left"), F.when(F.col("__refused").isNull(), time)
    return entries.select(*PLACE, _since_it_stood(F.max(time).over(so_far), stood).alias(STREAM_TIME))


def times_of_rows(topics: Collection[str], stood: Mapping[tuple[str, int], int]) -> Column:
    """The same, as each row of ``topics`` says itself: where every good record advances it. Others have none."""
    return F.when(F.col(TOPIC).isin(*topics), _since_it_stood(F.col(REACHED), stood))


def _since_it_stood(reached: Column, stood: Mapping[tuple[str, int], int]) -> Column:
    if not stood:
        return reached
    known = {f"{topic}-{partition}": time_ms for (topic, partition), time_ms in stood.items()}
    at_first = F.create_map(*(F.lit(part) for one in known.items() for part in one))
    partition = F.concat(TOPIC, F.lit("-"), F.col(PARTITION).cast("string"))
    return F.greatest(reached, F.try_element_at(at_first, partition))


def judged(frame: DataFrame, times: DataFrame | Column | None) -> DataFrame:
    """``frame`` with ``STREAM_TIME``: what a row carries, else ``times`` of it, or at its place.

    It is null for a derived row and, with ``times`` None, for all: nothing is late. Otherwise ``PLACE`` comes first, in
    either case: the columns of what is carried are known by their order.
    """
    if times is None:
        return frame.withColumn(STREAM_TIME, F.lit(None).cast("long"))
    if isinstance(times, DataFrame):
        timed = frame.join(times, list(PLACE), "left")
    else:
        others = [named(name) for name in frame.columns if name not in PLACE]
        timed = frame.select(*PLACE, *others, times.alias(STREAM_TIME))
    return timed.withColumn(STREAM_TIME, F.coalesce(CARRIED, STREAM_TIME))


def held_back(timed: DataFrame) -> DataFrame:
    """Judged rows as they go on from an operator that holds rows back: they are judged alike further down."""
    return timed.withColumn(CARRIED, F.col(STREAM_TIME)).drop(STREAM_TIME)
