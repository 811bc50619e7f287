"""One night: records come, every stream runs, something fails, somebody lies, all is audited, and repaired."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.process_tree import ProcessTree
from examples.shop.shop_records import Pace, ShopFlow
from pyspark.sql import Row
from tests.lies.lies import identity_in, said_in, with_other_value
from tests.long_programs import archive, backfilled, lose_checkpoint
from tests.shop_nights.deployment import DAY_MS, Deployment
from tests.shop_nights.diary import Diary, Lie, Night
from tests.spark.audit.stage import Stage
from tests.unit.topologies.shop_log import CLOSING_MS, PARTITIONS, START_MS, Arrival, shop_log

from recount.audit.carry.snapshots import Snapshots
from recount.audit.compare.identity import identity_of
from recount.audit.night import Outcome, audited, new_audit_id
from recount.declare.columns import IS_NULL
from recount.declare.topology import Topology, Written
from recount.kafka.transaction import OutputTransaction

KEPT_DAYS = 3
STREAMS_AT_ONCE = 3
LIE_EVERY, BACKFILL_EVERY = 5, 10
_APART = 11
"""So many streams lie between those of one lie and of the next."""
FAULTS = ("a checkpoint is lost", "a driver ends between Delta and Kafka", "an audit ends before it is complete")
KINDS = ("lost from the table", "another value in the table")


def live(deployed: Deployment, diary: Diary, number: int, records: int, played: int) -> Night:
    """The night ``number``; what of it an earlier try has done is done again only where that changes nothing."""
    if diary.produced <= number:
        deployed.produce(_day(deployed.topics, number, records, played), number)
        diary.note_produced(number + 1)
    archive(deployed.spark, deployed.settings, [one for one in deployed.archives if one.topic.name in deployed.topics])
    victim, fault = deployed.stages[number % len(deployed.stages)], FAULTS[number % len(FAULTS)]
    began = time.monotonic()
    # alone: what ends this run would end others beside it
    _run(deployed, victim, fault)
    others = [stage for stage in deployed.stages if stage.topology is not victim.topology]
    with ThreadPoolExecutor(STREAMS_AT_ONCE) as pool:
        for run in [pool.submit(_run, deployed, stage, "") for stage in others]:
            run.result()
    ran = time.monotonic()
    if number % LIE_EVERY == LIE_EVERY - 2:
        _lie(deployed, diary, number)
    if fault == FAULTS[2]:
        _audit_that_ends_early(deployed, victim.topology)
    began_audits = time.monotonic()
    # the broker is among these processes, and Python workers that end meanwhile
    with ProcessTree(os.getpid(), memory=False) as tree:
        before_s = tree.cpu_s
        outcomes = deployed.audit(new_audit_id())
        audit_cpu_s = tree.cpu_s - before_s
    audit_s = time.monotonic() - began_audits
    diary.lies = [_looked_for(lie, number, outcomes) for lie in diary.lies]
    for lie in diary.lies:
        if lie.last_night == number:
            _undo(deployed, diary, lie)
    corrections = sum(map(backfilled, deployed.stages)) if number % BACKFILL_EVERY == BACKFILL_EVERY - 1 else 0
    deployed.expire(deployed.begin_ms + (number + 1 - KEPT_DAYS) * DAY_MS)
    documents = {one.stream: one.document for one in outcomes}
    return Night(
        number=number,
        outcomes={one.stream: _outcome(one) for one in outcomes},
        misses={name: one["grace_misses_found"] for name, one in documents.items() if one},
        fault=f"{fault}: {victim.topology.name}",
        corrections=corrections,
        run_s=round(ran - began, 1),
        audit_s=round(audit_s, 1),
        audit_cpu_s=round(audit_cpu_s, 1),
        bytes=deployed.bytes(),
    )


def _day(topics: Sequence[str], number: int, records: int, played: int) -> list[Arrival]:
    """The records of a day that begins at ``START_MS``: ``played`` in all, or else ``records`` of each topic."""
    if not played:
        return [one for one in shop_log(topics, number + 1, records) if one.timestamp_ms < CLOSING_MS]
    flow = ShopFlow(
        partitions=dict.fromkeys(topics, PARTITIONS),
        begin_ms=START_MS,
        pace=Pace(rate=played * 1_000 / DAY_MS),
        seed=number + 1,
    )
    return [one.arrival for one in islice(flow, played)]


def _outcome(one: Outcome) -> str:
    return one.document["outcome"] if one.document else f"refused: {one.refusal}"


def _run(deployed: Deployment, stage: Stage, fault: str) -> None:
    if fault == FAULTS[0] and (Path(deployed.settings.checkpoints) / stage.topology.name).exists():
        lose_checkpoint(stage)
    if fault == FAULTS[1]:
        with _ending(OutputTransaction, "commit_once"), suppress(Exception):
            stage.run()
    stage.run()


def _audit_that_ends_early(deployed: Deployment, topology: Topology) -> None:
    with _ending(Snapshots, "keep_newest"), suppress(RuntimeError):
        audited(deployed.spark, deployed.settings, topology)


@contextmanager
def _ending(kind: type, method: str) -> Iterator[None]:
    """Whoever calls ``method`` ends there."""
    with patch.object(kind, method, side_effect=RuntimeError("ended from outside")):
        yield


def _lie(deployed: Deployment, diary: Diary, number: int) -> None:
    """About the last row that some stream has written: each time another stream, and the other kind."""
    told = len(diary.lies)
    stages = deployed.stages
    for at in range(len(stages)):
        stage = stages[(told * _APART + at) % len(stages)]
        sink = stage.topology.written[0]
        kind = KINDS[told % len(KINDS)]
        for row in _last_rows(stage, sink):
            other = None if kind == KINDS[0] else with_other_value(sink, row)
            if kind == KINDS[0] or other is not None:
                lie = Lie(night=number, stream=stage.topology.name, table=sink.table, key=str(row[sink.key]), kind=kind)
                _place_of(diary, lie).write_bytes(pickle.dumps((row.asDict(), other)))
                stage.change(sink, row, other)
                diary.lies.append(lie)
                return


def _last_rows(stage: Stage, sink: Written) -> Iterator[Row]:
    """The rows that are the last of their identity, the newest first."""
    identity, seen = identity_of(sink), set()
    for row in reversed(stage.rows(sink)):
        name = identity_in(identity, sink, row)
        if name not in seen and row[sink.key] is not None and not said_in(row, IS_NULL):
            yield row
        seen.add(name)


def _looked_for(lie: Lie, number: int, outcomes: list[Outcome]) -> Lie:
    if not lie.night <= number <= lie.last_night:
        return lie
    [document] = [one.document for one in outcomes if one.stream == lie.stream]
    still_open = document["findings"]["open"] if document else []
    named = {(one["place"], one["key"]) for one in still_open}
    return replace(lie, found=(*lie.found, (f"table outputs/{lie.table}", lie.key) in named))


def _undo(deployed: Deployment, diary: Diary, lie: Lie) -> None:
    [stage] = [one for one in deployed.stages if one.topology.name == lie.stream]
    sink = stage.written(lie.table)
    row, other = pickle.loads(_place_of(diary, lie).read_bytes())  # noqa: S301 - written by _lie
    if other is None:
        stage.append(sink, row)
    else:
        stage.change(sink, _as_row(other), row)


def _as_row(values: Mapping[str, Any]) -> Row:
    return Row(**values)


def _place_of(diary: Diary, lie: Lie) -> Path:
    return diary.path.with_name(f"lie-{lie.night}.pickle")
