"""On a cluster, a worker and a broker killed with -9 in the middle change nothing of what a stream writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from bench.deployment import CLUSTER, EMBEDDED, Deployment, deployed
from bench.flow import Flow
from bench.scale_run import JOB, LOSSES, Reading, read_all
from bench.written import Written

from recount.profile.home import Project

pytestmark = pytest.mark.timeout(600)
FLOW = Flow(topic="orders", records=6_000, per_second=10)
MAX_OFFSETS = FLOW.records // 6 + 100
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A dozen JVMs that live for seconds: their optimising compilers would take longer than what they compile for."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Iterator[Deployment]:
    """Three brokers and two workers, the flow in its topic."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_TOOL_OPTIONS", SHORT_LIVED)
        with deployed(CLUSTER, tmp_path_factory.mktemp("cluster"), project) as cluster:
            cluster.topics.create_source(FLOW.topic)
            FLOW.produce(cluster.connection.producer())
            yield cluster


def written(cluster: Deployment, reading: Reading) -> Written:
    return Written.by(cluster, JOB.topology(reading.stream, FLOW.topic, f"{reading.stream}-results"))


def test_a_stream_that_loses_a_worker_and_a_broker_writes_what_an_undisturbed_local_one_writes(
    cluster: Deployment,
) -> None:
    local = replace(cluster, shape=EMBEDDED, spark=None)
    calm = read_all(local, "calm", FLOW, MAX_OFFSETS)
    struck = read_all(cluster, "struck", FLOW, MAX_OFFSETS, LOSSES)
    assert list(struck.pauses_s) == ["a worker", "a broker"]
    assert calm.counted == struck.counted == struck.on_time
    truth, found = written(cluster, calm), written(cluster, struck)
    assert all(truth.parts[part].height for part in ("results in Kafka", "results in Delta", "table of late"))
    assert truth.differences(found) == []
