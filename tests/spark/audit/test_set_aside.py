"""A record at which a stream stops is set aside by order: the stream goes on, audits list it, nobody can hide one."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from tests.spark.audit.conftest import MINUTE_MS, START_MS, Scene, order
from tests.spark.audit.stage import Said, Stage, output_topic, settings_below, source_topic

from recount.audit.certificate.signing import make_keys, verify_file
from recount.audit.night import CertifiedAudit
from recount.declare.aggregates import count, total
from recount.declare.operators.nodes import Filter
from recount.declare.output import Fits, largest_result
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.kafka.dead_letters import RecordTooLarge
from recount.lifecycle.reset import Reset
from recount.lifecycle.setting_aside import AlreadyRead, SettingAside, listed
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.reference.topology_driver import TopologyDriver
from recount.runtime.errors import OfARecord, Terminal
from recount.tables.decisions import AsideLog
from recount.tables.signed_orders import AsideOrder, RecordPlace

LARGEST = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Counter(Stage):
    """Sums of five minutes, by the engine of windows or by the general one."""

    large: int = LARGEST

    def set_aside(self, offset: int, because: str = "a test record of the till") -> AsideOrder:
        return self.setting_aside(offset).run(by="ann", because=because)

    def setting_aside(self, offset: int, topic: str | None = None) -> SettingAside:
        place = RecordPlace(topic=topic or self.topic("sales"), partition=0, offset=offset)
        return SettingAside(settings=self.settings, topology=self.topology, place=place)

    def published(self) -> list[tuple[str, int, int]]:
        [sink] = self.topology.written
        return sorted((row[sink.key], row.sales, row.spent) for row in self.rows(sink))

    def certificate(self, audited: CertifiedAudit) -> Mapping[str, Any]:
        return json.loads(audited.certificate.read_text())


def raising(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A function of a result: it cannot take the sum of a large sale."""
    if row["spent"] > 1_000:
        raise ValueError("no such discount")
    return row


@pytest.fixture(scope="module", params=["windows", "general"])
def counter(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    kafka: EmbeddedKafka,
    project: Project,
    tmp_path_factory: pytest.TempPathFactory,
) -> Counter:
    name = uuid.uuid4().hex[:8]
    sales = source_topic(f"sales-{name}", RecordSchema.of(amount=LONG))
    sums = stream(sales).windowed_by(tumbling("5 min", grace="0 s")).aggregate(sales=count(), spent=total("amount"))
    sink = replace(output_topic(f"sums-{name}"), configs={"max.message.bytes": "1000"})
    flow = (
        sums.emit_final()
        if request.param == "windows"
        else sums.emit_each_record().map(raising, sales=LONG, spent=LONG)
    )
    topology = Topology(name=f"sums-{name}", sinks=[flow.to(sink, table="sums")])
    root = tmp_path_factory.mktemp("aside")
    large = LARGEST if request.param == "windows" else 5_000
    settings = settings_below(root, kafka, project)
    if request.param == "windows":
        settings = replace(settings, keys=str(root / "keys"))
        make_keys(root / "keys", reports=Path(settings.reports))
    return Counter(spark=spark, settings=settings, topology=topology, large=large).create_topics()


def sale(who: str, minute: float, amount: int) -> tuple[str, int, str, float, Mapping[str, int]]:
    return ("sales", 0, who, minute, {"amount": amount})


def test_a_stream_goes_on_without_the_record_at_which_it_stopped(counter: Counter) -> None:
    counter.produce([sale("ann", 0, 5), sale("bob", 1, 7), sale("bob", 20, 1)])
    counter.run()
    counter.produce([sale("bob", 21, 2), sale("bob", 22, counter.large), sale("ann", 40, 3)])
    with pytest.raises(OfARecord) as stopped:
        counter.run()
    name, topic = counter.topology.name, counter.topic("sales")
    assert f"recount set-aside {name} {topic}-0@4" in stopped.value.remedy or (
        f"{topic}-0@[3, 6): `recount set-aside {name} TOPIC-PARTITION@OFFSET" in stopped.value.remedy
    )
    with pytest.raises(OfARecord):
        counter.run()

    shown = counter.setting_aside(4)
    assert str(counter.large) in shown.shown(shown.checked())
    order = counter.set_aside(4)
    assert listed(counter.settings, counter.topology)[0].startswith(f"{topic}-0@4  not read yet")
    counter.run()
    assert listed(counter.settings, counter.topology)[0].startswith(f"{topic}-0@4  a dead letter")

    driver = TopologyDriver(counter.topology, set_aside=[f"{topic}-0@4"])
    for who, minute, amount in [
        ("ann", 0, 5),
        ("bob", 1, 7),
        ("bob", 20, 1),
        ("bob", 21, 2),
        ("bob", 22, counter.large),
    ]:
        fate = driver.pipe(topic, key=who, value={"amount": amount}, timestamp_ms=START_MS + minute * 60_000)
    assert fate == "dead-lettered"
    assert [letter.reason for letter in driver.dead_letters] == ["set-aside"]
    driver.pipe(topic, key="ann", value={"amount": 3}, timestamp_ms=START_MS + 40 * 60_000)
    [sink] = counter.topology.written
    said = sorted(
        (one.key, one.value["sales"], one.value["spent"]) for one in driver.read(sink.topic.name) if one.value
    )
    assert counter.published() == said
    rejected = counter.spark.read.format("delta").load(counter.tables.rejected(name)).collect()
    assert [(row.offset, row.reason) for row in rejected] == [(4, "set-aside")]

    audited = counter.audit()
    assert audited.findings.differences == ()
    certificate = counter.certificate(audited)
    assert certificate["outcome"] == "match"
    assert certificate["totals"]["dead_lettered"] == 1
    [one] = certificate["set_aside"]
    assert (one["topic"], one["offset"], one["by"], one["because"]) == (topic, 4, "ann", "a test record of the till")
    unsigned = f"{order.place} was set aside by ann: {order.because}; nobody has signed the order"
    assert certificate["warnings"] == ([] if counter.settings.keys else [unsigned])
    assert bool(one["signature"]) == bool(counter.settings.keys)
    if counter.settings.keys:
        assert counter.audit(from_the_beginning=True).findings.differences == ()
    assert verify_file(audited.certificate)


def test_a_record_that_a_batch_has_read_is_not_set_aside_any_more(counter: Counter) -> None:
    with pytest.raises(AlreadyRead):
        counter.set_aside(3)
    with pytest.raises(Terminal, match="no such record"):
        counter.set_aside(100)
    with pytest.raises(Terminal, match="does not read"):
        counter.setting_aside(0, topic="others").checked()
    with pytest.raises(Terminal, match="nobody can say"):
        counter.set_aside(100, because=" ")


def test_a_result_that_its_topic_does_not_take_is_named_and_its_record_set_aside(counter: Counter) -> None:
    counter.produce([sale(os.urandom(1_000).hex(), 50, 1), sale("ann", 70, 1)])
    with pytest.raises(RecordTooLarge) as stopped:
        counter.run()
    [sink] = counter.topology.written
    assert sink.topic.name in stopped.value.what
    assert "of 2,000 bytes" in str(stopped.value.given)
    assert "1,000 bytes" in stopped.value.expected
    assert f"{counter.topic('sales')}-0@[6, 8): `recount set-aside" in stopped.value.remedy
    counter.set_aside(6)
    counter.run()
    audited = counter.audit()
    assert audited.findings.differences == ()
    assert audited.findings.counts["completeness kept"] > 0


def test_an_order_that_nobody_may_give_hides_no_record(counter: Counter) -> None:
    """Somebody who may write to the table of orders, and has no key, lets the stream pass over a record.

    And says so of another one, which an audit has judged already.
    """
    counter.produce([sale("bob", 90, 500), sale("ann", 120, 1)])
    log = AsideLog(counter.settings.data, counter.topology.name)
    first = log.orders(1)[0]
    for offset in (8, 3):
        log.append(replace(first, offset=offset, by="bob").hashed(None))
    counter.run()
    certificate = counter.certificate(counter.audit())
    place, judged = f"{counter.topic('sales')}-0@8", f"{counter.topic('sales')}-0@3"
    assert certificate["outcome"] == "violation"
    forged = {
        one["evidence"][0]: one["verdict"]
        for one in certificate["differences"]
        if one["place"] == f"table set-aside/{counter.topology.name}"
    }
    if not counter.settings.keys:
        assert [one["by"] for one in certificate["set_aside"]].count("bob") == 1
        assert certificate["warnings"][0].startswith(f"{place} was set aside by bob")
        assert forged == {judged: "extra"}
        return
    assert [one["by"] for one in certificate["set_aside"]] == ["ann", "ann"]
    assert forged == {place: "extra", judged: "extra"}
    wrong = [one for one in certificate["differences"] if place in one["evidence"]]
    assert {one["kind"] for one in wrong} >= {"dead letters"}


def test_an_order_of_the_version_before_a_reset_is_not_called_forged(counter: Counter) -> None:
    """The audits of the new version list no order of the former one, and judge records that lie behind its place."""
    table = f"set-aside/{counter.topology.name}"
    forged = {one.name for one in AsideLog(counter.settings.data, counter.topology.name).orders(1) if one.by == "bob"}
    Reset(counter.settings, counter.topology, "now").run()
    counter.produce([sale("ann", 150, 1)])
    counter.run()
    for from_the_beginning in (False, True):
        differences = counter.audit(from_the_beginning=from_the_beginning).findings.differences
        assert {one.place for one in differences} <= {f"table {table}"}
        assert {one.evidence[0] for one in differences} <= (forged if counter.settings.keys else set())


LARGEST_RESULT = 4_096
FITS = largest_result(LARGEST_RESULT)
ROOM = FITS - len('ann{"text":""}')


@pytest.fixture
def posts(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path_factory: pytest.TempPathFactory
) -> Stage:
    """Posts on their way to a topic that takes 4,096 bytes."""
    name = f"posts-{uuid.uuid4().hex[:8]}"
    wall = replace(output_topic(f"wall-{name}"), configs={"max.message.bytes": str(LARGEST_RESULT)})
    flow = stream(source_topic(name, RecordSchema.of(text=STRING))).to(wall, table="wall", on_too_large="dead-letter")
    settings = settings_below(tmp_path_factory.mktemp("posts"), kafka, project)
    return Stage(spark=spark, settings=settings, topology=Topology(name=f"wall-{name}", sinks=[flow])).create_topics()


def post(minute: float, many: int) -> Said:
    return ("posts", 0, "ann", minute, {"text": "x" * many})


def limited(posts: Stage, limit: int) -> Topology:
    """The same declaration at work in a stream that goes by another limit, as a faulty one would."""
    [sink] = posts.topology.sinks
    above = sink.input
    assert isinstance(above, Filter)
    assert isinstance(above.predicate, Fits)
    wrong = replace(above.predicate, limit=limit)
    return replace(posts.topology, sinks=[replace(sink, input=replace(above, predicate=wrong))])


def rejected(posts: Stage) -> list[tuple[int, str]]:
    path = posts.tables.rejected(posts.topology.name)
    return sorted((row.offset, row.reason) for row in posts.spark.read.format("delta").load(path).collect())


def test_a_result_that_its_topic_does_not_take_is_a_dead_letter_and_the_audit_agrees(posts: Stage) -> None:
    posts.produce([post(0, 5), post(1, ROOM), post(2, ROOM + 1), post(3, 10 * LARGEST_RESULT), post(4, 7)])
    posts.run()
    [sink] = posts.topology.written
    assert [len(row.text) for row in posts.rows(sink)] == [5, ROOM, 7]
    reason = f"too-large: result for {sink.topic.name}, limit {FITS}"
    assert rejected(posts) == [(2, reason), (3, reason)]

    found = posts.audit().findings
    assert (found.differences, found.counts["kafka match"], found.counts["delta match"]) == ((), 3, 3)
    assert [account.dead_lettered for account in found.accounts] == [2]


def test_a_result_that_was_dropped_as_if_it_were_too_large_is_lost_and_one_too_many_is_extra(posts: Stage) -> None:
    sound = posts.topology
    posts.produce([post(0, 5), post(1, ROOM)])
    replace(posts, topology=limited(posts, FITS - 1)).run()
    posts.produce([post(2, ROOM + 1)])
    replace(posts, topology=limited(posts, FITS + 1)).run()
    [sink] = sound.written
    assert [len(row.text) for row in posts.rows(sink)] == [5, ROOM + 1]

    source = posts.topic("posts")
    outputs = {f"topic {sink.topic.name}", "table outputs/wall"}
    differences = posts.audit().findings.differences
    of_results = {(one.place, one.verdict, one.origin) for one in differences if one.place in outputs}
    expected = {("lost", f"{source}-0@1"), ("extra", f"{source}-0@2")}
    assert of_results == {(place, *verdict) for place in outputs for verdict in expected}


def append(producer: Producer, scene: Scene, minutes: range) -> None:
    producer.begin_transaction()
    for minute in minutes:
        value = json.dumps(order("EU", 1)).encode()
        producer.produce(scene.orders, value=value, partition=0, timestamp=START_MS + minute * MINUTE_MS)
    producer.flush(30)


def test_every_offset_of_a_transactional_producer_is_accounted_for(scene: Scene) -> None:
    producer = scene.connection.producer({"transactional.id": f"orders of {scene.orders}"})
    producer.init_transactions(30)
    append(producer, scene, range(10))
    producer.commit_transaction(30)
    append(producer, scene, range(10, 13))
    producer.abort_transaction(30)
    append(producer, scene, range(10, 20))
    producer.commit_transaction(30)
    scene.run()

    found = scene.audit().findings

    assert found.outcome == "match"
    [account, empty] = found.accounts
    assert (account.end, account.records, account.control, account.aborted, account.unaccounted) == (26, 20, 3, 3, 0)
    assert (empty.end, empty.records) == (0, 0)
