"""A sink that sets aside what its topic does not take, on a broker: audits agree, and find what was dropped."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from tests.spark.audit.stage import Said, Stage, output_topic, settings_below, source_topic

from recount.declare.operators.nodes import Filter
from recount.declare.output import Fits, largest_result
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topology import Topology, stream
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project

pytestmark = pytest.mark.timeout(900)
LARGEST = 4_096
FITS = largest_result(LARGEST)
ROOM = FITS - len('ann{"text":""}')


@pytest.fixture
def posts(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path_factory: pytest.TempPathFactory
) -> Stage:
    """Posts on their way to a topic that takes 4,096 bytes."""
    name = f"posts-{uuid.uuid4().hex[:8]}"
    wall = replace(output_topic(f"wall-{name}"), configs={"max.message.bytes": str(LARGEST)})
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
    posts.produce([post(0, 5), post(1, ROOM), post(2, ROOM + 1), post(3, 10 * LARGEST), post(4, 7)])
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
