"""Where a stream goes on, and when it refuses to: by hand, without a broker and without Spark (issue 12, 2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tests.batch_proofs import a_proof

from recount.engine.driver import runner
from recount.engine.source.checkpoint import BatchRange
from recount.engine.source.resumption import Known, OutOfStep, Planned, Resumption, Standing
from recount.kafka.offsets import UnreadRecordsGone
from recount.kafka.positions import Committed
from recount.tables.ledger import BatchProof, PartitionProof

A, B = ("orders", 0), ("orders", 1)
ID = "first"


def proof(generation: int, batch: int, end: int, checkpoint_id: str = ID) -> BatchProof:
    read = [PartitionProof(topic=topic, partition=partition, start=end - 10, end=end) for topic, partition in (A, B)]
    return a_proof(batch, *read, stream="revenue", generation=generation, checkpoint_id=checkpoint_id)


def kafka(batch: str | None, end: int, *, start: int | None = None, checkpoint_id: str | None = ID) -> Standing | None:
    begin = end - 10 if start is None else start
    one = Committed(offset=end, batch=batch, timestamp_ms=2_000, start=begin, checkpoint_id=checkpoint_id)
    return Standing.of({A: one, B: one})


def planned(batch: int, end: int, checkpoint_id: str = ID, start: int | None = None) -> Planned:
    begin = end - 10 if start is None else start
    span = BatchRange(batch=batch, timestamp_ms=2_000, start={A: begin, B: begin}, end={A: end, B: end})
    return Planned(identity=checkpoint_id, span=span, folder="checkpoints/revenue")


def all_known(last: BatchProof | None, standing: Standing | None, checkpoint: Planned | None, **more: Any) -> Known:
    always = {"stream": "revenue", "beginning": {}, "was_planned_by": lambda identity: identity == ID}
    return Known(last=last, kafka=standing, checkpoint=checkpoint, **{**always, **more})


def resumed(*known: Any, **more: Any) -> Resumption:
    return all_known(*known, **more).resumption()


@pytest.mark.parametrize(
    ("last", "standing", "checkpoint", "next_offset"),
    [
        (proof(0, 4, 50), kafka("0/4", 50), planned(4, 50), 50),
        (proof(0, 4, 50), kafka("0/4", 50), planned(5, 60), 50),
        (proof(0, 4, 50), kafka("0/5", 60), planned(5, 60), 50),
        (proof(0, 4, 50), kafka("0/4", 50), None, 50),
        (proof(0, 4, 50), kafka("0/5", 60), None, 60),
        (None, None, planned(0, 10, start=3), 3),
    ],
    ids=["in step", "next planned", "next in flight", "no checkpoint", "completed first", "first planned"],
)
def test_what_a_stream_reads_next_has_to_be_in_the_log_still(
    last: BatchProof | None, standing: Standing | None, checkpoint: Planned | None, next_offset: int
) -> None:
    found = all_known(last, standing, checkpoint)
    assert found.next_offsets(found.resumption()) == {A: next_offset, B: next_offset}


def test_a_start_is_refused_where_what_is_read_next_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, asked = Mock(data=str(tmp_path)), Mock(side_effect=UnreadRecordsGone("gone"))
    monkeypatch.setattr(runner, "Connection", Mock())
    monkeypatch.setattr(runner, "partitions_of", lambda *_: [A, B])
    monkeypatch.setattr(runner, "require_unread_kept", asked)
    one = Committed(offset=50, batch="0/4", timestamp_ms=2_000, start=40, checkpoint_id=ID)
    starting = runner.StreamRunner(Mock(), settings, Mock(topics=["orders"], delta_first=False), runner.RunOptions())
    transaction, checkpoint = Mock(**{"committed.return_value": {A: one, B: one}}), Mock(last_planned=lambda: None)
    with pytest.raises(UnreadRecordsGone):
        starting._resumption(transaction, checkpoint, proof(0, 4, 50), None)
    assert asked.call_args.args[2] == {A: 50, B: 50}


def test_a_stream_that_never_ran_needs_nothing_of_the_log() -> None:
    found = all_known(None, None, None)
    assert found.next_offsets(found.resumption()) == {}


GOES_ON = Resumption(generation=0, start=None)
LAST, IN_STEP = proof(0, 4, 50), kafka("0/4", 50)
AT_50 = {A: 50, B: 50}


@pytest.mark.parametrize(
    ("last", "standing", "checkpoint", "expected"),
    [
        (None, None, None, GOES_ON),
        (None, None, planned(0, 10), GOES_ON),
        (LAST, IN_STEP, planned(4, 50), GOES_ON),
        (LAST, IN_STEP, planned(5, 60), GOES_ON),
        (LAST, None, planned(4, 50), GOES_ON),
        (LAST, IN_STEP, None, Resumption(generation=1, start=AT_50)),
        (LAST, kafka("0/5", 60), planned(5, 60), Resumption(generation=0, start=None, in_flight=(0, 5))),
        (LAST, IN_STEP, planned(0, 60, "new"), Resumption(generation=1, start=None)),
        (
            proof(1, 0, 50, "completed 0/4"),
            kafka("0/4", 50, checkpoint_id=None),
            None,
            Resumption(generation=2, start=AT_50),
        ),
    ],
    ids=[
        *(
            "never ran",
            "first batch planned and not published",
            "in step",
            "next planned",
            "Kafka unknown for seven days",
        ),
        *("no checkpoint", "in flight, left to its checkpoint", "a new checkpoint", "completed by an earlier release"),
    ],
)
def test_a_stream_goes_on_where_it_was(
    last: BatchProof | None, standing: Standing | None, checkpoint: Planned | None, expected: Resumption
) -> None:
    assert resumed(last, standing, checkpoint) == expected


def test_a_partition_that_was_added_while_there_was_no_checkpoint_is_read_from_its_first_record() -> None:
    """Spark refuses starting offsets that lack a partition of a topic: the stream could not be started any more."""
    added, later = ("orders", 2), ("orders", 3)
    for last, standing, generation, start in (
        (proof(0, 4, 50), kafka("0/4", 50), 1, {A: 50, B: 50}),
        (proof(0, 4, 50), kafka("0/5", 60), 1, {A: 60, B: 60}),
        (None, kafka("0/0", 10), 1, {A: 10, B: 10}),
    ):
        beginning = {A: 3, B: 3, later: 7}
        found = resumed(last, standing, None, beginning=beginning, partitions=[A, B, added, later])
        assert (found.generation, found.start) == (generation, {**start, added: 0, later: 7})
    assert resumed(None, None, None).start is None


@pytest.mark.parametrize(
    ("last", "standing", "name", "checkpoint_id"),
    [
        (proof(0, 4, 50), kafka("0/5", 60), (0, 5), ID),
        (proof(0, 4, 50), kafka("1/0", 60, checkpoint_id="second"), (1, 0), "second"),
        (None, kafka("0/0", 10), (0, 0), ID),
        (proof(2, 4, 50), kafka("2/5", 60, checkpoint_id=None), (2, 5), ID),
    ],
    ids=["of the last checkpoint", "the first of another", "the very first", "of an earlier release"],
)
def test_a_batch_in_flight_whose_plan_is_lost_is_completed_under_its_own_name(
    last: BatchProof | None, standing: Standing, name: tuple[int, int], checkpoint_id: str
) -> None:
    found = resumed(last, standing, None)
    assert found.unfinished is not None
    assert (found.unfinished.generation, found.unfinished.span.batch) == name == found.in_flight
    assert found.unfinished.checkpoint_id == checkpoint_id
    assert found.unfinished.span.start == {key: end - 10 for key, end in standing.ends.items()}
    assert (found.generation, found.start) == (name[0] + 1, standing.ends)


def test_a_partition_that_the_batch_in_flight_read_first_begins_where_it_was_read() -> None:
    one = Committed(offset=60, batch="0/5", timestamp_ms=2_000, start=50, checkpoint_id=ID)
    added = Committed(offset=7, batch="0/5", timestamp_ms=2_000, start=3, checkpoint_id=ID)
    found = resumed(proof(0, 4, 50), Standing.of({A: one, B: one, ("orders", 2): added}), None)
    assert found.unfinished is not None
    assert found.unfinished.span.start[("orders", 2)] == 3


def test_a_batch_in_flight_that_read_nothing_is_told_by_its_name() -> None:
    """Time had passed: partitions fell idle, and results became due."""
    for name, checkpoint_id in (("0/5", ID), ("1/0", "second")):
        standing = kafka(name, 50, start=50, checkpoint_id=checkpoint_id)
        found = resumed(proof(0, 4, 50), standing, None)
        assert found.unfinished is not None
        assert found.unfinished.span.start == found.unfinished.span.end == {A: 50, B: 50}
    assert resumed(proof(0, 4, 50), kafka("0/5", 50, start=50), planned(5, 50, start=50)).in_flight == (0, 5)


def test_a_partition_that_the_newest_batch_did_not_read_stands_where_an_earlier_one_left_it() -> None:
    newest = Committed(offset=60, batch="0/5", timestamp_ms=2_000, start=50, checkpoint_id=ID)
    earlier = Committed(offset=50, batch="0/4", timestamp_ms=1_000, start=40, checkpoint_id=ID)
    found = resumed(proof(0, 4, 50), Standing.of({A: newest, B: earlier}), None)
    assert found.unfinished is not None
    assert (found.unfinished.span.batch, found.unfinished.span.start) == (5, {A: 50, B: 50})


@pytest.mark.parametrize(
    ("last", "standing", "checkpoint"),
    [
        (proof(0, 2, 30), kafka("0/4", 50), None),
        (proof(0, 2, 30), kafka("0/4", 50), planned(4, 50)),
        (proof(0, 2, 30), kafka("1/1", 50), None),
        (None, kafka("0/4", 50), None),
        (proof(0, 2, 30), None, planned(4, 50)),
        (None, None, planned(4, 50)),
    ],
    ids=[
        *("two batches behind Kafka", "and its checkpoint is newer too", "another generation", "no tables at all"),
        *("Kafka unknown, checkpoint newer", "no tables, Kafka unknown"),
    ],
)
def test_tables_that_are_older_than_kafka_or_checkpoint_are_refused(
    last: BatchProof | None, standing: Standing | None, checkpoint: Planned | None
) -> None:
    with pytest.raises(OutOfStep) as refused:
        resumed(last, standing, checkpoint)
    assert refused.value.given
    assert "recount reset revenue" in refused.value.remedy


@pytest.mark.parametrize("batch", ["0/3", None])
def test_a_kafka_that_is_behind_the_ledger_is_refused(batch: str | None) -> None:
    with pytest.raises(OutOfStep, match="behind"):
        resumed(proof(0, 4, 50), kafka(batch, 40), None)


@pytest.mark.parametrize(
    ("standing", "checkpoint"),
    [
        (kafka("0/4", 50), planned(3, 40)),
        (kafka("0/4", 50), planned(4, 49)),
        (kafka("0/4", 50), planned(5, 60, start=45)),
        (kafka("0/5", 60), planned(4, 50)),
        (kafka("0/5", 60), planned(5, 61, start=50)),
        (kafka("0/4", 50), planned(1, 20, "of long ago")),
        (kafka("0/4", 50), planned(0, 60, "new", start=40)),
        (kafka("0/5", 60), planned(0, 60, "new", start=50)),
    ],
    ids=[
        *("older", "another last batch", "a batch that does not begin at the end of the ledger"),
        *("without the batch in flight", "with another batch of that name", "of an earlier generation"),
        *("a new one that begins elsewhere", "a new one beside a batch in flight of the former one"),
    ],
)
def test_a_checkpoint_that_does_not_go_with_the_ledger_is_refused_and_can_be_removed(
    standing: Standing, checkpoint: Planned
) -> None:
    with pytest.raises(OutOfStep, match="does not go with") as refused:
        resumed(LAST, standing, checkpoint, was_planned_by=lambda identity: identity in (ID, "of long ago"))
    assert "remove the checkpoint folder checkpoints/revenue" in refused.value.remedy
    assert resumed(proof(0, 4, 50), standing, None).generation == 1


def test_without_any_word_of_kafka_only_a_checkpoint_that_has_begun_nothing_more_lets_the_stream_go_on() -> None:
    """A stream of an earlier release that stood for more than seven days."""
    for checkpoint in (planned(5, 60), None):
        with pytest.raises(OutOfStep, match="cannot be known"):
            resumed(proof(0, 4, 50), None, checkpoint)


def test_an_archive_goes_on_when_kafka_is_behind_or_silent_and_is_refused_when_kafka_is_ahead() -> None:
    for standing in (kafka("0/4", 50), kafka("0/3", 40), kafka("0/1", 20), None):
        found = resumed(proof(0, 4, 50), standing, None, delta_first=True)
        assert found == Resumption(generation=1, start={A: 50, B: 50})
    for last in (proof(0, 4, 50), None):
        with pytest.raises(OutOfStep, match="older than what Kafka has"):
            resumed(last, kafka("0/5", 60), None, delta_first=True)


def test_the_tables_that_a_proof_names_survive_its_text() -> None:
    said = json.dumps(json.loads(proof(0, 4, 50).to_json()) | {"appended": {"late": [ID, 3]}})
    found = BatchProof.from_json(said)
    assert found is not None
    assert found.appended == {"late": (ID, 3)}
    assert BatchProof.from_json(found.to_json()) == found
