"""The page of a stream says which topic holds its results back, with times as people read them."""

from __future__ import annotations

from dataclasses import replace

from tests.batch_proofs import a_proof

from recount.pages.stream_detail import TablesSay
from recount.runtime.times import instant_ms
from recount.tables.ledger import PartitionProof

DAY_MS = 86_400_000
OLD_MS, NEW_MS = instant_ms("2013-03-18"), instant_ms("2026-11-29")


def at(topic: str, partition: int, at_ms: int | None) -> PartitionProof:
    return PartitionProof(topic=topic, partition=partition, start=0, end=1, stream_time_ms=at_ms)


def wait(*parts: PartitionProof, frontier_ms: int | None = OLD_MS, limit_ms: int = DAY_MS) -> str | None:
    return TablesSay(newest=a_proof(0, *parts, frontier_ms=frontier_ms)).results_wait(limit_ms)


def test_the_topic_behind_and_the_one_ahead_are_named_with_their_times() -> None:
    said = wait(at("departures", 0, OLD_MS), at("departures", 1, OLD_MS + 1), at("airlines", 0, NEW_MS))
    assert said == "Results wait: departures is at 2013-03-18 00:00:00, airlines is at 2026-11-29 00:00:00."


def test_of_one_topic_the_partitions_are_named() -> None:
    said = wait(at("orders", 0, NEW_MS), at("orders", 1, OLD_MS))
    assert said == "Results wait: orders-1 is at 2013-03-18 00:00:00, orders-0 is at 2026-11-29 00:00:00."


def test_none_is_named_within_the_limit_nor_where_it_is_idle_nor_before_there_is_a_frontier() -> None:
    near = (at("a", 0, OLD_MS), at("b", 0, OLD_MS + DAY_MS))
    assert wait(*near) is None
    assert wait(*near, limit_ms=DAY_MS - 1) is not None
    assert wait(replace(at("a", 0, OLD_MS), idle=True), at("b", 0, NEW_MS)) is None
    assert wait(at("a", 0, None), at("b", 0, NEW_MS)) is None
    assert wait(at("a", 0, OLD_MS), at("b", 0, NEW_MS), frontier_ms=None) is None
    assert TablesSay().results_wait(DAY_MS) is None
