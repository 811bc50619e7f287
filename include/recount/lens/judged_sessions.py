"""Sessions: which records each engine would have counted, and in which session of its own.

Whether a record is late depends on the session that it would join, so records are taken one by one, key by key.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from recount.core.windows import SessionWindows
from recount.lens.engine_clocks import STRUCTURED_STREAMING, EngineClock
from recount.lens.judged_windows import DROPPED, OURS, RESULT, least, most
from recount.lens.modelled import Modelled
from recount.lens.reaching_records import Reaching
from recount.lens.stretch import Longs


def judged_sessions(
    modelled: Modelled, windows: SessionWindows, rows: Reaching, clocks: Mapping[str, EngineClock]
) -> pl.DataFrame:
    """A row for each record: ``row``, ``key``, ``start``, ``end``, its session, and that of each engine."""
    apart = pl.DataFrame({"partition": rows.partition, "key": rows.key})
    groups = apart.select(pl.struct("partition", "key").rank("dense"))["partition"].to_numpy().astype(np.int64)
    own = sessions_by_end(windows, groups, rows.time_ms, rows.own_ms, reach=True)
    ours = sessions_of(windows, rows.key, rows.time_ms, own != DROPPED)
    by_engine: dict[str, Longs] = {}
    for engine, clock in clocks.items():
        for name, one, is_most in ((least(engine), clock.least, False), (most(engine), clock.most, True)):
            if engine == STRUCTURED_STREAMING:
                by_engine[name] = _in_batches(windows, rows, one)
            elif modelled.is_spread_by_key:
                by_engine[name] = _in_any_order(windows, rows, one, is_most=is_most)
            else:
                by_engine[name] = sessions_by_end(windows, groups, rows.time_ms, one, reach=False)
    frame = pl.DataFrame(
        {"row": np.arange(len(ours)), "key": rows.key, "time": rows.time_ms, RESULT: ours, **by_engine}
    )
    return frame.with_columns(
        pl.when(pl.col(RESULT) != DROPPED).then(RESULT).alias(RESULT),
        (pl.col(RESULT) != DROPPED).alias(OURS),
        start=pl.col("time").min().over(RESULT),
        end=pl.col("time").max().over(RESULT),
    )


def _in_batches(windows: SessionWindows, rows: Reaching, clock: Longs) -> Longs:
    order = np.argsort(rows.batch, kind="stable")
    found = np.empty(len(order), np.int64)
    found[order] = sessions_by_record(windows, rows.key[order], rows.time_ms[order], clock[order])
    return found


def _in_any_order(windows: SessionWindows, rows: Reaching, clock: Longs, *, is_most: bool) -> Longs:
    """Where the order is open, a record joins at the most the session that all records make, at the least none."""
    end_ms = rows.time_ms
    if not is_most:
        every = sessions_of(windows, rows.key, rows.time_ms, np.ones(len(rows.key), np.bool_))
        frame = pl.DataFrame({"session": every, "time": rows.time_ms})
        end_ms = frame.select(pl.col("time").max().over("session"))["time"].to_numpy()
    is_counted = end_ms + windows.closes_ms(0) > clock
    return sessions_of(windows, rows.key, rows.time_ms, is_counted)


@dataclass
class _Open:
    """The sessions of one key by their ends: rising, and at least a gap apart."""

    ends: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def joined_by(self, time_ms: int, gap_ms: int) -> tuple[int, int]:
        """Which of the sessions a record joins: from and before these places."""
        low = high = bisect_left(self.ends, time_ms - gap_ms)
        while high < len(self.starts) and self.starts[high] <= time_ms + gap_ms:
            high += 1
        return low, high

    def forget_before(self, end_ms: int) -> None:
        """Let go of the sessions that ended before ``end_ms``."""
        gone = bisect_left(self.ends, end_ms)
        del self.ends[:gone], self.starts[:gone], self.numbers[:gone]


def sessions_by_end(windows: SessionWindows, groups: Longs, times_ms: Longs, clock: Longs, *, reach: bool) -> Longs:
    """The session of each record, in the given order, where the session that it joins decides whether it is late.

    So Kafka Streams does, with a store that keeps every session that a record can join, and Recount among the records
    of a partition, which calls a record late that is more than its ``reach`` before the end of any open session.
    """
    known: dict[int, _Open] = {}
    found = np.full(len(groups), DROPPED, np.int64)
    merged: dict[int, int] = {}
    cells = zip(groups.tolist(), times_ms.tolist(), clock.tolist(), strict=True)
    for row, (group, time_ms, clock_ms) in enumerate(cells):
        if reach and windows.is_closed(time_ms + windows.reach_ms, clock_ms):
            continue
        sessions = known.setdefault(group, _Open())
        low, high = sessions.joined_by(time_ms, windows.gap_ms)
        end_ms = max(time_ms, sessions.ends[high - 1]) if high > low else time_ms
        if not windows.is_closed(end_ms, clock_ms):
            found[row] = _join(sessions, low, high, row, time_ms, merged)
    return _roots(found, merged)


def sessions_by_record(windows: SessionWindows, groups: Longs, times_ms: Longs, clock: Longs) -> Longs:
    """The session of each record, in the given order, where its own time decides whether it is late.

    So Spark does: a record is late whose own gap has ended by the watermark, and a session that has ended by then has
    left the state, so that no record joins it any more. Spark ends a gap one millisecond before Recount does.
    """
    known: dict[int, _Open] = {}
    found = np.full(len(groups), DROPPED, np.int64)
    merged: dict[int, int] = {}
    for row, (group, time_ms, clock_ms) in enumerate(
        zip(groups.tolist(), times_ms.tolist(), clock.tolist(), strict=True)
    ):
        ended_ms = clock_ms - windows.grace_ms - windows.gap_ms
        if time_ms <= ended_ms:
            continue
        sessions = known.setdefault(group, _Open())
        sessions.forget_before(ended_ms + 1)
        low, high = sessions.joined_by(time_ms, windows.gap_ms)
        found[row] = _join(sessions, low, high, row, time_ms, merged)
    return _roots(found, merged)


def sessions_of(windows: SessionWindows, keys: Longs, times_ms: Longs, is_counted: npt.NDArray[np.bool_]) -> Longs:
    """The session of each counted record among all counted records of its key, in whatever order they came."""
    rows = pl.DataFrame({"row": np.arange(len(keys)), "key": keys, "time": times_ms}).filter(is_counted)
    rows = rows.sort("key", "time").with_columns(
        begins=((pl.col("time") - pl.col("time").shift(1).over("key")) > windows.gap_ms).fill_null(value=True)
    )
    found = np.full(len(keys), DROPPED, np.int64)
    found[rows["row"].to_numpy()] = rows["begins"].cum_sum().to_numpy()
    return found


def _join(sessions: _Open, low: int, high: int, row: int, time_ms: int, merged: dict[int, int]) -> int:
    """Put the record's session in place of those that it joins; the session is known by its earliest record's row."""
    joined = sessions.numbers[low:high]
    number = min([row, *joined])
    merged.update({other: number for other in joined if other != number})
    start_ms = min([time_ms, *sessions.starts[low:high]])
    end_ms = max([time_ms, *sessions.ends[low:high]])
    sessions.ends[low:high], sessions.starts[low:high], sessions.numbers[low:high] = [end_ms], [start_ms], [number]
    return number


def _roots(found: Longs, merged: dict[int, int]) -> Longs:
    """Every record's session under the number that it has in the end."""
    for number in sorted(merged):
        merged[number] = merged.get(merged[number], merged[number])
    return np.array([merged.get(number, number) for number in found.tolist()], np.int64)
