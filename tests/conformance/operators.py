"""Conformance cases through the operators of the engine, without Spark and Kafka.

Every input record is a micro-batch of its own, and every batch starts from what the ones before it have written: the
cuts that are hardest to get right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.conformance.cases import Case, Result, topology_of
from tests.conformance.outcome import Outcome, fields_of, key_of, result_of
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.columns import IS_NULL, RESULT_TIME, REVISION
from recount.declare.operators.nodes import KEY, WINDOW_END, WINDOW_START
from recount.declare.output import encode_value
from recount.declare.topology import Written
from recount.engine.exchange.work import Computed
from recount.reference.record_clock import Output
from recount.reference.records import Fate

_RECORDED_MS = 2**53
"""The recorded time of every batch: no event time is too far ahead of it, and no partition falls idle."""
_FATES: tuple[Fate, ...] = (
    *("counted", "late", "deduplicated", "null value", "null key", "filtered", "waiting", "dead-lettered"),
)


def by_operators(case: Case) -> Outcome:
    """Run ``case`` record by record."""
    topology = topology_of(case)
    engine = TopologyEngine(topology, {source.topic.name: 1 for source in topology.sources})
    place_of: dict[tuple[str, int], int] = {}
    emitted, fates = [], []
    for index, record in enumerate(case.input):
        topic, key, value = record["topic"], key_of(record), fields_of(topology, record)
        place_of[topic, sum(known == topic for known, _ in place_of)] = index
        sent = LogRecord(
            timestamp_ms=record["ts"],
            key=None if key is None else key.encode(),
            value=None if value is None else encode_value(value),
        )
        engine.restart()
        computed = engine.batch({topic: [sent]}, now_ms=_RECORDED_MS)
        emitted.append(_results(case, topology.written[0], computed))
        fates.append(_fate(computed, topic))
    late = engine.late.iter_rows(named=True) if engine.computed else ()
    return Outcome(
        emitted=emitted,
        fates=fates,
        late_windows=frozenset(
            (place_of[row["topic"], row["offset"]], row[WINDOW_START], row[WINDOW_END]) for row in late
        ),
    )


def _results(case: Case, sink: Written, computed: Computed) -> list[Result]:
    return [result_of(case, _output(sink, row)) for row in computed.emitted[sink.table].iter_rows(named=True)]


def _output(sink: Written, row: Mapping[str, Any]) -> Output:
    value = {name: row[name] for name in sink.fields if name != KEY}
    return Output(
        key=row[sink.key],
        value=None if row.get(IS_NULL) else value,
        timestamp_ms=row[RESULT_TIME],
        revision=row[REVISION],
        window=(row[WINDOW_START], row[WINDOW_END]) if WINDOW_START in sink.fields else None,
    )


def _fate(computed: Computed, topic: str) -> Fate:
    """What became of the one record of a batch."""
    proof = computed.after.partitions[topic, 0]
    [fate] = [fate for fate in _FATES if getattr(proof, fate.replace(" ", "_").replace("-", "_"))]
    return fate
