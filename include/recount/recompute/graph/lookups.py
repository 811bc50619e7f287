"""Stream records looked up in a table: as of their time, and among the changes that had been read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.core.changelogs import is_versioned
from recount.core.joins import StreamTableJoin
from recount.recompute.columns import column, named
from recount.recompute.decoding import IS_NULL
from recount.recompute.flow import NotRecomputable
from recount.recompute.graph.joins import LEFT, RIGHT, joined_fields, of, state, whole
from recount.recompute.graph.ordering import leaves_at_once, lies_in_the_log
from recount.recompute.graph.rows import META, OFFSET, ORDER, PARTITION, TIME, TOPIC, Rows

BY, _READ = "__by", "__read"
_ENDS = "topic string, partition int, start long, end long, read map<string, long>"


@dataclass(frozen=True, kw_only=True)
class TableEnds:
    """The records ``start`` <= offset < ``end`` of a source partition saw the table up to the offsets ``read``.

    ``read`` has for each (topic, partition) of a table the first offset that had not been read; of one that is missing
    nothing had been.
    """

    topic: str
    partition: int
    start: int
    end: int
    read: Mapping[tuple[str, int], int]


def keyed_for_lookup(node: StreamTableJoin, frame: DataFrame) -> DataFrame:
    """``frame`` with the key ``BY`` under which the table is read."""
    by = named(node.key) if node.by is None else column(node.by, node.left.fields)
    return frame.withColumn(BY, by)


def looked_up(
    node: StreamTableJoin,
    keyed: DataFrame,
    table: Rows,
    ends: Sequence[TableEnds] | None,
    session: SparkSession,
) -> DataFrame:
    """Every row of ``keyed`` as ``LEFT`` with the table's row, if it had one, as ``RIGHT``.

    Without ``ends`` the whole log of the table counts as read: of an unversioned table that is its state in the end.
    A record that lies in no range of ``ends`` sees the whole table as well.
    """
    versioned = is_versioned(node.right)
    if node.grace_ms is not None:
        # the record has waited for the table: what it sees is the version as of its own time
        ends = None
    if ends is not None:
        _require_offsets(node, table)
        keyed = _with_read(keyed, ends, session)
    changes = state(table) if ends is None and not versioned else table.frame
    fits = of(LEFT, BY) == of(RIGHT, node.right.key)
    if versioned:
        fits &= of(RIGHT, TIME) <= of(LEFT, TIME)
    if ends is not None:
        fits &= _was_read()
    newest = F.struct(of(RIGHT, TIME), of(RIGHT, ORDER)) if versioned else F.struct(of(RIGHT, ORDER))
    pairs = whole(keyed, LEFT).join(whole(changes, RIGHT), fits, "left")
    found = pairs.groupBy(of(LEFT, ORDER).alias("__event")).agg(
        F.first(LEFT).alias(LEFT), F.max_by(RIGHT, F.when(of(RIGHT, TIME).isNotNull(), newest)).alias(RIGHT)
    )
    deleted = F.coalesce(of(RIGHT, IS_NULL), F.lit(True))
    return found.select(LEFT, F.when(~deleted, F.col(RIGHT)).alias(RIGHT))


def with_table_row(node: StreamTableJoin, found: DataFrame) -> Rows:
    """The rows that leave: they keep their place in the log."""
    kept = found.where(of(RIGHT, TIME).isNotNull()) if node.kind == "inner" else found
    fields = joined_fields(node, of(LEFT, node.key))
    return Rows(node=node, frame=kept.select(*fields, *(of(LEFT, name).alias(name) for name in META)))


def _require_offsets(node: StreamTableJoin, table: Rows) -> None:
    if table.holds != "changes" or not lies_in_the_log(node.right):
        raise NotRecomputable(
            f"{node} cannot be recomputed up to an offset of its table",
            given=f"{node.right}, whose changes are not records of one topic",
            expected="a table read from a topic, or aggregated over all time by its record key",
            remedy="write the table to a topic and read it from there",
        )
    if not leaves_at_once(node.left):
        raise NotRecomputable(
            f"{node} cannot be recomputed up to an offset of its table",
            given=f"{node.left}, which holds records back or derives them: their place does not say when they leave",
            expected="records straight from a topic; filters, maps and lookups may stand between",
            remedy="look the row up before the join or the window, or join with a versioned table and a grace",
        )


def _with_read(keyed: DataFrame, ends: Sequence[TableEnds], session: SparkSession) -> DataFrame:
    rows = [
        (one.topic, one.partition, one.start, one.end, {f"{t}-{p}": end for (t, p), end in one.read.items()})
        for one in ends
    ]
    ranges = session.createDataFrame(rows, _ENDS)
    spans = ranges.select(*(F.col(name).alias(f"__span_{name}") for name in ranges.columns))
    within = (
        (F.col(TOPIC) == F.col("__span_topic"))
        & (F.col(PARTITION) == F.col("__span_partition"))
        & (F.col(OFFSET) >= F.col("__span_start"))
        & (F.col(OFFSET) < F.col("__span_end"))
    )
    return keyed.join(spans, within, "left").select(*map(named, keyed.columns), F.col("__span_read").alias(_READ))


def _was_read() -> Column:
    place = of(RIGHT, ORDER)[0]
    partition = F.concat(place["topic"], F.lit("-"), place["partition"])
    end = F.try_element_at(of(LEFT, _READ), partition)
    return of(LEFT, _READ).isNull() | (place["offset"] < F.coalesce(end, F.lit(0)))
