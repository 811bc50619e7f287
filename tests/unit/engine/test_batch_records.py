"""The records of a batch: those of its sinks, then dead letters, and the same ones whenever they are asked for."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from recount.declare.columns import IS_NULL, ORIGIN, RESULT_TIME, REVISION, TIMESTAMP
from recount.declare.operators.nodes import KEY
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import stream
from recount.engine.commit.batch import BatchRecords
from recount.engine.exchange.work import Computed
from recount.engine.operators.batch_operator import PartitionClock
from recount.engine.operators.batch_rows import written_schema
from recount.engine.stage.map_stage import REJECTED_SCHEMA

_SOURCE = Topic(name="source", key="id", value=RecordSchema.of(n=LONG))
_SINKS = [stream(_SOURCE).to(Topic(name=name, key="id")) for name in ("first", "second")]


def row(n: int) -> dict[str, Any]:
    return {KEY: "k", "n": n, RESULT_TIME: 1, REVISION: 0, IS_NULL: False, ORIGIN: None}


def rejected(partition: int, offset: int) -> dict[str, Any]:
    said = {"topic": "source", "partition": partition, "offset": offset, TIMESTAMP: 1}
    return {**said, "record_key": None, "record_value": b"?", "reason": "malformed", "detail": "no JSON"}


@pytest.fixture
def records() -> BatchRecords:
    emitted = {
        sink.table: pl.DataFrame([row(n), row(n + 1)], written_schema(sink.fields)) for n, sink in enumerate(_SINKS)
    }
    computed = Computed(
        after=PartitionClock.after(None),
        state=pl.DataFrame(),
        late=pl.DataFrame(),
        rejected=pl.DataFrame([rejected(1, 0), rejected(0, 7), rejected(0, 5)], REJECTED_SCHEMA),
        emitted=emitted,
    )
    return BatchRecords(
        sinks=_SINKS, computed=computed, dead_letters={"source": "source.dead-letters"}, group="recount.s"
    )


def test_the_sinks_write_in_turn_and_dead_letters_come_last_in_the_order_of_the_log(records: BatchRecords) -> None:
    written = [(record.topic, record.value) for record in records if record.topic != "source.dead-letters"]
    assert written == [
        ("first", b'{"n":0}'),
        ("first", b'{"n":1}'),
        ("second", b'{"n":1}'),
        ("second", b'{"n":2}'),
    ]
    places = [dict(record.headers) for record in list(records)[len(written) :]]
    assert [(place["recount-source-partition"], place["recount-source-offset"]) for place in places] == [
        (b"0", b"5"),
        (b"0", b"7"),
        (b"1", b"0"),
    ]


def test_an_aborted_attempt_that_is_made_again_finds_them_all_again(records: BatchRecords) -> None:
    interrupted = iter(records)
    next(interrupted)

    assert iter(records) is not records
    assert list(records) == list(records)
    assert len(list(records)) == 7
