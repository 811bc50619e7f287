"""A conformance case as it lies in a JSON file; the format is described in the README beside the files.

A conformance case in our own language: the topology that a user would declare for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from recount.declare.aggregates import Aggregate, count, fold, reduce
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table, stream, table
from recount.declare.operators.nodes import KEY, Node, Sink
from recount.declare.operators.tables import Suppress
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import ClosingWindows, SessionWindows, SlidingWindows, TimeWindows, default_reach_ms
from recount.runtime.errors import Terminal

Result = Mapping[str, Any]

"""One expected or actual result: key, value, timestamp and, of windows, window_start and window_end."""

_AGGREGATE = {"aggregate", "init", "sep"}

_EMISSION = {"emit", "emit_interval_ms", "retention_ms"}

_JOIN = {"join_type", "left", "right", "joiner", "value_type"}

_KNOWN: dict[str, set[str]] = {
    "tumbling": {"size_ms", "advance_ms", "grace_ms"} | _AGGREGATE | _EMISSION,
    "hopping": {"size_ms", "advance_ms", "grace_ms"} | _AGGREGATE | _EMISSION,
    "sliding": {"time_difference_ms", "size_ms", "grace_ms"} | _AGGREGATE | _EMISSION,
    "session": {"gap_ms", "grace_ms"} | _AGGREGATE | _EMISSION,
    "window-assignment": {"size_ms", "advance_ms", "grace_ms"},
    "count": _AGGREGATE | {"emit"},
    "reduce": _AGGREGATE | {"emit"},
    "aggregate": _AGGREGATE | {"emit"},
    "ktable-count": {"group_by", "emit"},
    "stream-stream-join": {"before_ms", "after_ms", "grace_ms", "old_api", "retention_ms"} | _JOIN,
    "stream-table-join": {"table_versioned", "grace_ms"} | _JOIN,
    "table-table-join": {"left_versioned", "right_versioned"} | _JOIN,
    "suppress": {"mode", "wait_ms", "max_records", "upstream", "size_ms", "advance_ms", "grace_ms", "gap_ms"}
    | {"time_difference_ms"}
    | _AGGREGATE,
}

_FIELDS = {
    *("id", "source", "operator", "config", "input", "expected_final", "expected_updates", "updates_order"),
    *("expected_steps", "late_dropped", "late_windows", "late_dropped_derived", "late_partial_derived"),
    *("null_dropped", "asserted_log", "final_is_subset", "flags", "notes"),
}


class UnknownCase(Terminal):
    """A case with an operator, a configuration key or a field that this program does not know."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case: its configuration, its input in arrival order, and what the peer's test expects."""

    id: str
    operator: str
    config: Mapping[str, Any]
    input: Sequence[Mapping[str, Any]]
    expected_final: Sequence[Result]
    expected_updates: Sequence[Result] | None
    updates_order: str | None
    expected_steps: Sequence[tuple[int, Sequence[Result]]]
    late_dropped: Sequence[int] | None
    late_windows: Sequence[tuple[int, int, int]]
    null_dropped: Sequence[int]
    final_is_subset: bool

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Case:
        """The case in ``document``; raises ``UnknownCase`` for anything that would otherwise be passed over."""
        fields = sorted(document.keys() - _FIELDS)
        _refuse(fields, "field", document)
        _check_config(document["operator"], document["config"], document)
        order = document.get("updates_order")
        _refuse([order] if order not in (None, "per-window", "multiset") else [], "updates_order", document)
        return cls(
            id=document["id"],
            operator=document["operator"],
            config=document["config"],
            input=document["input"],
            expected_final=document["expected_final"],
            expected_updates=document.get("expected_updates"),
            updates_order=order,
            expected_steps=[(step["after_input"], step["emitted"]) for step in document.get("expected_steps") or ()],
            late_dropped=document.get("late_dropped"),
            late_windows=[(index, start, end) for index, start, end in document.get("late_windows") or ()],
            null_dropped=document.get("null_dropped") or (),
            final_is_subset=bool(document.get("final_is_subset")),
        )


def _check_config(operator: str, config: Mapping[str, Any], document: Mapping[str, Any]) -> None:
    _refuse([operator] if operator not in _KNOWN else [], "operator", document)
    _refuse(sorted(config.keys() - _KNOWN[operator]), f"configuration key of {operator}", document)
    if operator == "suppress":
        _check_config(config["upstream"]["operator"], config["upstream"]["config"], document)


def _refuse(unknown: Sequence[str], what: str, document: Mapping[str, Any]) -> None:
    if unknown:
        raise UnknownCase(
            f"unknown {what}",
            given=", ".join(unknown),
            expected="one of the format's README",
            remedy=f"teach tests/conformance the case {document.get('id')}",
        )


def documents(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Every case of every JSON file in ``folder``, file by file; raises ``Terminal`` where there is none."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise Terminal(
            "no conformance cases",
            given=str(folder),
            expected="a folder with *.json files",
            remedy="name the folder that holds the case files",
        )
    for file in files:
        yield from json.loads(file.read_text(encoding="utf-8"))


OUTPUT = Topic(name="output", key="key")

RESULT, LEFT, RIGHT = "result", "l", "r"

_VALUE = "v"


def topology_of(case: Case) -> Topology:
    """The case as a topology that writes to the topic ``output``."""
    return Topology(name="conformance", sinks=[_sink(case, case.operator, case.config)])


def value_of(case: Case, row: Mapping[str, Any] | None) -> Any:
    """The value as the case writes it: the aggregate, or the joiner's text, with ``null`` for a missing side."""
    if row is None or LEFT not in row:
        return None if row is None else row[RESULT]
    left, right = row[LEFT], row[RIGHT]
    if case.config.get("value_type") == "int-sum":
        return left + right
    joiner: str = case.config.get("joiner", "{l}+{r}")
    return joiner.format(l="null" if left is None else left, r="null" if right is None else right)


def _sink(case: Case, operator: str, config: Mapping[str, Any]) -> Sink:
    match operator:
        case "tumbling" | "hopping" | "sliding" | "session" | "window-assignment":
            return _windowed(case, operator, config).to(OUTPUT)
        case "count" | "reduce" | "aggregate":
            return stream(_input(case)).aggregate(result=_aggregate({"aggregate": operator, **config})).to(OUTPUT)
        case "ktable-count":
            return _table_count(case, config).to(OUTPUT)
        case "suppress":
            return _suppressed(case, config).to(OUTPUT)
        case "stream-stream-join":
            return _stream_stream(case, config).to(OUTPUT)
        case "stream-table-join":
            return _stream_table(case, config).to(OUTPUT)
        case "table-table-join":
            return _table_table(case, config).to(OUTPUT)
    raise AssertionError(operator)


def _topic(case: Case, name: str) -> Topic:
    values = [record["value"] for record in case.input if record["topic"] == name and record["value"] is not None]
    numbers = bool(values) and all(isinstance(value, int) for value in values)
    return Topic(name=name, key="key", partitions=1, value=RecordSchema.of(v=LONG if numbers else STRING))


def _input(case: Case) -> Topic:
    names = {record["topic"] for record in case.input} or {"input"}
    if len(names) > 1:
        raise UnknownCase("input of several topics", given=sorted(names), expected="one", remedy="teach this module")
    return _topic(case, names.pop())


def _windows(operator: str, config: Mapping[str, Any]) -> ClosingWindows:
    if operator == "sliding":
        return SlidingWindows(difference_ms=config["time_difference_ms"], grace_ms=config["grace_ms"])
    if operator == "session":
        gap_ms = config["gap_ms"]
        return SessionWindows(gap_ms=gap_ms, grace_ms=config["grace_ms"], reach_ms=default_reach_ms(gap_ms))
    size_ms = config["size_ms"]
    return TimeWindows(size_ms=size_ms, advance_ms=config.get("advance_ms", size_ms), grace_ms=config["grace_ms"])


def _windowed(case: Case, operator: str, config: Mapping[str, Any], emit: str | None = None) -> RecordStream:
    windows = _windows(operator, config)
    results = stream(_input(case)).windowed_by(windows).aggregate(result=_aggregate(config))
    final = (emit or config.get("emit", "update")) == "close"
    return results.emit_final() if final else results.emit_each_record()


def _table_count(case: Case, config: Mapping[str, Any]) -> Table:
    by = {"value": col(_VALUE), "key": col(KEY)}
    if config["group_by"] not in by:
        raise UnknownCase("unknown group_by", given=config["group_by"], expected="value or key", remedy="teach this")
    return table(_input(case)).group_by(group=by[config["group_by"]]).aggregate(result=count())


def _suppressed(case: Case, config: Mapping[str, Any]) -> RecordStream:
    upstream, above = config["upstream"]["operator"], config["upstream"]["config"]
    if config["mode"] == "until_window_closes":
        wait_ms = above["grace_ms"] + above.get("gap_ms", 0)
        if config["wait_ms"] != wait_ms or "max_records" in config:
            raise UnknownCase(
                "a suppression of its own kind", given=dict(config), expected=f"wait_ms {wait_ms}", remedy="teach this"
            )
        return _windowed(case, upstream, above, emit="close")
    if config["mode"] != "until_time_limit":
        raise UnknownCase("unknown mode", given=config["mode"], expected="until_...", remedy="teach this")
    # Not by emit_after: a limit without end (the peer's Long.MAX_VALUE) is more than a timedelta holds.
    updates = _updates(case, upstream, above)
    return RecordStream(Suppress(input=updates, limit_ms=config["wait_ms"], max_rows=config.get("max_records")))


def _updates(case: Case, upstream: str, config: Mapping[str, Any]) -> Node:
    """Every update of what stands above a suppression."""
    if upstream == "ktable-count":
        return _table_count(case, config).node
    if upstream in ("count", "reduce", "aggregate"):
        return stream(_input(case)).aggregate(result=_aggregate({"aggregate": upstream, **config})).node
    return _windowed(case, upstream, config, emit="update").node


def _aggregate(config: Mapping[str, Any]) -> Aggregate:
    init, sep = config.get("init", "0"), config.get("sep", "+")
    adders: dict[str, Callable[[Any, Any], Any]] = {
        "concat": lambda text, value: f"{text}{sep}{'null' if value is None else value}",
        "sorted-concat": lambda text, value: "".join(sorted(f"{text}{value}")),
        "strlen-sum": lambda total, value: total + len(value or ""),
    }
    kind = config.get("aggregate", "count")
    kind = "concat" if kind == "aggregate" else kind
    if kind == "count":
        return count()
    if kind == "reduce":
        return reduce(_VALUE, lambda one, other: f"{one}{sep}{other}")
    if kind not in adders:
        raise UnknownCase("unknown aggregate", given=kind, expected=", ".join(adders), remedy="teach this module")
    if kind == "strlen-sum":
        return fold(_VALUE, initial=int, adder=adders[kind], merger=lambda a, b: a + b, returns=LONG)
    merger = adders["sorted-concat"] if kind == "sorted-concat" else lambda a, b: f"{a}{sep}{b}"
    return fold(_VALUE, initial=lambda: init, adder=adders[kind], merger=merger, returns=STRING)


def _stream_stream(case: Case, config: Mapping[str, Any]) -> RecordStream:
    left = stream(_topic(case, config["left"])).select(l=col(_VALUE))
    right = stream(_topic(case, config["right"])).select(r=col(_VALUE))
    join = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[config["join_type"]]
    before, after, grace = (timedelta(milliseconds=config[name]) for name in ("before_ms", "after_ms", "grace_ms"))
    return join(right, before=before, after=after, grace=grace)


def _stream_table(case: Case, config: Mapping[str, Any]) -> RecordStream:
    left = stream(_topic(case, config["left"])).select(l=col(_VALUE))
    right = table(_topic(case, config["right"]), versioned=config["table_versioned"]).select(r=col(_VALUE))
    grace = timedelta(milliseconds=config["grace_ms"]) if config.get("grace_ms") is not None else None
    join = {"inner": left.join_table, "left": left.left_join_table}[config["join_type"]]
    # The peer answers with the row that it has read last, unless the table is versioned.
    return join(right, grace=grace, as_of="event" if config["table_versioned"] else "arrival")


def _table_table(case: Case, config: Mapping[str, Any]) -> Table:
    left = table(_topic(case, config["left"]), versioned=config["left_versioned"]).select(l=col(_VALUE))
    right = table(_topic(case, config["right"]), versioned=config["right_versioned"]).select(r=col(_VALUE))
    return {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[config["join_type"]](right)
