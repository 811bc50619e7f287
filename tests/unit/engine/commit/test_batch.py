"""A batch: its records, the same ones whenever they are asked for, its totals, and the record that stopped it."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from tests.batch_proofs import a_proof

from recount.declare.columns import IS_NULL, ORIGIN, RESULT_TIME, REVISION, TIMESTAMP
from recount.declare.operators.nodes import KEY
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import stream
from recount.engine.commit.batch import BatchRecords, without_its_record
from recount.engine.commit.output_records import record_columns
from recount.engine.exchange.work import BatchResult, Computed
from recount.engine.operators.batch_rows import written_schema
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.source.checkpoint import BatchRange
from recount.engine.stage.intake import REJECTED_SCHEMA
from recount.runtime.errors import OfARecord
from recount.tables.ledger import PartitionProof

ONE = BatchRange(
    batch=7, timestamp_ms=0, start={("orders", 0): 5, ("more", 1): 2}, end={("orders", 0): 9, ("more", 1): 2}
)
BY = "--by NAME --because TEXT`"
WITHOUT_THIS = "to go on without this record: `recount set-aside sums"
WITHOUT_ONE = "to go on without a record of this batch, orders-0@[5, 9): `recount set-aside sums"
TOO_LATE = "so that no record can be set aside: mend the declaration"


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("orders-0@5", f"{WITHOUT_THIS} orders-0@5 {BY}"),
        ("orders-0@8", f"{WITHOUT_THIS} orders-0@8 {BY}"),
        ("orders-0@4", f"an earlier batch has read orders-0@4, {TOO_LATE}"),
        ("orders-0@9", f"an earlier batch has read orders-0@9, {TOO_LATE}"),
        ("orders-0@4+orders-0@6", f"{WITHOUT_THIS} orders-0@6 {BY}"),
        (None, f"{WITHOUT_ONE} TOPIC-PARTITION@OFFSET {BY}"),
    ],
)
def test_the_remedy_names_the_command_for_a_record_that_no_batch_has_read(record: str | None, said: str) -> None:
    error = OfARecord("a sum is too large", remedy="filter it")
    error.record = record
    with pytest.raises(OfARecord) as raised, without_its_record("sums", ONE):
        raise error
    assert raised.value.remedy == f"filter it; {said}"


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
        records={sink.table: record_columns(sink, emitted[sink.table]) for sink in _SINKS},
    )
    return BatchRecords(
        sinks=_SINKS, computed=computed, dead_letters={"source": "source.dead-letters"}, group="recount.s"
    )


def test_the_sinks_write_in_turn_and_dead_letters_come_last_in_the_order_of_the_log(records: BatchRecords) -> None:
    written = [(record.topic, record.value) for record in records if record.topic != "source.dead-letters"]
    assert written == [("first", b'{"n":0}'), ("first", b'{"n":1}'), ("second", b'{"n":1}'), ("second", b'{"n":2}')]
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


def result(batch: int, late: int, dead_lettered: int) -> BatchResult:
    part = PartitionProof(topic="orders", partition=0, start=0, end=9, late=late, dead_lettered=dead_lettered)
    proof = a_proof(batch, part, part)
    return BatchResult(proof=proof, kafka_ms=0, delta_ms=0)


def test_totals_hold_the_batches_that_no_progress_report_was_seen_of() -> None:
    first = result(0, late=1, dead_lettered=2).after(None)
    third = result(2, late=0, dead_lettered=1).after(result(1, late=2, dead_lettered=0).after(first))
    assert (third.late_total, third.dead_letters_total) == (6, 6)
