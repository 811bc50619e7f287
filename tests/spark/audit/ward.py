"""Topologies whose operators remember patients, by the kind of operator; they read the same topics."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.spark.audit.clinic import Forgetful
from tests.spark.audit.conftest import MINUTE_MS
from tests.spark.audit.stage import Said, Stage, output_topic, settings_below, source_topic

from recount.audit.certificate.signing import make_keys
from recount.declare.aggregates import count, total
from recount.declare.expressions import coalesce, col
from recount.declare.groups import Archive
from recount.declare.operators.nodes import Sink
from recount.declare.operators.processing import KeyState
from recount.declare.registry import Declarations
from recount.declare.schema import DOUBLE, LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import last_n, session, sliding
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project

TIERS = ("tin", "gold")
OTHER_KEYS = {"tiers", "roomed"}
"""The tables whose rows have another key than the patient; the tiers are keys of the first."""
KINDS: Mapping[str, Sequence[str]] = {
    "joins": ("priced", "settled"),
    "tables": ("contacts", "tiers"),
    "windows": ("stays", "totals"),
    "ordered": ("slides", "lasts", "ordered"),
    "processed": ("roomed", "reminders"),
}
"""By kind the tables that a ward has: first visits of an item with their patient, and visits with payments; a join of
tables, and groups; sessions, and totals of all time; other windows, and visits in order; lookups under another key, and
what a processor says."""


@dataclass(frozen=True, kw_only=True)
class Ward(Stage, Forgetful):
    """Visits, payments, patients and rooms, each keyed by the patient."""

    @property
    def declarations(self) -> Declarations:  # type: ignore[override]
        archives = {one.topic.name: Archive(topic=one.topic) for one in self.topology.sources}
        return Declarations(
            topologies={self.topology.name: self.topology},
            topics={},
            archives={archive.name: archive for archive in archives.values()},
        )

    def a_day(self, number: int, who: Sequence[str]) -> None:
        """Each of ``who`` is admitted, comes twice, pays in between, and comes late in the end; it takes an hour.

        What comes at the end is of nobody that is erased, and ends what the others began; but a visit of each waits.
        """
        begins = 300 * number
        said: list[Said] = [
            ("patients", 0, one, 0, {"tier": TIERS[at % 2], "credit": at}) for at, one in enumerate(who)
        ]
        said += [("rooms", 0, one, 0, {"room": at}) for at, one in enumerate(who)]
        for at, one in enumerate(who):
            said += [_visit(one, 1 + at, f"a{number}-{at}"), ("payments", 0, one, 2 + at, {"rate": 0.5})]
            said += [_visit(one, 3 + at, f"a{number}-{at}"), _visit(one, 4 + at, f"b{number}-{at}")]
        said += [("patients", 0, who[0], 20, {"tier": "gold", "credit": 70})]
        said += [_visit("last", 60, f"z{number}"), ("payments", 0, "last", 60, {"rate": 1.0})]
        said += [("patients", 0, "last", 60, {"tier": "lead", "credit": 0}), _visit(who[0], 5, f"c{number}")]
        said += [_visit(one, 61, f"w{number}-{at}") for at, one in enumerate(who)]
        read = {one.topic.name.split("-")[0] for one in self.topology.sources}
        said = [(kind, part, one, begins + minute, value) for kind, part, one, minute, value in said if kind in read]
        self.produce(said)
        self.run()


def _visit(who: str, minute: float, item: str) -> Said:
    return ("visits", 0, who, minute, {"item": item, "fee": 10.25})


def noticed(payment: Mapping[str, Any], state: KeyState) -> Iterator[Mapping[str, Any]]:
    """Counts a patient's payments, and asks to be reminded of each much later; the third is one too many."""
    state.remembered["payments"] = state.remembered.get("payments", 0) + 1
    state.schedule(state.timestamp_ms + 600 * MINUTE_MS)
    yield {"said": "paid", "payments": state.remembered["payments"], "paid_rate": payment["rate"]}
    if state.remembered["payments"] > 2:
        raise ValueError(f"too many: {state.key}")


def reminded(at_ms: int, state: KeyState) -> Iterator[Mapping[str, Any]]:
    """Says how many payments there have been."""
    yield {"said": "reminder", "payments": state.remembered["payments"], "paid_rate": None}


def ward_of(spark: SparkSession, kafka: EmbeddedKafka, project: Project, root: Path, kind: str) -> Ward:
    """One of ``KINDS``, or with one table, with topics and tables of its own, and a key that signs."""
    tail = uuid.uuid4().hex[:6]
    settings = settings_below(root, kafka, project)
    make_keys(root / "keys", reports=root / "reports")
    visits = source_topic(f"visits-{tail}", RecordSchema.of(item=STRING, fee=decimal(15, 2)))
    payments = source_topic(f"payments-{tail}", RecordSchema.of(rate=DOUBLE))
    patients = source_topic(f"patients-{tail}", RecordSchema.of(tier=STRING, credit=LONG))
    rooms = source_topic(f"rooms-{tail}", RecordSchema.of(room=LONG))
    topology = Topology(name=f"{kind}-{tail}", sinks=list(_sinks(visits, payments, patients, rooms, kind, tail)))
    return Ward(spark=spark, settings=replace(settings, keys=str(root / "keys")), topology=topology).create_topics()


def _sinks(visits: Topic, payments: Topic, patients: Topic, rooms: Topic, kind: str, tail: str) -> Iterator[Sink]:
    first = stream(visits).deduplicate("item", horizon="2 min")
    flows = {
        "stays": stream(visits).windowed_by(session("3 min", grace="1 min")).aggregate(n=count()).emit_final(),
        "slides": stream(visits).windowed_by(sliding("2 min", grace="1 min")).aggregate(n=count()).emit_final(),
        "lasts": stream(visits).windowed_by(last_n(2)).aggregate(fees=total("fee")).emit_each_batch(),
        "totals": stream(visits).aggregate(n=count(), fees=total("fee")),
        "ordered": stream(visits).in_order(grace="2 min"),
        "priced": first.left_join_table(table(patients, versioned=True), grace="1 min"),
        "roomed": stream(visits).join_table(table(rooms)).select_key(place=coalesce(col("room"), 0)),
        "settled": stream(visits).outer_join(stream(payments), before="1 min", after="5 min", grace="2 min"),
        "contacts": table(patients).filter(col("credit") >= 0).outer_join(table(rooms)),
        "tiers": table(patients).group_by(tier=col("tier")).aggregate(n=count(), credit=total("credit")),
        "reminders": stream(payments).process(noticed, on_timer=reminded, said=STRING, payments=LONG, paid_rate=DOUBLE),
    }
    for name in KINDS.get(kind, (kind,)):
        yield flows[name].to(output_topic(f"{name}-{tail}"), table=name)
