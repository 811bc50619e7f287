"""Where a stream goes on, when it refuses to, and that it reads the topics that its ledger has read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import polars as pl
import pytest
from deltalake import write_deltalake
from tests.batch_proofs import a_proof

from recount.certificate.finding import finding_id
from recount.declare.groups import Archive
from recount.declare.registry import declared
from recount.engine.commit.batch import TopologyWork
from recount.engine.driver import runner
from recount.engine.exchange.work import Work
from recount.engine.source import resumption
from recount.engine.source.checkpoint import BatchRange
from recount.engine.source.resumption import Known, OtherTopic, OutOfStep, Planned, Resumption, SameTopics, Standing
from recount.kafka.connection import Connection
from recount.kafka.offsets import UnreadRecordsGone
from recount.kafka.positions import Committed
from recount.runtime.errors import Transient
from recount.runtime.settings import Settings
from recount.tables.ledger import BatchProof, PartitionProof, TopicIds, topics_made_anew
from recount.tables.places import Tables

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


GOES_ON = Resumption(generation=0, start=None)
LAST, IN_STEP = proof(0, 4, 50), kafka("0/4", 50)
AT_50 = {A: 50, B: 50}
GOING_ON = {
    "never ran": (None, None, None, GOES_ON),
    "first batch planned and not published": (None, None, planned(0, 10), GOES_ON),
    "in step": (LAST, IN_STEP, planned(4, 50), GOES_ON),
    "next planned": (LAST, IN_STEP, planned(5, 60), GOES_ON),
    "Kafka unknown for seven days": (LAST, None, planned(4, 50), GOES_ON),
    "no checkpoint": (LAST, IN_STEP, None, Resumption(generation=1, start=AT_50)),
    "in flight, left to its checkpoint": (
        LAST,
        kafka("0/5", 60),
        planned(5, 60),
        Resumption(generation=0, start=None, in_flight=(0, 5)),
    ),
    "a new checkpoint": (LAST, IN_STEP, planned(0, 60, "new"), Resumption(generation=1, start=None)),
    "completed by an earlier release": (
        proof(1, 0, 50, "completed 0/4"),
        kafka("0/4", 50, checkpoint_id=None),
        None,
        Resumption(generation=2, start=AT_50),
    ),
}


@pytest.mark.parametrize(("last", "standing", "checkpoint", "expected"), GOING_ON.values(), ids=GOING_ON)
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


OLD = proof(0, 2, 30)
REFUSED = {
    "two batches behind Kafka": (OLD, kafka("0/4", 50), None, "recount reset revenue"),
    "and its checkpoint is newer too": (OLD, kafka("0/4", 50), planned(4, 50), "recount reset revenue"),
    "another generation": (OLD, kafka("1/1", 50), None, "recount reset revenue"),
    "no tables at all": (None, kafka("0/4", 50), None, "recount reset revenue"),
    "Kafka unknown, checkpoint newer": (OLD, None, planned(4, 50), "recount reset revenue"),
    "no tables, Kafka unknown": (None, None, planned(4, 50), "recount reset revenue"),
    "Kafka behind the ledger": (LAST, kafka("0/3", 40), None, "behind"),
    "of an earlier release, too": (LAST, kafka(None, 40), None, "behind"),
    # of an earlier release, and it stood for more than seven days
    "no word of Kafka, and more begun": (LAST, None, planned(5, 60), "cannot be known"),
    "no word of Kafka, no checkpoint": (LAST, None, None, "cannot be known"),
}


@pytest.mark.parametrize(("last", "standing", "checkpoint", "said"), REFUSED.values(), ids=REFUSED)
def test_tables_kafka_and_checkpoint_that_are_not_of_one_time_are_refused(
    last: BatchProof | None, standing: Standing | None, checkpoint: Planned | None, said: str
) -> None:
    with pytest.raises(OutOfStep) as refused:
        resumed(last, standing, checkpoint)
    assert refused.value.given
    assert said in str(refused.value)


NOT_OF_IT = {
    "older": (IN_STEP, planned(3, 40)),
    "another last batch": (IN_STEP, planned(4, 49)),
    "a batch that does not begin at the end of the ledger": (IN_STEP, planned(5, 60, start=45)),
    "without the batch in flight": (kafka("0/5", 60), planned(4, 50)),
    "with another batch of that name": (kafka("0/5", 60), planned(5, 61, start=50)),
    "of an earlier generation": (IN_STEP, planned(1, 20, "of long ago")),
    "a new one that begins elsewhere": (IN_STEP, planned(0, 60, "new", start=40)),
    "a new one beside a batch in flight of the former one": (kafka("0/5", 60), planned(0, 60, "new", start=50)),
}


@pytest.mark.parametrize(("standing", "checkpoint"), NOT_OF_IT.values(), ids=NOT_OF_IT)
def test_a_checkpoint_that_does_not_go_with_the_ledger_is_refused_and_can_be_removed(
    standing: Standing, checkpoint: Planned
) -> None:
    with pytest.raises(OutOfStep, match="does not go with") as refused:
        resumed(LAST, standing, checkpoint, was_planned_by=lambda identity: identity in (ID, "of long ago"))
    assert "remove the checkpoint folder checkpoints/revenue" in refused.value.remedy
    assert resumed(LAST, standing, None).generation == 1


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


TOPOLOGY = declared().topology("revenue-by-region")
[ORDERS], [REVENUE] = ([node.topic.name for node in nodes] for nodes in (TOPOLOGY.sources, TOPOLOGY.sinks))
BEFORE = {ORDERS: "a", REVENUE: "r"}
MADE_ANEW = {**BEFORE, ORDERS: "b"}
READ_LAST = a_proof(7, topic_ids=BEFORE)


class Brokers:
    """Brokers whose topics have these ``ids``, or that do not answer (None)."""

    def __init__(self, ids: TopicIds | None) -> None:
        self.ids = ids

    def ids_of(self, _connection: Connection, topics: Iterable[str], _timeout_s: float = 0) -> TopicIds:
        if self.ids is None:
            raise Transient("no answer")
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers(BEFORE)
    monkeypatch.setattr(resumption, "ids_of", found.ids_of)
    return found


@pytest.fixture
def work(settings: Settings) -> TopologyWork:
    return TopologyWork(TOPOLOGY, settings.data)


class ArchiveOfOrders:
    """What is asked here of the work of an archive."""

    archive = Archive(topic=TOPOLOGY.sources[0].topic)
    name, topics, outputs, delta_first = archive.name, (ORDERS,), (), True


def accept(settings: Settings, stream: str, now: TopicIds) -> None:
    """As `recount findings accept` does, after an audit of ``stream`` that saw the topics to be these."""
    [found] = topics_made_anew([BEFORE, now])
    row = {"finding": finding_id(stream, found), "audit": "night-1", "by": "Ada", "reason": "mirrored", "at_ms": 1}
    write_deltalake(Tables(settings.data).acceptances(stream), pl.DataFrame([row]), mode="append")


@pytest.mark.parametrize("last", [None, replace(READ_LAST, topic_ids={})])
def test_a_ledger_that_knows_no_ids_takes_those_of_now(
    settings: Settings, work: TopologyWork, brokers: Brokers, last: None
) -> None:
    brokers.ids = MADE_ANEW
    assert SameTopics(settings, work, last)() == MADE_ANEW


def test_a_source_that_was_made_anew_is_refused_until_that_very_change_is_accepted(
    settings: Settings, work: TopologyWork, brokers: Brokers
) -> None:
    brokers.ids = MADE_ANEW
    accept(settings, work.name, {ORDERS: "c"})
    accept(settings, "another-stream", MADE_ANEW)
    with pytest.raises(OtherTopic) as refused:
        SameTopics(settings, work, READ_LAST).require()
    assert ORDERS in refused.value.what
    assert (refused.value.given, refused.value.expected[:10]) == ("topic id b", "topic id a")
    assert f"recount reset {work.name}" in refused.value.remedy
    accept(settings, work.name, MADE_ANEW)
    assert SameTopics(settings, work, READ_LAST)() == MADE_ANEW


def test_an_archive_goes_by_what_was_accepted_for_a_stream_that_reads_its_topic(
    settings: Settings, brokers: Brokers
) -> None:
    work: Work = ArchiveOfOrders()  # type: ignore[assignment]
    brokers.ids, last = MADE_ANEW, replace(READ_LAST, topic_ids={ORDERS: "a"})
    with pytest.raises(OtherTopic):
        SameTopics(settings, work, last).require()
    accept(settings, TOPOLOGY.name, MADE_ANEW)
    assert SameTopics(settings, work, last)() == {ORDERS: "b"}


def test_a_sink_that_was_made_anew_is_noted_for_the_audit_and_stops_nothing(
    settings: Settings, work: TopologyWork, brokers: Brokers
) -> None:
    brokers.ids = {**BEFORE, REVENUE: "s"}
    topics = SameTopics(settings, work, READ_LAST)
    topics.require()
    brokers.ids = {**BEFORE, REVENUE: "t"}
    assert topics()[REVENUE] == "t"


def test_a_source_that_is_made_anew_while_the_stream_runs_stops_it(
    settings: Settings, work: TopologyWork, brokers: Brokers
) -> None:
    topics = SameTopics(settings, work, None)
    topics.require()
    brokers.ids = MADE_ANEW
    with pytest.raises(OtherTopic):
        topics()


@pytest.mark.parametrize("silent", [None, {}])
def test_a_batch_for_which_the_brokers_say_nothing_notes_the_ids_before_and_the_next_asks_again(
    settings: Settings, work: TopologyWork, brokers: Brokers, silent: TopicIds | None
) -> None:
    topics = SameTopics(settings, work, READ_LAST)
    brokers.ids = silent
    assert topics() == BEFORE
    brokers.ids = MADE_ANEW
    with pytest.raises(OtherTopic):
        topics()


def test_a_stream_does_not_start_before_the_brokers_answer(
    settings: Settings, work: TopologyWork, brokers: Brokers
) -> None:
    brokers.ids = None
    with pytest.raises(Transient):
        SameTopics(settings, work, READ_LAST).require()
