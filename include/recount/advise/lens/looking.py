"""Look at the log of a stream: read it, judge every record by each engine's clock, and say what differs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl

from recount.advise.lens.engine_clocks import (
    DROPPED,
    KAFKA_STREAMS,
    OURS,
    RESULT,
    STRUCTURED_STREAMING,
    EngineClock,
    Reaching,
    judged_sessions,
    judged_windows,
    kafka_streams,
    least,
    most,
    reaching,
    structured_streaming,
)
from recount.advise.lens.lens_answer import (
    JUDGED,
    Differing,
    DroppedRecord,
    EngineAnswer,
    LensAnswer,
    OtherResult,
    differing,
)
from recount.advise.lens.lens_log import Records
from recount.advise.lens.lens_stretch import Modelled, Stretch
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.windows import SessionWindows, TimeWindows
from recount.reference.record_aggregates import results
from recount.runtime.times import readable

FIRST = 10
"""How many records and results are listed of each engine, unless more are asked for."""
_PLACES = 10


def looked_at(
    modelled: Modelled,
    stretch: Stretch,
    log: Iterable[Records],
    *,
    start_ms: int | None = None,
    end_ms: int | None = None,
    batch_records: int | None = None,
    first: int = FIRST,
) -> LensAnswer:
    """The answers of the other engines to ``log``, which is that of ``stretch``."""
    begun = time.monotonic()
    rows = reaching(modelled, stretch, log)
    judged = _with_asked(judged_by(modelled, stretch, rows), stretch, rows)
    told = _Told(modelled, stretch, rows, judged)
    asked = judged.filter(JUDGED)
    return LensAnswer(
        stream=modelled.topology.name,
        windows=str(modelled.windows),
        start_ms=start_ms,
        end_ms=end_ms,
        batches=stretch.batches,
        batch_records=batch_records,
        records=asked["row"].n_unique(),
        late=asked.filter(~pl.col(OURS))["row"].n_unique(),
        results=asked.filter(OURS)[RESULT].n_unique(),
        read=rows.read,
        engines=[told.engine(name, differing(judged, name, first)) for name in (KAFKA_STREAMS, STRUCTURED_STREAMING)],
        seconds=time.monotonic() - begun,
    )


def judged_by(modelled: Modelled, stretch: Stretch, rows: Reaching) -> pl.DataFrame:
    """Which result each engine counts each record in."""
    clocks = {
        KAFKA_STREAMS: kafka_streams(modelled, stretch, rows, max(stretch.bounds) + 1),
        STRUCTURED_STREAMING: structured_streaming(stretch, rows),
    }
    return _judged(modelled, rows, clocks)


def _judged(modelled: Modelled, rows: Reaching, clocks: Mapping[str, EngineClock]) -> pl.DataFrame:
    if isinstance(modelled.windows, TimeWindows):
        return judged_windows(modelled.windows, rows, clocks)
    return judged_sessions(modelled, modelled.windows, rows, clocks)


def _with_asked(judged: pl.DataFrame, stretch: Stretch, rows: Reaching) -> pl.DataFrame:
    """``judged``, marked where the record is in the interval; a partition that it has not read is not in it."""
    since = np.full(max(stretch.bounds) + 1, np.iinfo(np.int64).max, np.int64)
    for partition, offset in stretch.judged_from.items():
        since[partition] = offset
    is_asked = rows.offset >= since[rows.partition]
    return judged.with_columns(pl.Series(JUDGED, is_asked[judged["row"].to_numpy()]))


class _Told:
    """The first records and results of an engine, with their keys, places and values."""

    def __init__(self, modelled: Modelled, stretch: Stretch, rows: Reaching, judged: pl.DataFrame) -> None:
        self._modelled, self._stretch, self._rows, self._judged = modelled, stretch, rows, judged
        windows = modelled.windows
        self._gap_ms = windows.gap_ms if isinstance(windows, SessionWindows) else None

    def engine(self, name: str, found: Differing) -> EngineAnswer:
        """Return ``found`` as an answer, in full."""
        keys = self._rows.keys_in_several_partitions if name == KAFKA_STREAMS else 0
        return EngineAnswer(
            engine=name,
            assumed=assumed(name, self._modelled, keys),
            dropped=found.dropped,
            dropped_of_ours=found.dropped_of_ours,
            lost=found.lost,
            changed=found.changed,
            added=found.added,
            records=[self._record(row, is_certain) for row, is_certain in found.rows],
            results=[self._result(name, result, is_certain) for result, is_certain in found.results],
        )

    def _record(self, row: int, is_certain: bool) -> DroppedRecord:
        return DroppedRecord(
            place=self._place(row),
            key=self._rows.keys[self._rows.key[row]],
            time_ms=int(self._rows.time_ms[row]),
            is_certain=is_certain,
        )

    def _result(self, engine: str, result: int, is_certain: bool) -> OtherResult:
        of_it = self._judged.filter(pl.col(RESULT) == result)
        key, start, end = of_it.select("key", "start", "end").row(0)
        is_whole = start >= self._stretch.whole_since_ms
        missing = of_it.filter(pl.col(OURS) & (pl.col(most(engine)) == DROPPED))["row"].to_list()
        bounds = {WINDOW_START: start, WINDOW_END: end}
        return OtherResult(
            key=self._rows.keys[key],
            window_start=start,
            window_end=end,
            is_certain=is_certain,
            ours={**bounds, **self._values(of_it.filter(OURS)["row"].to_list())} if is_whole else None,
            theirs_at_least_dropped=self._theirs(of_it, least(engine), bounds) if is_whole else [],
            theirs_at_most_dropped=self._theirs(of_it, most(engine), bounds) if is_whole else [],
            dropped=[self._place(row) for row in missing[:_PLACES]],
        )

    def _theirs(self, of_it: pl.DataFrame, reading: str, bounds: Mapping[str, int]) -> Sequence[Mapping[str, Any]]:
        """Every result of the engine that has one of these records."""
        found = []
        for number in sorted(set(of_it[reading].to_list()) - {DROPPED}):
            rows = self._judged.filter(pl.col(reading) == number)["row"].to_list()
            if self._gap_ms is not None:
                times = self._rows.time_ms[rows]
                bounds = {WINDOW_START: int(times.min()), WINDOW_END: int(times.max())}
            found.append({**bounds, **self._values(rows)})
        return found

    def _values(self, rows: Sequence[int]) -> dict[str, Any]:
        """The aggregates over the records of these rows, by the reference interpreter."""
        records = self._rows.records(np.array(sorted(rows), np.int64))
        made = results(self._modelled.aggregate.aggregates, records, self._gap_ms)
        return {name: format(value, "f") if isinstance(value, Decimal) else value for name, value in made.items()}

    def _place(self, row: int) -> str:
        return f"{self._stretch.topic}-{self._rows.partition[row]}@{self._rows.offset[row]}"


def assumed(engine: str, modelled: Modelled, keys_in_several_partitions: int) -> Sequence[str]:
    """The sentences about ``engine``."""
    grace = readable(modelled.windows.grace_ms)
    if engine == KAFKA_STREAMS:
        return _of_kafka_streams(modelled, grace, keys_in_several_partitions)
    return _of_structured_streaming(modelled, grace)


def _of_kafka_streams(modelled: Modelled, grace: str, keys_in_several_partitions: int) -> Sequence[str]:
    found = [f"a grace of {grace}, and tasks that never restart: one that does begins with no stream time"]
    if modelled.is_spread_by_key:
        found.append(
            "the records of a batch come before those of the next one; in which order the partitions of one batch pass "
            "the repartition topic is open, so the numbers are bounds over all such orders"
        )
    else:
        found.append("records keep their key, so a task reads one partition, and its stream time is in the log")
        if keys_in_several_partitions:
            found.append(
                f"{keys_in_several_partitions:,} keys lie in several partitions: Kafka Streams has a result of each "
                "partition, which are taken together here"
            )
    if isinstance(modelled.windows, SessionWindows):
        found.append("a store that keeps every session that a record can still join")
    return found


def _of_structured_streaming(modelled: Modelled, grace: str) -> Sequence[str]:
    found = [
        f"a watermark with a delay of {grace}, on all partitions, set where the topic is read",
        "fewest dropped: batches follow without a pause, and a batch is judged by those before the one before it; most "
        "dropped: Spark runs a batch without data after each, and all batches before count",
    ]
    if isinstance(modelled.windows, SessionWindows):
        found.append("sessions in the output mode append: one that has ended by the watermark is joined no more")
    return found
