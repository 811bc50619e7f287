"""What holds of the models on any log: Recount's own side is the interpreter, and bounds hold what an engine can do.

The engines are written here once more, record by record, after their sources: Kafka Streams 4.1
(KStreamWindowAggregate, KStreamSessionWindowAggregate), Spark 4.2 (WatermarkPropagator, StateStoreSaveExec,
SessionWindowStateStoreRestoreExec).
"""

from __future__ import annotations

from collections import defaultdict
from random import Random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.advise.lens.lens_logs import (
    WINDOWS,
    Click,
    ClickLog,
    click_logs,
    counted,
    engines,
    kept_key,
    keyed_again,
)

from recount.advise.engine_clocks import (
    DROPPED,
    KAFKA_STREAMS,
    OURS,
    RESULT,
    STRUCTURED_STREAMING,
    judged_by,
    least,
    most,
    task_of,
)
from recount.declare.topology import Topology
from recount.declare.windows import SessionWindows, TimeWindows
from recount.reference.topology_driver import TopologyDriver

Places = set[tuple[int, int]]
"""Partition and offset."""


def judged(topology: Topology, log: ClickLog) -> pl.DataFrame:
    rows = log.reaching(topology)
    found = judged_by(log.span(topology), rows)
    places = rows.rows.select("row", "partition", "offset")
    return found.join(places, "row").with_columns(pl.col("key").map_elements(lambda key: rows.keys[key], pl.String))


def dropped(found: pl.DataFrame, reading: str) -> Places:
    return set(found.filter(pl.col(reading) == DROPPED).select("partition", "offset").iter_rows())


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@settings(max_examples=25)
@given(log=click_logs(partitions=3))
def test_recounts_own_side_is_the_interpreter(windows: TimeWindows | SessionWindows, log: ClickLog) -> None:
    topology = keyed_again(windows)
    driver = TopologyDriver(topology, partitions={"clicks": log.partitions})
    for batch in log.batches:
        for partition, time_ms, user in batch:
            driver.pipe("clicks", key=user, value={"user": user}, timestamp_ms=time_ms, partition=partition)
    driver.advance_to(10_000)
    latest = {(out.key, out.window): out.value for out in driver.outputs("out")}
    expected = {place: value["clicks"] for place, value in latest.items() if value is not None}
    results = judged(topology, log).filter(OURS).group_by(RESULT).agg(pl.col("key", "start", "end").first(), pl.len())
    found = {(key, (start, end)): n for _, key, start, end, n in results.iter_rows()}
    assert found == expected


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@settings(max_examples=25)
@given(log=click_logs(partitions=1))
def test_where_records_keep_their_key_kafka_streams_answers_as_recount(
    windows: TimeWindows | SessionWindows, log: ClickLog
) -> None:
    assert is_as_recount(kept_key(windows), log)


def is_as_recount(topology: Topology, log: ClickLog) -> bool:
    answer, _ = engines(log.answer(topology))
    return all(between == (0, 0) for name, between in counted(answer).items() if name != "dropped")


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@pytest.mark.parametrize("tasks", [1, 2])
@settings(max_examples=25)
@given(log=click_logs(partitions=3), seed=st.integers(0, 1_000))
def test_what_kafka_streams_drops_in_any_order_lies_within_the_bounds(
    windows: TimeWindows | SessionWindows, tasks: int, log: ClickLog, seed: int
) -> None:
    found = judged(keyed_again(windows, tasks), log)
    actual = kafka_streams_drops(windows, log, tasks, Random(seed))
    assert dropped(found, least(KAFKA_STREAMS)) <= actual <= dropped(found, most(KAFKA_STREAMS))


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@settings(max_examples=25)
@given(log=click_logs(partitions=3), seed=st.integers(0, 1_000))
def test_what_spark_drops_lies_within_the_bounds(
    windows: TimeWindows | SessionWindows, log: ClickLog, seed: int
) -> None:
    found = judged(keyed_again(windows), log)
    for pauses, reading in ((0.0, least), (1.0, most)):
        actual, _ = spark_drops(windows, log, pauses, Random(seed))
        assert actual == dropped(found, reading(STRUCTURED_STREAMING))
    actual, _ = spark_drops(windows, log, 0.5, Random(seed))
    assert dropped(found, least(STRUCTURED_STREAMING)) <= actual <= dropped(found, most(STRUCTURED_STREAMING))


@pytest.mark.parametrize("windows", [one for one in WINDOWS if isinstance(one, SessionWindows)], ids=str)
@settings(max_examples=25)
@given(log=click_logs(partitions=3))
def test_the_sessions_of_spark_are_those_that_it_would_emit(windows: SessionWindows, log: ClickLog) -> None:
    found = judged(keyed_again(windows), log)
    for pauses, reading in ((0.0, least), (1.0, most)):
        _, sessions = spark_drops(windows, log, pauses, Random(1))
        column = reading(STRUCTURED_STREAMING)
        theirs = found.filter(pl.col(column) != DROPPED).group_by(column).agg("partition", "offset")
        made = [frozenset(zip(ps, os, strict=True)) for _, ps, os in theirs.iter_rows()]
        assert sorted(map(sorted, made)) == sorted(map(sorted, sessions))


def placed(log: ClickLog) -> list[list[tuple[int, int, Click]]]:
    """By batch the records with partition and offset."""
    ends: dict[int, int] = defaultdict(int)
    found = []
    for batch in log.batches:
        found.append(
            [
                (click[0], ends[click[0]] + sum(c[0] == click[0] for c in batch[:n]), click)
                for n, click in enumerate(batch)
            ]
        )
        for click in batch:
            ends[click[0]] += 1
    return found


def kafka_streams_drops(windows: TimeWindows | SessionWindows, log: ClickLog, tasks: int, dice: Random) -> Places:
    """Those of a run in which the partitions of each batch are read in an order that ``dice`` draw."""
    stream_times: dict[int, int] = {}
    sessions: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    found: Places = set()
    for batch in placed(log):
        left = {p: [one for one in batch if one[0] == p] for p in range(log.partitions)}
        while any(left.values()):
            partition, offset, (_, time_ms, user) = left[dice.choice([p for p in left if left[p]])].pop(0)
            task = task_of(user, tasks)
            stream_times[task] = max(time_ms, stream_times.get(task, -1))
            close_ms = stream_times[task] - windows.grace_ms
            if isinstance(windows, TimeWindows):
                if any(start + windows.size_ms <= close_ms for start in windows.starts(time_ms)):
                    found.add((partition, offset))
                continue
            known = sessions[task, user]
            gap_ms = windows.gap_ms
            joined = [one for one in known if one[1] >= time_ms - gap_ms and one[0] <= time_ms + gap_ms]
            merged = min([time_ms, *(s for s, _ in joined)]), max([time_ms, *(e for _, e in joined)])
            if merged[1] < close_ms - gap_ms:
                found.add((partition, offset))
            else:
                sessions[task, user] = [*(one for one in known if one not in joined), merged]
    return found


def spark_drops(
    windows: TimeWindows | SessionWindows, log: ClickLog, pauses: float, dice: Random
) -> tuple[Places, list[frozenset[tuple[int, int]]]]:
    """Those of a run in which Spark runs a batch without data after such a share of the batches; and its sessions."""
    latest_ms = watermark_ms = before_ms = 0
    found: Places = set()
    open_sessions: dict[str, list[tuple[int, int, frozenset[tuple[int, int]]]]] = defaultdict(list)
    ended: list[frozenset[tuple[int, int]]] = []

    def next_batch() -> None:
        nonlocal watermark_ms, before_ms
        before_ms, watermark_ms = watermark_ms, max(watermark_ms, latest_ms - windows.grace_ms)
        # its own state goes by the watermark of the batch, late records by that of the batch before
        for user, known in open_sessions.items():
            ended.extend(records for _, end, records in known if end <= last_ms)
            open_sessions[user] = [one for one in known if one[1] > last_ms]

    last_ms = 0
    for batch in placed(log):
        for partition, offset, (_, time_ms, user) in batch:
            if isinstance(windows, TimeWindows):
                if any(start + windows.size_ms <= before_ms for start in windows.starts(time_ms)):
                    found.add((partition, offset))
            elif time_ms + windows.gap_ms <= before_ms:
                found.add((partition, offset))
            else:
                mine = (time_ms, time_ms + windows.gap_ms, frozenset({(partition, offset)}))
                known = open_sessions[user]
                joined = [one for one in known if one[0] <= mine[1] and mine[0] <= one[1]]
                merged = (
                    min(one[0] for one in [mine, *joined]),
                    max(one[1] for one in [mine, *joined]),
                    mine[2].union(*(one[2] for one in joined)),
                )
                open_sessions[user] = [*(one for one in known if one not in joined), merged]
        latest_ms = max([latest_ms, *(time_ms for _, _, (_, time_ms, _) in batch)])
        last_ms = watermark_ms
        next_batch()
        if dice.random() < pauses:
            last_ms = watermark_ms
            next_batch()
    ended.extend(records for known in open_sessions.values() for _, _, records in known)
    return found, ended
