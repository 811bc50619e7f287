"""The same topic read in batches of three sizes, one reading killed with -9: the output is the same to the byte."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.integration.engine.drivers import Deployment, by_key, committed, delta_rows, proofs
from tests.integration.engine.purchases import create_topics, produce, purchases
from tests.integration.engine.streams import cut_archive, cut_purchases, large, medium, small

from recount.declare.columns import BATCH, GENERATION
from recount.tables.ledger import BatchProof

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1_200)]
RECORDS = 1_500
STREAMS = ("small", "medium", "large")


@pytest.fixture(scope="module")
def read(deployment: Deployment) -> Deployment:
    """All streams have read all of the topic; two were killed between their two commits, and bereft of their plans.

    A stream of results commits to Kafka first, an archive to Delta.
    """
    create_topics(deployment.connection, [small, medium, large])
    produce(deployment.connection, purchases(cut_purchases.name, 0, RECORDS))
    driver = deployment.project.root / "tests" / "chaos" / "driver.py"
    whole = [*("large", "1000000", "never", "0"), *("medium", "700", "never", "0")]
    archive, results = (cut_archive.name, "600"), ("small", "300")
    for runs in ([*whole, *archive, "delta committed", "1"], [*results, "kafka committed", "2"]):
        killed = deployment.start(driver, *runs)
        assert killed.finish() == -signal.SIGKILL, killed.said()
    for name, _ in (archive, results):
        shutil.rmtree(Path(deployment.settings.checkpoints) / name)
    resumed = deployment.start(driver, *archive, "never", "0", *results, "never", "0")
    assert resumed.finish() == 0, resumed.said()
    assert "completing batch 0/2" in resumed.said()
    return deployment


def test_the_streams_cut_the_log_differently(read: Deployment) -> None:
    batches = {stream: len(proofs(read.tables.state(stream))) for stream in STREAMS}
    assert batches["large"] == 1 < batches["medium"] < batches["small"]


def test_the_final_output_is_byte_identical(read: Deployment) -> None:
    outputs = {stream: by_key(committed(read.connection, f"{stream}-revenue")) for stream in STREAMS}
    assert len(outputs["large"]) == 4
    assert outputs["small"] == outputs["medium"] == outputs["large"]


@pytest.mark.parametrize("table", ["late", "rejected"])
def test_the_same_records_are_late_and_the_same_are_bad(read: Deployment, table: str) -> None:
    found = {stream: without_batch(delta_rows(getattr(read.tables, table)(stream))) for stream in STREAMS}
    assert found["large"]
    assert found["small"] == found["medium"] == found["large"]


def test_the_delta_output_is_the_kafka_output(read: Deployment) -> None:
    rows = delta_rows(read.tables.output("small_revenue"))
    assert len(rows) == len(committed(read.connection, "small-revenue"))
    assert without_batch(rows) == without_batch(delta_rows(read.tables.output("large_revenue")))


@pytest.mark.parametrize("stream", STREAMS)
def test_the_ledger_accounts_for_every_offset_once(read: Deployment, stream: str) -> None:
    assert_each_offset_once(proofs(read.tables.state(stream)), RECORDS)


def test_the_archive_is_the_topic(read: Deployment) -> None:
    rows = delta_rows(read.tables.archive(cut_purchases.name))
    archived = [
        (row["partition"], row["offset"], row["timestamp_ms"], row["key"], row["value"], headers(row)) for row in rows
    ]
    assert sorted(archived) == sorted(
        (record.partition(), record.offset(), record.timestamp()[1], record.key(), record.value(), record.headers())
        for record in committed(read.connection, cut_purchases.name)
    )


def headers(row: dict[str, Any]) -> list[tuple[str, bytes]]:
    return [(header["key"], header["value"]) for header in row["headers"]]


def without_batch(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as text, in order, without the batch that wrote them."""
    return sorted(str({name: cell for name, cell in row.items() if name not in (GENERATION, BATCH)}) for row in rows)


def assert_each_offset_once(ledger: list[BatchProof], records: int, unseen: int = 0) -> None:
    """The ranges of the batches follow each other without a gap or an overlap, and each record has one fate.

    ``unseen`` are markers of transactions and aborted records.
    """
    reached: dict[int, int] = {}
    fates = 0
    for proof in sorted(ledger, key=lambda proof: proof.order):
        for part in proof.partitions:
            assert part.start == reached.get(part.partition, 0)
            reached[part.partition] = part.end
            fates += part.counted + part.late + part.filtered + part.null_key + part.dead_lettered
    assert (sum(reached.values()), fates) == (records + unseen, records)
