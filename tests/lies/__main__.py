"""Each audit of the shop that is green turns red for every lie that fits: ``python -m tests.lies [--publish]``.

Ends with 1 where an honest audit is not green, a lie is not found, or something else is.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from tests.lies.lies import tell_all
from tests.lies.page import PAGE, Judged, page
from tests.local_spark import TINY, local_session
from tests.spark.audit.stage import Stage, settings_below
from tests.unit.topologies.shop_log import CLOSING_MS, shop_log, topics_of

from recount.core.registry import declared
from recount.core.settings import Settings
from recount.core.topology import Topology
from recount.kafka.connection import Connection
from recount.local.home import Home
from recount.local.kafka import EmbeddedKafka
from recount.local.project import Project

RECORDS = 300
"""Of each source topic."""


@contextmanager
def _deployment(root: Path) -> Iterator[tuple[SparkSession, Settings]]:
    project = Project.containing(Path(__file__).parent)
    with EmbeddedKafka(home=Home(path=root / "kafka"), project=project) as kafka:
        settings = settings_below(root, kafka, project)
        session = local_session(settings.jars, root, **TINY)
        try:
            yield session, settings
        finally:
            session.stop()


def _write(settings: Settings, topologies: list[Topology], seed: int) -> None:
    """The same log for everybody: every source topic once, its last records of this moment: no retention takes them."""
    later_ms = time.time_ns() // 1_000_000 - CLOSING_MS
    topics = list(dict.fromkeys(topic for topology in topologies for topic in topics_of(topology)))
    producer = Connection.of(settings).producer()
    for one in shop_log(topics, seed, RECORDS):
        producer.produce(
            one.topic, key=one.key, value=one.value, partition=one.partition, timestamp=one.timestamp_ms + later_ms
        )
    assert producer.flush(60) == 0


def _judged(stage: Stage) -> Judged:
    stage.run()
    began = time.monotonic()
    honest = stage.audit()
    told = [lie for sink in stage.topology.written for lie in tell_all(stage, sink)]
    found = {(one.place, one.key) for one in stage.audit().findings.differences}
    expected = {seen for lie in told for seen in lie.seen}
    return Judged(
        stream=stage.topology.name,
        is_green=honest.findings.outcome == "match",
        told={lie: lie.seen <= found for lie in told},
        false_alarms=[f"{place} {key}" for place, key in sorted(found - expected, key=str)],
        sinks=[sink.topic.name for sink in stage.topology.written],
        seconds=time.monotonic() - began,
    )


def main() -> None:
    """Tell all lies of all streams and say what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.lies", description=__doc__)
    parser.add_argument("--streams", nargs="*", help="only these")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--publish", action="store_true", help="write docs/operations/lies.md")
    given = parser.parse_args()
    # a SIGTERM shall stop the broker as Ctrl-C does
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    topologies = [one for name, one in declared().topologies.items() if not given.streams or name in given.streams]
    judged = []
    with tempfile.TemporaryDirectory(prefix="recount-lies-") as root, _deployment(Path(root)) as (session, settings):
        stages = [Stage(spark=session, settings=settings, topology=topology) for topology in topologies]
        for stage in stages:
            stage.create_topics()
        _write(settings, topologies, given.seed)
        for stage in stages:
            judged.append(_judged(stage))
            print(judged[-1], flush=True)
    if given.publish:
        PAGE.write_text(page(judged))
    missed = [f"{one.stream}: {lie.lie}" for one in judged for lie, found in one.told.items() if not found]
    alarms = [f"{one.stream}: {alarm}" for one in judged for alarm in one.false_alarms]
    red = [one.stream for one in judged if not one.is_green]
    print(f"{len(judged)} streams; red before: {red}; missed: {missed}; false alarms: {alarms}")
    sys.exit(1 if missed or alarms or red else 0)


if __name__ == "__main__":
    main()
