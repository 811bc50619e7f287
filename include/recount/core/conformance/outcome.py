"""What a case comes to when the reference interpreter runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recount.core.conformance.case import Case, Result
from recount.core.conformance.declared import OUTPUT, topology_of, value_of
from recount.core.interpreter.driver import TopologyDriver
from recount.core.interpreter.journal import Fate
from recount.core.interpreter.sinks import Output
from recount.core.topology import Topology


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results after each input record, what became of each record, and the late (index, start, end)."""

    emitted: Sequence[Sequence[Result]]
    fates: Sequence[Fate]
    late_windows: frozenset[tuple[int, int | None, int | None]]

    @property
    def updates(self) -> list[Result]:
        """All results in order."""
        return [result for results in self.emitted for result in results]

    def indices(self, *fates: Fate) -> list[int]:
        """The input records that met one of ``fates``."""
        return [index for index, fate in enumerate(self.fates) if fate in fates]


def interpreted(case: Case) -> Outcome:
    """Run ``case`` record by record."""
    driver = TopologyDriver(topology_of(case))
    index_of: dict[tuple[str, int], int] = {}
    emitted: list[list[Result]] = []
    sent: dict[str, int] = {}
    for index, record in enumerate(case.input):
        topic = record["topic"]
        index_of[topic, sent.get(topic, 0)] = index
        sent[topic] = sent.get(topic, 0) + 1
        driver.pipe(topic, key=key_of(record), value=fields_of(driver.topology, record), timestamp_ms=record["ts"])
        emitted.append([result_of(case, output) for output in driver.read(OUTPUT.name)])
    late = {(index_of[late.topic, late.offset], late.window_start, late.window_end) for late in driver.late}
    fates = {index_of[entry.topic, entry.offset]: fate for entry, fate in driver.fate_of.items()}
    return Outcome(
        emitted=emitted,
        fates=[fates[index] for index in range(len(case.input))],
        late_windows=frozenset(late),
    )


def key_of(record: Mapping[str, Any]) -> str | None:
    """The key of an input record."""
    return None if record["key"] is None else str(record["key"])


def fields_of(topology: Topology, record: Mapping[str, Any]) -> dict[str, Any] | None:
    """The value of an input record as the fields of its topic; None for a null value."""
    if record["value"] is None:
        return None
    topic = next(source.topic for source in topology.sources if source.topic.name == record["topic"])
    assert topic.value is not None
    return {
        name: record["value"] if kind.kind == "long" else str(record["value"])
        for name, kind in topic.value.fields.items()
    }


def result_of(case: Case, output: Output) -> Result:
    """An output record as a case writes it."""
    bounds = {} if output.window is None else {"window_start": output.window[0], "window_end": output.window[1]}
    value = value_of(case, output.value)
    return {"key": output.key, **bounds, "value": value, "timestamp": output.timestamp_ms}
