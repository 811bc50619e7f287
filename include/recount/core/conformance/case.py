"""A conformance case as it lies in a JSON file; the format is described in the README beside the files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recount.core.errors import Terminal

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
            remedy=f"teach recount.core.conformance the case {document.get('id')}",
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
