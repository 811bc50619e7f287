"""Windowed aggregation: each record placed into its windows, then one row for each key and window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import types as T

from recount.declare.columns import BEYOND, RECORDS, RESULT_TIME
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START, WindowedAggregate
from recount.declare.windows import GlobalWindow, LastN, SessionWindows, SlidingWindows, TimeWindows
from recount.recompute.decoding import IS_NULL
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import ROWS_UP_TO, Column, Window, named
from recount.recompute.frames.duck_frames import Frame, once
from recount.recompute.operators.carried import IS_NEW
from recount.recompute.operators.log_aggregates import BEFORE, Over
from recount.recompute.operators.log_order import is_running
from recount.recompute.operators.log_rows import (
    ORDER,
    STREAM_TIME,
    TIME,
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
from recount.recompute.rules.number_rules import newest_start
from recount.recompute.rules.time_rules import overdue_ms, replaced_for_ms

START, END, IS_LATE = "__start", "__end", "__is_late"
TOUCHED = "__touched"
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


def partials(node: WindowedAggregate, placed: Frame, *further: str) -> Frame:
    """The amounts of the ``placed`` rows in each window, by the columns ``further``: partials that can be merged.

    Columns: the key, ``window_start``, ``window_end``, ``further``, each aggregate, what is ``BEYOND`` the sums that
    need it, ``recount_timestamp_ms`` (the largest) and ``recount_records`` (how many rows).
    """
    group = [named(node.key), F.col(START).alias(WINDOW_START), F.col(END).alias(WINDOW_END), *map(F.col, further)]
    made = [one.alias(name.removeprefix(BEFORE)) for name, one in _over(node, placed).amounts(node.aggregates).items()]
    told = [F.largest(TIME).alias(RESULT_TIME), F.count_of(F.lit(1)).alias(RECORDS)]
    found = placed.group_by(*group).agg(*made, *told)
    apart = [name for name in node.aggregates if isinstance(found.schema[name].dataType, T.StructType)]
    beyond = {BEYOND + name: named(name).part("beyond") for name in apart}
    return found.with_columns({**beyond, **{name: named(name).part("total") for name in apart}})


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
