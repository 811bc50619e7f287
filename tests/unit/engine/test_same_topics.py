"""A stream reads the topics that its ledger has read, and no others of their names unless a person has said so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake
from tests.batch_proofs import a_proof

from recount.certificate.finding import finding_id
from recount.declare.groups import Archive
from recount.declare.registry import declared
from recount.engine.commit.batch import TopologyWork
from recount.engine.exchange.work import Work
from recount.engine.source import resumption
from recount.engine.source.resumption import OtherTopic, SameTopics
from recount.kafka.connection import Connection
from recount.runtime.errors import Transient
from recount.runtime.settings import Settings
from recount.tables.ledger import TopicIds, topics_made_anew
from recount.tables.places import Tables

TOPOLOGY = declared().topology("revenue-by-region")
[ORDERS], [REVENUE] = ([node.topic.name for node in nodes] for nodes in (TOPOLOGY.sources, TOPOLOGY.sinks))
BEFORE = {ORDERS: "a", REVENUE: "r"}
MADE_ANEW = {**BEFORE, ORDERS: "b"}
LAST = a_proof(7, topic_ids=BEFORE)


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
def settings(tmp_path: Path) -> Settings:
    folders = {name: str(tmp_path / name) for name in ("data", "checkpoints", "reports", "logs", "run", "jars")}
    return Settings(profile="embedded", bootstrap_servers="127.0.0.1:1", **folders)


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


def test_a_stream_goes_on_with_the_topics_that_it_has_read(
    settings: Settings, work: TopologyWork, brokers: Brokers
) -> None:
    assert brokers.ids == SameTopics(settings, work, LAST)() == BEFORE


@pytest.mark.parametrize("last", [None, replace(LAST, topic_ids={})])
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
        SameTopics(settings, work, LAST).require()
    assert ORDERS in refused.value.what
    assert (refused.value.given, refused.value.expected[:10]) == ("topic id b", "topic id a")
    assert f"recount reset {work.name}" in refused.value.remedy
    accept(settings, work.name, MADE_ANEW)
    assert SameTopics(settings, work, LAST)() == MADE_ANEW


def test_an_archive_goes_by_what_was_accepted_for_a_stream_that_reads_its_topic(
    settings: Settings, brokers: Brokers
) -> None:
    work: Work = ArchiveOfOrders()  # type: ignore[assignment]
    brokers.ids, last = MADE_ANEW, replace(LAST, topic_ids={ORDERS: "a"})
    with pytest.raises(OtherTopic):
        SameTopics(settings, work, last).require()
    accept(settings, TOPOLOGY.name, MADE_ANEW)
    assert SameTopics(settings, work, last)() == {ORDERS: "b"}


def test_a_sink_that_was_made_anew_is_noted_for_the_audit_and_stops_nothing(
    settings: Settings, work: TopologyWork, brokers: Brokers
) -> None:
    brokers.ids = {**BEFORE, REVENUE: "s"}
    topics = SameTopics(settings, work, LAST)
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
    topics = SameTopics(settings, work, LAST)
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
        SameTopics(settings, work, LAST).require()
