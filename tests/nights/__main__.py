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
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import median

from confluent_kafka import Producer
from tests.long_programs import PAGES, archive, backfilled, deployed, lose_checkpoint, row
from tests.nights.city import STREAMS, archived_zones, fares, rides, zones
from tests.spark.audit.stage import Stage, configure

from recount.audit.certificate.certificate_files import load
from recount.audit.certificate.signing import chain_in
from recount.audit.night import CertifiedAudit
from recount.audit.repeated_audit import again
from recount.kafka.connection import Connection
from recount.kafka.offsets import classify_gap, log_ranges

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


def live(stage: Stage, night: int, max_offsets: int) -> tuple[Night, CertifiedAudit]:
    """Run the stream over everything that is there, and audit it."""
    began = time.monotonic()
    stage.run(max_offsets)
    ran = time.monotonic()
    audit = stage.audit()
    document = load(audit.certificate)
    told = Night(
        night=night,
        stream=stage.topology.name,
        outcome=document["outcome"],
        warnings=document["warnings"],
        misses=document["grace_misses_found"],
        dead_letters=document["totals"]["dead_lettered"],
        late=document["totals"]["late"],
        run_s=round(ran - began, 1),
        audit_s=round(time.monotonic() - ran, 1),
    )
    return told, audit


def keep_zones_for(connection: Connection, age_ms: int) -> None:
    """The tariffs are of 2023: an age cannot tell the broker which of them every stream has read."""
    configure(connection, zones.name, {"min.compaction.lag.ms": str(age_ms)})


def zones_compacted(connection: Connection) -> int:
    """How many versions of tariffs Kafka has no more."""
    [(key, span)] = log_ranges(connection, [(zones.name, 0)]).items()
    return classify_gap(connection, *key, span.start, span.end).compacted


def compact_zones(connection: Connection) -> None:
    """Let the broker compact what every stream has read."""
    before, deadline = zones_compacted(connection), time.monotonic() + 120
    keep_zones_for(connection, 0)
    while zones_compacted(connection) == before:
        assert time.monotonic() < deadline, "not compacted in two minutes"
        time.sleep(1)
    keep_zones_for(connection, _TEN_YEARS_MS)


def lived(nights: int, seed: int, root: Path) -> tuple[list[Night], list[str], City]:
    """All nights, what was wrong beside them, and what was written."""
    found: list[Night] = []
    wrong: list[str] = []
    draw = random.Random(seed)
    with deployed(root) as (session, settings):
        connection = Connection.of(settings)
        stages = [Stage(spark=session, settings=settings, topology=one).create_topics() for one in STREAMS]
        keep_zones_for(connection, _TEN_YEARS_MS)
        city = City(connection.producer(), seed)
        newest: dict[str, CertifiedAudit] = {}
        for night in range(nights):
            city.live(night)
            archive(session, settings, [archived_zones])
            for stage in stages:
                told, newest[stage.topology.name] = live(stage, night, draw.choice((97, 300, 5_000)))
                found.append(told)
                print(told, flush=True)
                if night % LOST_CHECKPOINT_EVERY == LOST_CHECKPOINT_EVERY - 1:
                    lose_checkpoint(stage)
            if night % COMPACTED_EVERY == COMPACTED_EVERY - 1:
                compact_zones(connection)
            if night % BACKFILL_EVERY == BACKFILL_EVERY - 1:
                [of_fares] = [stage for stage in stages if stage.topology is fares]
                print(f"night {night}: backfill repaired {backfilled(of_fares)} results", flush=True)
        for topology in STREAMS:
            certificate = newest[topology.name].certificate
            again(session, settings, topology, load(certificate))
            wrong += [f"{topology.name}: {fault}" for fault in chain_in(certificate.parent, topology.name).faults()]
        city.written["tariffs that Kafka has compacted away"] = zones_compacted(connection)
    return found, wrong, city


def main() -> None:
    """Live through the nights and say what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.nights", description=__doc__)
    parser.add_argument("--nights", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--publish", action="store_true", help="write docs/operations/nights.md")
    given = parser.parse_args()
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


PAGE = PAGES / "nights.md"

_TEXT = """\
# Nights without a false alarm

Generated by `make city-nights ARGS="--publish"`; do not edit.

Three streams of different kind read one topic, with records that are late, bad, or have no key or value. Each night
brings a day of events; every stream reads them and is audited. Every seventh night the checkpoints are lost, each fifth
a backfill repairs the open grace misses of `fares-by-zone`. The topic of tariffs is archived, and compacted every
tenth night. Nothing else goes wrong, so that every audit must say `match` without a warning. In the end the last audit
of each stream is repeated from the raw log, and its chain of certificates is verified.

**{audits} audits in {nights} nights: {alarms} false alarms, {faults} faults in the chains.**

Written (seed {seed}): {written}.

| stream | audits | match | dead letters, last audit | late | misses | run s | audit s, first and last ten |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
{rows}
"""


@dataclass(frozen=True, kw_only=True)
class Night:
    """What an audit of one night said: its outcome, warnings and misses, and how many seconds stream and audit took."""

    night: int
    stream: str
    outcome: str
    warnings: Sequence[str]
    misses: int
    dead_letters: int
    late: int
    run_s: float
    audit_s: float

    @property
    def is_false_alarm(self) -> bool:
        """In this project nothing is ever wrong."""
        return self.outcome != "match" or bool(self.warnings)


def page(found: Sequence[Night], written: Mapping[str, int], faults: int, seed: int) -> str:
    """What ``found`` comes to, a row for each stream."""
    by_stream = groupby(sorted(found, key=lambda one: (one.stream, one.night)), key=lambda one: one.stream)
    return _TEXT.format(
        audits=len(found),
        nights=len({one.night for one in found}),
        alarms=sum(one.is_false_alarm for one in found),
        faults=faults,
        seed=seed,
        written=", ".join(f"{many:,} {kind}" for kind, many in sorted(written.items())),
        rows="\n".join(_row(stream, list(nights)) for stream, nights in by_stream),
    )


def _row(stream: str, nights: Sequence[Night]) -> str:
    outcomes = Counter(one.outcome for one in nights)
    first, last = (median(one.audit_s for one in some) for some in (nights[:10], nights[-10:]))
    return row(
        stream,
        len(nights),
        outcomes["match"],
        nights[-1].dead_letters,
        nights[-1].late,
        nights[-1].misses,
        f"{median(one.run_s for one in nights):.1f}",
        f"{first:.1f}, {last:.1f}",
    )


if __name__ == "__main__":
    main()
