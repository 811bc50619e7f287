"""Windowed aggregation: each record placed into its windows, then one row for each key and window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from recount.declare.operators.nodes import WINDOW_END, WINDOW_START, WindowedAggregate
from recount.declare.windows import GlobalWindow, LastN, SessionWindows, SlidingWindows, TimeWindows
from recount.recompute.decoding import IS_NULL
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import ROWS_UP_TO, Column, Window, named
from recount.recompute.frames.duck_frames import Frame, frame_of, once
from recount.recompute.operators.carried import IS_NEW
from recount.recompute.operators.log_aggregates import BEFORE, Over
from recount.recompute.operators.log_order import is_running
from recount.recompute.operators.log_rows import (
    OFFSET,
    ORDER,
    PARTITION,
    STREAM_TIME,
    TIME,
    TOPIC,
    TURN,
    Rows,
    derived,
    in_groups,
    in_turn,
    of_window,
    shaped,
)
from recount.recompute.operators.log_sessions import Judged, Placed, in_sessions, judged_records, slid
from recount.recompute.operators.log_stateless import PASSED_OVER
from recount.recompute.rules.time_rules import newest_start, overdue_ms, replaced_for_ms

START, END, IS_LATE = "__start", "__end", "__is_late"
TOUCHED = "__touched"
FIRST, LAST, BATCH, RECORDS = "first", "last", "batch", "records"
_IS_FIRST, _STRETCH, _IN_DOUBT = "__is_first", "__stretch", "__in_doubt"
_BOUNDS = [
    T.StructField(START, T.LongType()),
    T.StructField(END, T.LongType()),
    T.StructField(IS_LATE, T.BooleanType()),
]


def takes(node: WindowedAggregate) -> Column:
    """Whether a row is aggregated: one with a key, and with a value unless windows of time or sessions ask for it."""
    has_key = named(node.key).is_not_null()
    return has_key if isinstance(node.windows, TimeWindows | SessionWindows) else has_key & ~F.col(IS_NULL)


def placed(node: WindowedAggregate, frame: Frame) -> Frame:
    """The judged rows of ``frame`` for each window that holds them: ``START``, ``END``, ``IS_LATE``."""
    match node.windows:
        case TimeWindows() as windows:
            found = _in_time_windows(windows, frame)
            return found if found.is_cheap else once(found)
        case SlidingWindows() as windows:
            return once(_by_key([node.key], frame, partial(slid, windows)))
        case SessionWindows() as windows:
            return _in_sessions(windows, node.key, frame)
        case LastN(n=n):
            newest = Window.of(named(node.key)).sorted(F.col(TIME).descending(), F.col(ORDER).descending())
            frame = frame.with_column("__rank", F.row_number().over(newest)).where(F.col("__rank") <= n).drop("__rank")
    return once(frame.with_columns({START: F.lit(0), END: F.lit(0), IS_LATE: F.lit(False)}))


def goes_on(node: WindowedAggregate) -> bool:
    """Whether what windows amount to is carried, and not the records that they hold.

    It cannot be where a fold takes values partition by partition, where each record makes a result of a window, nor
    where a record can be replaced.
    """
    if replaced_for_ms(node.input) is not None:
        return False
    if isinstance(node.windows, TimeWindows):
        return not is_running(node) and not any(aggregate.fold for aggregate in node.aggregates.values())
    return isinstance(node.windows, GlobalWindow)


def aggregated(node: WindowedAggregate, on_time: Frame) -> Rows:
    """One row for each key and window; where the key's order is known, one for every record that was asked for.

    Beside its columns each has ``TOUCHED``: whether a record is new that it is made of.
    """
    if is_running(node):
        return Rows(node=node, frame=_running(node, on_time), holds="changes")
    results = _over(node, on_time).results(node.aggregates)
    grouped = on_time.group_by(named(node.key), START, END).agg(
        *(result.alias(name) for name, result in results.items()),
        F.largest(TIME).alias("__last_ms"),
        F.any_holds(IS_NEW).alias(TOUCHED),
    )
    frame = _with_bounds(node, grouped, F.col("__last_ms"))
    return Rows(node=node, frame=frame, holds="records" if node.emission.kind == "final" else "latest")


def _with_bounds(node: WindowedAggregate, results: Frame, time: Column, is_null: Column | None = None) -> Frame:
    """``results`` of the windows from ``START`` to ``END`` as rows, with ``TOUCHED``."""
    if node.has_bounds:
        results = results.with_columns({WINDOW_START: F.col(START), WINDOW_END: F.col(END)})
    order = of_window(named(node.key), F.col(START), F.col(END))
    return shaped(derived(results, time, order, is_null), node.fields, TOUCHED, START, END)


def withdrawn(node: WindowedAggregate, windows: Frame) -> Frame:
    """A deletion for each of the ``windows``, as rows with ``TOUCHED``."""
    return _with_bounds(node, windows.with_column(TOUCHED, F.lit(True)), F.col(END), F.lit(True))


def amounts(node: WindowedAggregate, placed: Frame) -> Frame:
    """The amounts of the ``placed`` rows, and those before them, in each window: a row that ``goes_on``."""
    amounts = _over(node, placed).amounts(node.aggregates)
    return placed.group_by(named(node.key).alias(node.key), START, END).agg(
        *(amount.alias(name) for name, amount in amounts.items()), F.largest(TIME).alias(TIME)
    )


def batch_shares(
    node: WindowedAggregate, came: Frame, groups: Sequence[Sequence[Any]], spans: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Shares of the batches of ``spans``, on time, in each of ``groups`` (key as text, and bounds), by partition.

    ``came`` are the placed rows. A span has topic, partition, start and end of offsets, and the number of the
    ``BATCH`` that read them. A row has these, each aggregate, how many ``RECORDS``, ``FIRST`` and ``LAST`` offset.
    """
    wanted = _table([("of_key", pa.string()), ("of_start", pa.int64()), ("of_end", pa.int64())], groups)
    read = _table(
        [
            ("of_topic", pa.string()),
            ("of_partition", pa.int32()),
            ("since", pa.int64()),
            ("until", pa.int64()),
            (BATCH, pa.int64()),
        ],
        [(one["topic"], one["partition"], one["start"], one["end"], one[BATCH]) for one in spans],
    )
    key = named(node.key).cast("string")
    of_group = (key == F.col("of_key")) & (F.col(START) == F.col("of_start")) & (F.col(END) == F.col("of_end"))
    mine = came.where(~F.col(IS_LATE)).join(frame_of(came.database, [wanted], wanted.schema), of_group, "left_semi")
    of_batch = (F.col(TOPIC) == F.col("of_topic")) & (F.col(PARTITION) == F.col("of_partition"))
    of_batch &= (F.col(OFFSET) >= F.col("since")) & (F.col(OFFSET) < F.col("until"))
    numbered = once(mine.join(frame_of(came.database, [read], read.schema), of_batch))
    group = [key.alias("key"), F.col(START).alias(WINDOW_START), F.col(END).alias(WINDOW_END)]
    made = numbered.group_by(*group, BATCH, F.col(TOPIC).alias("topic"), PARTITION).agg(
        *(result.alias(name) for name, result in _over(node, numbered).results(node.aggregates).items()),
        F.count_of().alias(RECORDS),
        F.smallest(OFFSET).alias(FIRST),
        F.largest(OFFSET).alias(LAST),
    )
    return made.sorted_by(WINDOW_START, BATCH, "topic", PARTITION).rows()


def _table(columns: Sequence[tuple[str, pa.DataType]], rows: Sequence[Sequence[Any]]) -> pa.Table:
    schema = pa.schema(columns)
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def _over(node: WindowedAggregate, placed: Frame, running: Window | None = None) -> Over:
    before = f"{BEFORE}{next(iter(node.aggregates))}" in placed.columns
    return Over(
        fields=node.input.fields,
        counting=F.col(ORDER).is_not_null() if before else None,
        running=running,
        gap_ms=node.windows.gap_ms if isinstance(node.windows, SessionWindows) else None,
        passed_over=F.col(PASSED_OVER) if PASSED_OVER in placed.columns else None,
        goes_on=before,
    )


def _running(node: WindowedAggregate, frame: Frame) -> Frame:
    of_window = Window.of(named(node.key), START, END).sorted(F.col(IS_NEW), *in_turn())
    so_far = of_window.ending(ROWS_UP_TO)
    results = _over(node, frame, so_far).results(node.aggregates)
    bounds = [F.col(START).alias(WINDOW_START), F.col(END).alias(WINDOW_END)] if node.has_bounds else []
    made = frame.select(
        named(node.key),
        *bounds,
        *(result.alias(name) for name, result in results.items()),
        F.largest(TIME).over(so_far).alias("__last_ms"),
        F.col(ORDER).alias("__cause"),
        F.col(TURN).alias("__turn_of_cause"),
        F.col(IS_NEW).alias(TOUCHED),
        START,
        END,
    ).where(F.col("__cause").is_not_null())
    rows = derived(made, F.col("__last_ms"), F.col("__cause"), turn=F.col("__turn_of_cause"))
    return shaped(rows, node.fields, TOUCHED, START, END)


def _in_time_windows(windows: TimeWindows, frame: Frame) -> Frame:
    ending = frame.with_column(START, F.each_of(_starts(windows, F.col(TIME)))).with_column(
        END, F.col(START) + windows.size_ms
    )
    is_late = overdue_ms(windows, F.col(END), F.col(STREAM_TIME)) >= 0
    return ending.with_column(IS_LATE, F.coalesce(is_late, F.lit(False)))


def _starts(windows: TimeWindows, time_ms: Column) -> Column:
    """The starts of all windows that hold ``time_ms``, rising; none before the newest that holds the epoch."""
    oldest = newest_start(windows, time_ms - windows.size_ms + windows.advance_ms)
    first = F.greatest(F.lit(newest_start(windows, 0)), oldest)
    return F.sequence(first, newest_start(windows, time_ms), F.lit(windows.advance_ms).cast("long"))


def _in_sessions(windows: SessionWindows, key: str, frame: Frame) -> Frame:
    """Sessions found by Spark, but for the chains in doubt: there record by record.

    A chain is made of records of a key, late ones too, of which each follows the one before within the gap: no
    session reaches from one chain into another. In doubt is a chain with a record that would be late if it were
    alone, and one that is longer than a session may be. Any other is a session, and all its records are on time.
    """
    by_time = Window.of(named(key)).sorted(TIME)
    is_first = F.coalesce(F.col(TIME) - F.one_before(TIME).over(by_time) > windows.gap_ms, F.lit(True))
    # records of one time are counted together: the numbers do not depend on their order
    numbered = frame.with_column(_IS_FIRST, is_first).with_column(_STRETCH, F.count_if(_IS_FIRST).over(by_time))
    stretch = Window.of(named(key), _STRETCH)
    may_be_late = F.coalesce(overdue_ms(windows, F.col(TIME), F.col(STREAM_TIME)) >= 0, F.lit(False))
    bounded = numbered.drop(_IS_FIRST).with_columns(
        {
            START: F.smallest(TIME).over(stretch),
            END: F.largest(TIME).over(stretch),
            IS_LATE: F.lit(False),
            _IN_DOUBT: F.any_holds(may_be_late).over(stretch),
        }
    )
    if windows.max_duration_ms is not None:
        is_too_long = F.col(END) - F.col(START) > windows.max_duration_ms
        bounded = bounded.with_column(_IN_DOUBT, F.col(_IN_DOUBT) | is_too_long)
    bounded = once(bounded)
    in_doubt = bounded.where(_IN_DOUBT).select(*map(named, frame.columns), _STRETCH)
    found = _by_key([key, _STRETCH], in_doubt, partial(in_sessions, windows))
    return bounded.where(~F.col(_IN_DOUBT)).drop(_IN_DOUBT, _STRETCH).union(once(found.drop(_STRETCH)))


def _by_key(keys: Sequence[str], frame: Frame, place: Callable[[list[Judged]], list[Placed]]) -> Frame:
    """``place`` over the records of each group by ``keys``; only what it looks at becomes Python objects."""

    def of_one_group(table: pa.Table) -> pa.Table:
        rows = place(judged_records(table))
        found = table.take(pa.array([one.number for one in rows], pa.int64()))
        bounds = (pa.array([one[part] for one in rows], pa.int64()) for part in (1, 2))
        for name, values in zip((START, END), bounds, strict=True):
            found = found.append_column(name, values)
        return found.append_column(IS_LATE, pa.array([one.is_late for one in rows], pa.bool_()))

    schema = T.StructType([*frame.schema.fields, *_BOUNDS])
    return in_groups(frame, keys, of_one_group, schema)
