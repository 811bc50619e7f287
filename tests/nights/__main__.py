"""Night after night of a healthy project, every one audited: ``python -m tests.nights --nights 50 [--publish]``.

Three streams share a topic with bad, late and null records (``city.py``). Each night brings new rides and tariffs, runs
every stream up to its end and audits it; now and then a checkpoint is lost between two nights, or a backfill repairs
the misses. Whatever an audit finds beside grace misses is a false alarm; the last one must be repeated by
``verify --again``, and the chain of certificates must hold. Ends with 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.sql import SparkSession
from tests.local_spark import TINY, local_session
from tests.nights.city import STREAMS, archived_zones, fares, rides, zones
from tests.nights.report import PAGE, Night, page

from recount.audit.certificate.certificate_files import load
from recount.audit.certificate.signing import chain_in
from recount.audit.night import CertifiedAudit, audited
from recount.audit.repeated_audit import again
from recount.backfill.single_backfill import plan as planned_repair
from recount.backfill.single_backfill import repair
from recount.declare.topology import Topology
from recount.engine.commit.batch import TopologyWork
from recount.engine.driver.runner import RunOptions, StreamRunner
from recount.engine.upkeep.archive_stream import ArchiveWork
from recount.kafka.connection import Connection
from recount.kafka.offsets import classify_gap, log_ranges
from recount.kafka.topic_drift import dead_letter_topic, platform_topics
from recount.kafka.topics_on_cluster import apply, plan
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Home
from recount.profile.project import Project
from recount.runtime.settings import Settings
from recount.tables.places import Tables

MINUTE_MS = 60_000
NIGHT_MS = 24 * 60 * MINUTE_MS
START_MS = 1_700_006_400_000
RIDES_A_NIGHT = 600
LOST_CHECKPOINT_EVERY, BACKFILL_EVERY, COMPACTED_EVERY = 7, 5, 10
_TEN_YEARS_MS = 10 * 365 * 24 * 60 * MINUTE_MS
ZONES, DRIVERS = tuple(f"z{number}" for number in range(6)), tuple(f"driver {number}" for number in range(25))


@dataclass
class City:
    """Whoever writes to the topics; as random as ``seed``."""

    producer: Producer
    seed: int
    written: Counter[str] = field(default_factory=Counter)

    def live(self, night: int) -> None:
        """A day of rides, up to 4 minutes out of order, some late, some bad; tariffs change, one of them afterwards."""
        draw = random.Random(self.seed * 1_000 + night)
        begin_ms = START_MS + night * NIGHT_MS
        for number in range(RIDES_A_NIGHT):
            at_ms = begin_ms + number * NIGHT_MS // RIDES_A_NIGHT - draw.randrange(4 * MINUTE_MS)
            if number % 150 == 0:
                self._tariff(draw, at_ms)
            kind = draw.choices(("good", "late", "bad", "no zone", "null"), (950, 12, 4, 10, 3))[0]
            self.written[kind] += 1
            self._ride(draw, kind, f"{night}-{number}", at_ms)
        self.written["late tariff"] += 1
        self._tariff(draw, begin_ms + NIGHT_MS // 2)
        assert self.producer.flush(60) == 0

    def _ride(self, draw: random.Random, kind: str, number: str, at_ms: int) -> None:
        ride = {
            "batch": number,
            "revision": draw.choice(DRIVERS),
            "zone": None if kind == "no zone" else draw.choice(ZONES),
            "fare": f"{draw.uniform(3, 60):.2f}",
            "at": at_ms - (draw.randrange(20, 300) * MINUTE_MS if kind == "late" else 0),
        }
        bad = [b"{", b"\xff", json.dumps({**ride, "fare": "a lot"}).encode(), json.dumps({**ride, "at": None}).encode()]
        value = {"null": None, "bad": draw.choice(bad)}.get(kind, json.dumps(ride).encode())
        self.producer.produce(rides.name, key=number.encode(), value=value, partition=draw.randrange(3))

    def _tariff(self, draw: random.Random, at_ms: int) -> None:
        value = json.dumps({"tariff": draw.choice(("day", "night", "fair")), "origin": draw.randrange(100)}).encode()
        self.producer.produce(
            zones.name, key=draw.choice(ZONES).encode(), value=draw.choice((value, value, value, None)), timestamp=at_ms
        )


@dataclass(frozen=True)
class Deployment:
    """What lives through the nights."""

    session: SparkSession
    settings: Settings

    def create_topics(self) -> None:
        """All topics, kept for ever: the rides are of 2023."""
        letters = [replace(dead_letter_topic(topic), retention_ms=-1) for topic in (rides, zones)]
        outputs = [node.topic for topology in STREAMS for node in topology.written]
        admin = Connection.of(self.settings).admin()
        apply(admin, plan(admin, [*platform_topics(), rides, zones, *letters, *outputs], "embedded"))
        self._keep_zones_for(_TEN_YEARS_MS)

    def live(self, night: int, topology: Topology, max_offsets: int) -> tuple[Night, CertifiedAudit]:
        """Run ``topology`` over everything that is there, and audit it."""
        began = time.monotonic()
        options = RunOptions(available_now=True, max_offsets=max_offsets)
        work = TopologyWork(topology, self.settings.data, reports=self.settings.reports)
        StreamRunner(self.session, self.settings, work, options).run()
        ran = time.monotonic()
        audit = audited(self.session, self.settings, topology)
        document = load(audit.certificate)
        told = Night(
            night=night,
            stream=topology.name,
            outcome=document["outcome"],
            warnings=document["warnings"],
            misses=document["grace_misses_found"],
            dead_letters=document["totals"]["dead_lettered"],
            late=document["totals"]["late"],
            run_s=round(ran - began, 1),
            audit_s=round(time.monotonic() - ran, 1),
        )
        return told, audit

    def archive(self) -> None:
        """Copy what is new of the compacted topic to its archive."""
        work = ArchiveWork(self.session, archived_zones, self.settings.data)
        StreamRunner(self.session, self.settings, work, RunOptions(available_now=True)).run()

    def compact_zones(self) -> None:
        """Let the broker compact what every stream has read: the tariffs are of 2023, so an age cannot tell."""
        before, deadline = self.zones_compacted(), time.monotonic() + 120
        self._keep_zones_for(0)
        while self.zones_compacted() == before:
            assert time.monotonic() < deadline, "not compacted in two minutes"
            time.sleep(1)
        self._keep_zones_for(_TEN_YEARS_MS)

    def _keep_zones_for(self, age_ms: int) -> None:
        kept = ConfigEntry("min.compaction.lag.ms", str(age_ms), incremental_operation=AlterConfigOpType.SET)
        admin = Connection.of(self.settings).admin()
        resource = ConfigResource(ResourceType.TOPIC, zones.name, incremental_configs=[kept])
        admin.incremental_alter_configs([resource])[resource].result(15)

    def zones_compacted(self) -> int:
        """How many versions of tariffs Kafka has no more."""
        [(key, span)] = log_ranges(Connection.of(self.settings), [(zones.name, 0)]).items()
        return classify_gap(Connection.of(self.settings), *key, span.start, span.end).compacted

    def lose_checkpoint(self, topology: Topology) -> None:
        """As somebody who tidies up does."""
        shutil.rmtree(Path(self.settings.checkpoints) / topology.name)

    def backfill(self) -> int:
        """Repair all open misses of the fares; how many results."""
        return repair(
            self.session, self.settings, planned_repair(self.session, Tables(self.settings.data), fares)
        ).corrections

    def chain_faults(self, topology: Topology) -> list[str]:
        """What is wrong with the certificates of all nights."""
        folder = Path(self.settings.reports) / "certificates" / topology.name
        return [f"{topology.name}: {fault}" for fault in chain_in(folder, topology.name).faults()]


@contextmanager
def deployment(root: Path) -> Iterator[Deployment]:
    """A broker, Spark and folders below ``root``, ended in the end."""
    project = Project.containing(Path(__file__).parent)
    with EmbeddedKafka(home=Home(path=root / "kafka"), project=project) as kafka:
        folders = {name: str(root / name) for name in ("data", "checkpoints", "reports", "logs", "run")}
        jars = str(project.spark_jars)
        session = local_session(jars, root, **TINY)
        try:
            yield Deployment(
                session,
                Settings(profile="embedded", bootstrap_servers=kafka.bootstrap_servers, jars=jars, **folders),
            )
        finally:
            session.stop()


def lived(nights: int, seed: int, root: Path) -> tuple[list[Night], list[str], City]:
    """All nights, what was wrong beside them, and what was written."""
    found: list[Night] = []
    wrong: list[str] = []
    draw = random.Random(seed)
    with deployment(root) as deployed:
        deployed.create_topics()
        city = City(Connection.of(deployed.settings).producer(), seed)
        newest: dict[str, CertifiedAudit] = {}
        for night in range(nights):
            city.live(night)
            deployed.archive()
            for topology in STREAMS:
                told, newest[topology.name] = deployed.live(night, topology, draw.choice((97, 300, 5_000)))
                found.append(told)
                print(told, flush=True)
                if night % LOST_CHECKPOINT_EVERY == LOST_CHECKPOINT_EVERY - 1:
                    deployed.lose_checkpoint(topology)
            if night % COMPACTED_EVERY == COMPACTED_EVERY - 1:
                deployed.compact_zones()
            if night % BACKFILL_EVERY == BACKFILL_EVERY - 1:
                print(f"night {night}: backfill repaired {deployed.backfill()} results", flush=True)
        for topology in STREAMS:
            again(deployed.session, deployed.settings, topology, load(newest[topology.name].certificate))
            wrong += deployed.chain_faults(topology)
        city.written["tariffs that Kafka has compacted away"] = deployed.zones_compacted()
    return found, wrong, city


def main() -> None:
    """Live through the nights and say what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.nights", description=__doc__)
    parser.add_argument("--nights", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--publish", action="store_true", help="write docs/operations/nights.md")
    given = parser.parse_args()
    # a SIGTERM shall stop the broker as Ctrl-C does
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="recount-nights-") as root:
        found, wrong, city = lived(given.nights, given.seed, Path(root))
    alarms = [one for one in found if one.is_false_alarm]
    print("written:", ", ".join(f"{many} {kind}" for kind, many in sorted(city.written.items())))
    for one in (*alarms, *wrong):
        print("WRONG:", one)
    if given.publish:
        PAGE.write_text(page(found, city.written, len(wrong), given.seed))
    print(f"{len(found)} audits of {given.nights} nights, {len(alarms)} false alarms, {len(wrong)} faults of chains")
    sys.exit(1 if alarms or wrong else 0)


if __name__ == "__main__":
    main()
