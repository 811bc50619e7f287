"""The recompute is the interpreter where topics have plain values: on random logs, in both its ways."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.field import all_cases
from tests.field.case import IDLE_AFTER, MAX_FUTURE, Case, Row, Sent
from tests.spark.recompute.drawn_logs import Truth, by_interpreter, by_recompute, identities_of
from tests.spark.recompute.graph_logs import Arrival
from tests.spark.recompute.test_drawn_topologies import differences
from tests.unit.engine.plain_topics import FLOWS, plain_log, plain_topology
from tests.unit.engine.random_flows import TABLES
from tests.unit.engine.random_topologies import Drawn

from recount.audit.compare.identity import identity_of
from recount.declare.schema import FieldType
from recount.declare.topology import Topology


def log_of(drawn: Drawn, name: str) -> list[Arrival]:
    """A long random log, tables first."""
    events = [event for cut in plain_log(drawn, random.Random(name), batches=25) for event in cut.events]
    log = [
        Arrival(
            topic=event.topic,
            partition=event.record.partition,
            key=event.record.key,
            value=event.record.value,
            timestamp_ms=event.record.timestamp_ms,
        )
        for event in events
    ]
    return sorted(log, key=lambda one: one.topic not in TABLES)


@pytest.mark.parametrize("name", FLOWS)
def test_the_recompute_is_the_interpreter_on_plain_values(spark: SparkSession, name: str) -> None:
    drawn = plain_topology(name)
    log, identities = log_of(drawn, name), identities_of(drawn)
    found = by_recompute(spark, drawn, log, identities, is_over=True, added={})
    expected = by_interpreter(drawn, log, identities, is_over=True, added={})
    assert len(expected.rows["out"]) > 1 and expected.rejected
    assert not differences(found, expected)


RUNNING = [case for case in all_cases.RUNNING if os.environ.get("FIELD_CASE", "") in case.name]
"""``FIELD_CASE=F3 pytest`` and the name of this file runs those with F3 in their name."""


@pytest.fixture(scope="module")
def truth(spark: SparkSession) -> Truth:
    """What the recompute says of all cases as the sinks of one topology: they share no topic."""
    sinks = [sink for case in RUNNING for sink in case.topology.sinks]
    topology = Topology(name="field", sinks=sinks, idle_after=IDLE_AFTER, max_future=MAX_FUTURE)
    partitions = {topic: many for case in RUNNING for topic, many in case.partitions.items()}
    drawn = Drawn(topology=topology, partitions=partitions, sinks={}, any_order=True, idles=False)
    log = [_arrival(one) for case in RUNNING for one in case.records]
    identities = [identity_of(written) for written in topology.written]
    return by_recompute(spark, drawn, log, identities, is_over=True, added={})


def _arrival(one: Sent) -> Arrival:
    return Arrival(topic=one.topic, partition=one.partition, key=one.key, value=one.value, timestamp_ms=one.at_ms)


@pytest.mark.parametrize("case", RUNNING, ids=lambda case: case.name)
def test_the_recompute_of_what_people_met_elsewhere_is_right(truth: Truth, case: Case) -> None:
    for topic in case.outputs:
        rows = [row for row, many in truth.rows[topic].items() for _ in range(many)]
        [sink] = [one for one in case.topology.written if one.topic.name == topic]
        assert case.found(topic, [_row(row, sink.fields) for row in rows]) == case.expected(topic)
    rejected = {f"{topic}-{partition}@{offset}": reason for topic, partition, offset, _, reason in truth.rejected}
    assert {place: reason for place, reason in rejected.items() if _is_of(place, case)} == case.dead_letters


def _row(row: tuple[Any, ...], fields: Mapping[str, FieldType]) -> Row:
    """A row with all places of its decimals, of which Spark hands over one too many or none behind small ones."""
    key, window, _, _, cells = row
    return key, window, None if cells is None else {name: _placed(cell, fields[name]) for name, _, cell in cells}


def _placed(cell: Any, kind: FieldType) -> Any:
    return (
        cell.quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=38)) if isinstance(cell, Decimal) else cell
    )


def _is_of(place: str, case: Case) -> bool:
    return place.split("@")[0].rpartition("-")[0] in case.partitions
