"""The cases of the field (``tests.field``) in the unit-test driver and in the operators of the stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest
from tests.field.all_cases import CASES
from tests.field.case import Case, Row, Sent
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.random_flows import Comparable
from tests.unit.engine.random_topologies import Drawn
from tests.unit.engine.random_topology_logs import Cut, Event
from tests.unit.engine.topology_runs import Told, by_engine, by_interpreter

from recount.runtime.errors import RecountError

Run = Callable[[Drawn, Sequence[Cut]], Told]
_RESULT = Comparable(exactness="latest", with_times=True, has_bounds=False)


RUNS: Mapping[str, Run] = {"driver": by_interpreter, "operators": by_engine}


def cut(case: Case, batches: str) -> list[Cut]:
    """The log of ``case`` in its own batches, in one, or record by record."""
    parts: Mapping[str, Sequence[Sequence[Sent]]] = {
        "its own": case.log,
        "one": [case.records],
        "each record": [[one] for one in case.records],
    }
    return [Cut([_event(one) for one in part], restarts=True) for part in parts[batches]]


def _event(one: Sent) -> Event:
    record = LogRecord(partition=one.partition, timestamp_ms=one.at_ms, key=one.key, value=one.value)
    return Event(one.topic, record)


@pytest.mark.parametrize("batches", ["one", "its own", "each record"])
@pytest.mark.parametrize("by", RUNS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_people_met_elsewhere_comes_out_right(case: Case, by: str, batches: str) -> None:
    sinks = dict.fromkeys(case.outputs, _RESULT)
    drawn = Drawn(topology=case.topology, partitions=case.partitions, sinks=sinks, any_order=True, idles=False)
    if case.stops is not None:
        with pytest.raises(RecountError) as stopped:
            RUNS[by](drawn, cut(case, batches))
        assert case.stops in str(stopped.value)
        return
    said = RUNS[by](drawn, cut(case, batches))
    for topic in case.outputs:
        assert case.found(topic, map(_row, said.rows[topic])) == case.expected(topic)
    assert Counter(letter[:5] for letter in said.rejected.elements()) == Counter(_rejected(case))


def _row(row: Sequence[object]) -> Row:
    key, window, _, _, cells = row
    return key, window, None if cells is None else {name: cell for name, _, cell in cells}  # type: ignore[attr-defined,return-value]


def _rejected(case: Case) -> list[tuple[str, int, int, int, str]]:
    found, offsets = [], Counter[tuple[str, int]]()
    for one in case.records:
        offset = offsets[one.topic, one.partition]
        offsets[one.topic, one.partition] += 1
        reason = case.dead_letters.get(f"{one.topic}-{one.partition}@{offset}")
        if reason is not None:
            found.append((one.topic, one.partition, offset, one.at_ms, reason))
    return found
