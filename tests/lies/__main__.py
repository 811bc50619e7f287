"""Each audit of the shop that is green turns red for every lie that fits: ``python -m tests.lies [--publish]``.

Ends with 1 where an honest audit is not green, a lie is not found, or something else is.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.lies.lies import Found, tell_all
from tests.lies.page import PAGE, Judged, page
from tests.long_programs import deployed
from tests.spark.audit.stage import Stage, configure, send
from tests.unit.topologies.shop_log import CLOSING_MS, Arrival, closing, shop_log, topics_of

from recount.certificate.finding import Difference
from recount.declare.registry import declared
from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.runtime.settings import Settings

RECORDS = 120
"""Of each source topic, for each of the ``SHOPS``: other people with other orders, so that each lie has a key left."""
SHOPS = ("", "-north", "-south", "-east")
_NAMES = ("order_id", "customer_id", "user_id", "product", "region", "tier", "method")
_UNCOMPACTED = {"min.compaction.lag.ms": str(365 * 86_400_000)}
"""The last streams read tables minutes after their records were written, which look five days old."""
MAX_OFFSETS = 200
"""Of a batch: so few that rows are revised from batch to batch."""
FEWEST = 3
"""Lies that must fit each sink: there are rows to lie about."""


def _write(settings: Settings, topologies: list[Topology], seed: int) -> None:
    """The same log for everybody: every source topic once, its last records of this moment: no retention takes them.

    A last record in each partition: without it no window would be final before the silent ones count as idle.
    """
    later_ms = time.time_ns() // 1_000_000 - CLOSING_MS
    topics = list(dict.fromkeys(topic for topology in topologies for topic in topics_of(topology)))
    partitions = {source.topic.name: source.topic.partitions for one in topologies for source in one.sources}
    shops = [_renamed(one, shop) for one in shop_log(topics, seed, RECORDS) if _is_open(one) for shop in SHOPS]
    last = [one for topic in topics for one in closing([topic], partitions[topic])]
    log = [replace(one, timestamp_ms=one.timestamp_ms + later_ms) for one in [*shops, *last]]
    send(Connection.of(settings), log)


def _is_open(one: Arrival) -> bool:
    return one.timestamp_ms < CLOSING_MS


def _renamed(one: Arrival, shop: str) -> Arrival:
    """Of another shop: who and what it is about has another name, in the same partition."""
    try:
        value = json.loads(one.value or b"null")
    except ValueError:
        return one
    if not isinstance(value, dict):
        return one
    named = {name: f"{said}{shop}" if name in _NAMES and said is not None else said for name, said in value.items()}
    return replace(one, key=one.key and f"{one.key}{shop}", value=json.dumps(named).encode())


def _judged(stage: Stage) -> Judged:
    stage.run(max_offsets=MAX_OFFSETS)
    began = time.monotonic()
    honest = stage.audit()
    told = [lie for sink in stage.topology.written for lie in tell_all(stage, sink)]
    found = {_found(one) for one in stage.audit().findings.differences}
    expected = {seen for lie in told for seen in lie.seen}
    return Judged(
        stream=stage.topology.name,
        is_green=honest.findings.outcome == "match",
        told={lie: lie.seen <= found for lie in told},
        false_alarms=[f"{place} {seen}" for place, seen in sorted(found - expected, key=str)],
        sinks=[sink.topic.name for sink in stage.topology.written],
        seconds=time.monotonic() - began,
    )


def _found(difference: Difference) -> Found:
    named = next(iter(difference.evidence), "") if difference.key is None else difference.key
    return difference.place, (named, difference.window_start)


def main() -> None:
    """Tell all lies of all streams and say what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.lies", description=__doc__)
    parser.add_argument("--streams", nargs="*", help="only these")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--publish", action="store_true", help="write docs/operations/lies.md")
    given = parser.parse_args()
    topologies = [one for name, one in declared().topologies.items() if not given.streams or name in given.streams]
    judged = []
    with tempfile.TemporaryDirectory(prefix="recount-lies-") as root, deployed(Path(root)) as (session, settings):
        stages = [Stage(spark=session, settings=settings, topology=topology) for topology in topologies]
        for stage in stages:
            stage.create_topics()
        for topic in {
            one.topic.name
            for topology in topologies
            for one in topology.sources
            if "compact" in one.topic.cleanup_policy
        }:
            configure(Connection.of(settings), topic, _UNCOMPACTED)
        _write(settings, topologies, given.seed)
        for stage in stages:
            judged.append(_judged(stage))
            print(judged[-1], flush=True)
    if given.publish:
        PAGE.write_text(page(judged))
    missed = [f"{one.stream}: {lie.lie}" for one in judged for lie, found in one.told.items() if not found]
    alarms = [f"{one.stream}: {alarm}" for one in judged for alarm in one.false_alarms]
    red = [one.stream for one in judged if not one.is_green]
    few = [one.stream for one in judged if len(one.told) < FEWEST * len(one.sinks)]
    print(f"{len(judged)} streams; red before: {red}; missed: {missed}; false alarms: {alarms}; too few lies: {few}")
    sys.exit(1 if missed or alarms or red or few else 0)


if __name__ == "__main__":
    main()
