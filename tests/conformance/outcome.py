"""What a case comes to when the reference interpreter runs it.

The first difference between what a case expects and what came out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.conformance.cases import OUTPUT, Case, Result, topology_of, value_of

from recount.declare.topology import Topology
from recount.reference.record_clock import Output
from recount.reference.records import Fate
from recount.reference.topology_driver import TopologyDriver


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
        emitted=emitted, fates=[fates[index] for index in range(len(case.input))], late_windows=frozenset(late)
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


_STREAMS = ("stream-stream-join", "stream-table-join")

"""Operators whose final expectation is every result; of the others it is the last one of each key and window."""

Keep = Callable[[Result], bool]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Where expected and actual part."""

    where: str
    expected: object
    actual: object

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, actual {self.actual}"


def keep_all(_: Result) -> bool:
    """Leaves nothing out."""
    return True


def first_difference(case: Case, outcome: Outcome, keep: Keep = keep_all) -> Difference | None:
    """The first thing that the case asserts and the outcome does not do; ``keep`` leaves results out on both sides."""
    for found in (_final(case, outcome, keep), _updates(case, outcome, keep), _steps(case, outcome, keep)):
        if found is not None:
            return found
    return _dropped(case, outcome)


def final_results(case: Case, updates: Sequence[Result]) -> list[Result]:
    """What the results amount to in the end."""
    if case.operator in _STREAMS:
        return list(updates)
    latest = {place(result): result for result in updates}
    return [result for result in latest.values() if result["value"] is not None]


def place(result: Result) -> tuple[Any, ...]:
    """The key and window that a result is about."""
    return str(result["key"]), result.get("window_start"), result.get("window_end")


def comparable(result: Result) -> tuple[Any, ...]:
    """A result as a value that can be compared, sorted and counted; keys are compared as text."""
    value, timestamp = result.get("value"), result.get("timestamp")
    return (*place(result), timestamp, value)


def _final(case: Case, outcome: Outcome, keep: Keep) -> Difference | None:
    expected = [result for result in case.expected_final if keep(result)]
    actual = [result for result in final_results(case, outcome.updates) if keep(result)]
    if case.final_is_subset:
        places = {place(result) for result in expected}
        actual = [result for result in actual if place(result) in places]
    return _lists("final", expected, actual, in_order=False)


def _updates(case: Case, outcome: Outcome, keep: Keep) -> Difference | None:
    if case.expected_updates is None:
        return None
    expected = [result for result in case.expected_updates if keep(result)]
    return _ordered(case, "update", expected, [result for result in outcome.updates if keep(result)])


def _steps(case: Case, outcome: Outcome, keep: Keep) -> Difference | None:
    start = 0
    for after, emitted in case.expected_steps:
        actual = [result for results in outcome.emitted[start:after] for result in results if keep(result)]
        expected = [result for result in emitted if keep(result)]
        found = _ordered(case, f"after input {after}, result", expected, actual)
        if found is not None:
            return found
        start = max(start, after)
    return None


def _ordered(case: Case, where: str, expected: Sequence[Result], actual: Sequence[Result]) -> Difference | None:
    if case.updates_order == "per-window":
        expected, actual = (sorted(results, key=lambda result: repr(place(result))) for results in (expected, actual))
    return _lists(where, expected, actual, in_order=case.updates_order != "multiset")


def _lists(where: str, expected: Sequence[Result], actual: Sequence[Result], *, in_order: bool) -> Difference | None:
    """Only the fields that are expected are compared."""
    fields = {name for result in expected or actual for name in result}
    left = [comparable(result) for result in expected]
    right = [comparable({name: value for name, value in result.items() if name in fields}) for result in actual]
    if not in_order:
        left, right = sorted(left, key=repr), sorted(right, key=repr)
    if left == right:
        return None
    if not in_order:
        missing, extra = Counter(left) - Counter(right), Counter(right) - Counter(left)
        return Difference(where=where, expected=next(iter(missing), "nothing"), actual=next(iter(extra), "nothing"))
    index = next(i for i in range(max(len(left), len(right))) if left[i : i + 1] != right[i : i + 1])
    return Difference(
        where=f"{where} {index}",
        expected=left[index] if index < len(left) else "nothing",
        actual=right[index] if index < len(right) else "nothing",
    )


def _dropped(case: Case, outcome: Outcome) -> Difference | None:
    late, null = outcome.indices("late"), outcome.indices("null key", "null value", "dead-lettered")
    if case.late_dropped is not None and sorted(case.late_dropped) != late:
        return Difference(where="late", expected=sorted(case.late_dropped), actual=late)
    if case.null_dropped and sorted(case.null_dropped) != null:
        return Difference(where="dropped for null", expected=sorted(case.null_dropped), actual=null)
    missing = sorted(set(case.late_windows) - outcome.late_windows)
    if missing:
        return Difference(where="late windows", expected=missing, actual=sorted(outcome.late_windows, key=repr))
    return None
