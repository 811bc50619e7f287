"""Every declared stream can be recomputed night after night: all nights together say what the whole log says."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.recompute.stretches import Stretched, differences, stretch_by_stretch, whole
from tests.spark.recompute.test_shop_streams import SHOP, raw_log
from tests.unit.topologies.shop_log import PARTITIONS, Arrival, closing, shop_log, topics_of

from recount.audit.compare.identity import identity_of
from recount.declare.topology import Topology
from recount.recompute.operators.frontiers import BatchEnds
from recount.recompute.operators.log_tables import TableEnds

LOOK_BACK_MS = 0
"""Whatever it is, no record on time may miss what it needs."""
KINDS = (
    "click-sessions",
    "views-last-100",
    "unpaid-orders",
    "customer-accounts",
    "orders-deduplicated",
    "fraud-alerts",
)
FURTHER = ("views-sliding-30-s", "method-totals", "customer-stats", "page-popularity", "departed-users")
"""A stream for each kind of what is carried; the ``FURTHER`` ones are thorough tests, ``make laws`` takes all."""
STREAMS = (
    list(SHOP)
    if "LAW_EXAMPLES" in os.environ
    else [*KINDS, *(pytest.param(name, marks=pytest.mark.thorough) for name in FURTHER)]
)


def batches_of(log: Sequence[Arrival], topics: Sequence[str], size: int) -> list[BatchEnds]:
    """A batch for every ``size`` records, in the order in which they came."""
    ends = {(topic, partition): 0 for topic in topics for partition in range(PARTITIONS)}
    batches = []
    for number, one in enumerate(log, start=1):
        ends[one.topic, one.partition] += 1
        if number % size == 0 or number == len(log):
            batches.append(BatchEnds(ends=dict(ends), awake=frozenset(ends)))
    return batches


@pytest.mark.parametrize("name", STREAMS)
def test_nights_together_are_the_whole_log(spark: SparkSession, name: str, tmp_path: Path) -> None:
    topology = SHOP[name]
    one = stretched(spark, topology)
    expected = whole(spark, one)
    assert all(expected.rows.values())
    assert not differences(stretch_by_stretch(spark, one, cuts_of(one), tmp_path), expected, topology)


@pytest.mark.parametrize("name", ["views-session-10-min", "product-revenue", "order-balances"])
def test_nights_without_lateness_are_the_whole_log_without_it(spark: SparkSession, name: str, tmp_path: Path) -> None:
    """As far as the look back goes, which is longer than any record of this log is late."""
    one = replace(stretched(spark, SHOP[name]), lateness=False, look_back_ms=86_400_000)
    expected = whole(spark, one)
    assert not differences(stretch_by_stretch(spark, one, cuts_of(one), tmp_path), expected, SHOP[name])


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["enriched-orders-by-customer", "enriched-events"])
def test_records_are_looked_up_again_where_a_table_changes_late(spark: SparkSession, name: str, tmp_path: Path) -> None:
    one = replace(stretched(spark, SHOP[name], mixed=True), lateness=False, look_back_ms=86_400_000)
    expected = whole(spark, one)
    assert not differences(stretch_by_stretch(spark, one, cuts_of(one), tmp_path), expected, SHOP[name])
    forgetful = replace(one, look_back_ms=0)
    (tmp_path / "forgetful").mkdir()
    found = stretch_by_stretch(spark, forgetful, cuts_of(one), tmp_path / "forgetful")
    assert differences(found, expected, SHOP[name]), "no change of this log is late"


@pytest.mark.parametrize(
    ("name", "lost"),
    [("click-sessions", "-records"), ("customer-stats", "-amounts"), ("unpaid-orders", "-side-1")],
)
def test_the_law_notices_what_was_not_carried(spark: SparkSession, name: str, lost: str, tmp_path: Path) -> None:
    one = stretched(spark, SHOP[name])
    found = stretch_by_stretch(spark, one, cuts_of(one), tmp_path, lost=lost)
    assert differences(found, whole(spark, one), one.topology)


def stretched(session: SparkSession, topology: Topology, *, mixed: bool = False) -> Stretched:
    """Tables are written first, unless records and changes come ``mixed``."""
    topics = topics_of(topology)
    log = shop_log(topics, seed=11, length=40)
    if mixed:
        last = len(closing(topics))
        log[:-last] = random.Random(11).sample(log[:-last], len(log) - last)
    batches = batches_of(log, topics, size=len(topics) * 5)
    return Stretched(
        topology=topology,
        logs={topic: raw_log(session, log, topic) for topic in topics},
        batches=batches,
        identities=[identity_of(written) for written in topology.written],
        look_back_ms=LOOK_BACK_MS,
        table_ends=ends_of_tables(batches),
    )


def cuts_of(one: Stretched) -> list[int]:
    """In the middle, and before all time passes."""
    return [len(one.batches) // 2, len(one.batches) - 1]


def ends_of_tables(batches: Sequence[BatchEnds]) -> list[TableEnds]:
    """For the records of every batch how far it read everything."""
    before = [dict.fromkeys(batches[0].ends, 0), *(batch.ends for batch in batches)]
    return [
        TableEnds(topic=topic, partition=partition, start=start[topic, partition], end=end, read=batch.ends)
        for start, batch in zip(before, batches, strict=False)
        for (topic, partition), end in batch.ends.items()
        if start[topic, partition] < end
    ]
