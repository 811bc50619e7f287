"""A stream with a target of time: a backlog in large batches, then small ones, and the output does not show it."""

from __future__ import annotations

import pytest
from tests.integration.engine.drivers import Deployment, assert_each_offset_once, by_key, committed, proofs
from tests.integration.engine.purchases import create_topics, produce, purchases
from tests.integration.engine.streams import backlog_purchases, paced, unpaced

from recount.kafka.leases import request_stop
from recount.tables.ledger import BatchProof

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1_200)]
LARGEST, SMALLEST = 10_000, 1_000
BACKLOG, AFTERWARDS = 32_000, 3_000
"""Two batches of the largest size leave more than ten of the smallest behind: still far."""


def records_of(proof: BatchProof) -> int:
    return sum(partition.end - partition.start for partition in proof.partitions)


def caught_up(deployment: Deployment, records: int) -> bool:
    return sum(map(records_of, proofs(deployment.tables.state("paced")))) == records


@pytest.fixture(scope="module")
def sizes(deployment: Deployment) -> list[int]:
    """The sizes of the batches of a stream whose target no batch can reach, on a backlog and on what comes then."""
    connection = deployment.connection
    create_topics(connection, [paced, unpaced])
    produce(connection, purchases(backlog_purchases.name, 0, BACKLOG))
    driver = deployment.start_stream("paced", "--max-offsets", str(LARGEST), "--target-batch-ms", "1")
    driver.until(lambda log: f"batches of at most {SMALLEST} records" in log)
    driver.until(lambda _: caught_up(deployment, BACKLOG))
    produce(connection, purchases(backlog_purchases.name, BACKLOG, AFTERWARDS))
    driver.until(lambda _: caught_up(deployment, BACKLOG + AFTERWARDS))
    request_stop(connection, "paced", 1)
    assert driver.finish() == 0, driver.said()
    at_once = deployment.start_stream("unpaced", "--available-now")
    assert at_once.finish() == 0, at_once.said()
    return [records_of(proof) for proof in proofs(deployment.tables.state("paced"))]


def test_a_backlog_is_read_in_large_batches(sizes: list[int]) -> None:
    assert all(LARGEST - 3 <= size <= LARGEST for size in sizes[:3]), sizes


def test_a_stream_that_has_caught_up_reads_small_ones(sizes: list[int]) -> None:
    behind = next(batch for batch in range(len(sizes)) if sum(sizes[:batch]) >= BACKLOG)
    assert max(sizes[behind:]) <= SMALLEST, sizes


def test_the_output_is_that_of_one_large_batch(sizes: list[int], deployment: Deployment) -> None:
    assert len(sizes) > len(proofs(deployment.tables.state("unpaced"))) == 1
    assert_each_offset_once(proofs(deployment.tables.state("paced")), BACKLOG + AFTERWARDS)
    paced_output, unpaced_output = (
        by_key(committed(deployment.connection, f"{name}-revenue")) for name in ("paced", "unpaced")
    )
    assert paced_output == unpaced_output
