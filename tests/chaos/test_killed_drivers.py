"""A driver killed with -9 at any point changes nothing: not the Kafka output, not the tables, not the proofs.

One undisturbed run is the truth. The other streams read the same topic in the same batches and are killed again and
again; every death is followed by a restart, and the last driver runs to the end.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.driver import IN_TRANSACTION
from tests.chaos.streams import (
    calm,
    calm_journeys,
    chaos_deliveries,
    chaos_purchases,
    killed,
    killed_journeys,
)
from tests.integration.engine.drivers import Deployment, Driver, by_key, committed, delta_rows, proofs
from tests.integration.engine.purchases import create_topics, deliveries, produce, purchases

from recount.kafka.dead_letters import SOURCE_OFFSET, SOURCE_PARTITION
from recount.kafka.offsets import committed_offsets, partitions_of
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.project import Project

RECORDS, MAX_OFFSETS = 2_700, 450
BATCHES = RECORDS // MAX_OFFSETS

pytestmark = pytest.mark.timeout(1_200)
DRIVER = Path(__file__).parent / "driver.py"


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, project: Project, kafka: EmbeddedKafka
) -> Iterator[Deployment]:
    """The flow on a topic, and the undisturbed run over it."""
    deployment = Deployment.below(
        tmp_path_factory.mktemp("chaos"), project, kafka.bootstrap_servers, "tests.chaos.streams"
    )
    create_topics(deployment.connection, [calm, killed, calm_journeys, killed_journeys])
    bought = list(purchases(chaos_purchases.name, 0, RECORDS))
    produce(deployment.connection, [*bought, *deliveries(chaos_deliveries.name, bought)])
    try:
        undisturbed = run(deployment, "calm", "never", 0)
        assert undisturbed.finish() == 0, undisturbed.said()
        yield deployment
    finally:
        deployment.kill_all()


def run(deployment: Deployment, stream: str, step: str, batch: int) -> Driver:
    return deployment.start(DRIVER, stream, str(MAX_OFFSETS), step, str(batch))


def read_up_to(deployment: Deployment, stream: str) -> int:
    """How many source offsets the committed Kafka transactions of ``stream`` cover."""
    partitions = partitions_of(deployment.connection, chaos_purchases.name)
    return sum(committed_offsets(deployment.connection, f"recount.{stream}", partitions).values())


def left_behind(deployment: Deployment, stream: str) -> dict[str, Any]:
    """All that ``stream`` has written, without what names the stream, the driver or the hour."""
    tables, connection = deployment.tables, deployment.connection
    return {
        "kafka": by_key(committed(connection, f"{stream}-revenue")),
        "state": sorted(map(str, delta_rows(tables.state(stream)))),
        "late": sorted(map(str, delta_rows(tables.late(stream)))),
        "rejected": sorted(map(str, delta_rows(tables.rejected(stream)))),
        "output": sorted(map(str, delta_rows(tables.output(f"{stream}_revenue")))),
        "proofs": [
            replace(
                proof,
                stream="",
                checkpoint_id="",
                lease_epoch=0,
                fingerprint="",
                batch_timestamp_ms=0,
                partitions=tuple(replace(partition, last_read_ms=None) for partition in proof.partitions),
                emitted=dict(enumerate(proof.emitted.values())),
                appended={},
                topic_ids={chaos_purchases.name: proof.topic_ids[chaos_purchases.name]},
            )
            for proof in proofs(tables.state(stream))
        ],
    }


def dead_letters(deployment: Deployment) -> Counter[tuple[int, int]]:
    """How often each source (partition, offset) is in the dead-letter topic, which the streams share."""
    headers = [dict(record.headers()) for record in committed(deployment.connection, chaos_purchases.dead_letter_name)]
    return Counter((int(found[SOURCE_PARTITION]), int(found[SOURCE_OFFSET])) for found in headers)


def assert_nothing_differs(deployment: Deployment, stream: str, buried_before: Counter[tuple[int, int]]) -> None:
    truth, found = left_behind(deployment, "calm"), left_behind(deployment, stream)
    for name, expected in truth.items():
        assert expected, f"the undisturbed run has no {name}: nothing is compared"
        assert found[name] == expected, name
    assert len(truth["proofs"]) == BATCHES
    rejected = delta_rows(deployment.tables.rejected("calm"))
    assert dead_letters(deployment) - buried_before == Counter((row["partition"], row["offset"]) for row in rejected)


def test_a_driver_killed_before_between_and_after_its_commits_leaves_no_difference(deployment: Deployment) -> None:
    deaths = [("mapped", 1), ("kafka committed", 2), ("delta committed", 3), (IN_TRANSACTION, 4)]
    state, buried = deployment.tables.state("killed"), dead_letters(deployment)
    for step, batch in deaths:
        driver = run(deployment, "killed", step, batch)
        assert driver.finish() == -signal.SIGKILL, driver.said()
        # the kill came where it was meant to: the batch is in Kafka, in Delta, in both or in neither
        in_kafka = read_up_to(deployment, "killed") > batch * MAX_OFFSETS
        in_delta = any(proof.batch == batch for proof in proofs(state))
        assert in_kafka == (step in ("kafka committed", "delta committed")), step
        assert in_delta == (step == "delta committed"), step
    written = committed(deployment.connection, "killed-revenue", "read_uncommitted")
    assert len(written) > len(committed(deployment.connection, "killed-revenue"))

    last = run(deployment, "killed", "never", 0)
    assert last.finish() == 0, last.said()
    assert_nothing_differs(deployment, "killed", buried)


@pytest.mark.thorough
def test_a_killed_join_with_sessions_leaves_no_difference(deployment: Deployment) -> None:
    undisturbed = run(deployment, "calm-journeys", "never", 0)
    assert undisturbed.finish() == 0, undisturbed.said()
    # what comes after has the state of two batches, and repeats the third
    driver = run(deployment, "killed-journeys", "kafka committed", 2)
    assert driver.finish() == -signal.SIGKILL, driver.said()
    last = run(deployment, "killed-journeys", "never", 0)
    assert last.finish() == 0, last.said()

    truth, found = (
        {
            "delivered": by_key(committed(deployment.connection, f"{name}-journeys-delivered")),
            "busy": by_key(committed(deployment.connection, f"{name}-journeys-busy")),
            "state": sorted(map(str, delta_rows(deployment.tables.state(f"{name}-journeys")))),
            "late": sorted(map(str, delta_rows(deployment.tables.late(f"{name}-journeys")))),
        }
        for name in ("calm", "killed")
    )
    for what, expected in truth.items():
        assert expected, f"the undisturbed run has no {what}: nothing is compared"
        assert found[what] == expected, what
