"""Where results end: what was written to each topic, and the table that it makes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from recount.core.interpreter.operator import Operator
from recount.core.interpreter.record import Record, Row
from recount.core.nodes import KEY, WINDOW_END, WINDOW_START
from recount.core.topology import Written


@dataclass(frozen=True, kw_only=True)
class Output:
    """A record that was written to a sink's topic; ``value`` None is a deletion.

    ``timestamp_ms`` is the largest event time behind it. ``revision`` 0 is the first result of its key and window.
    """

    key: Any
    value: Mapping[str, Any] | None
    timestamp_ms: int
    revision: int = 0
    window: tuple[int, int] | None = None


@dataclass(kw_only=True)
class SinkOperator(Operator):
    """Writes what it gets to the end of its topic, and hands it on (``through``)."""

    node: Written
    written: list[Output]

    def receive(self, record: Record, port: int) -> Iterable[Record]:  # noqa: ARG002 - it has one input
        """Write the fields of the record; the record key is not one of them until ``select_key`` names it.

        A plain value that is null is a deletion: the topic cannot tell one from the other.
        """
        self.journal.note(record.entry, "counted")
        row = record.row
        plain = self.node.topic.plain_field
        is_null = record.is_null or (plain is not None and row[plain] is None)
        value = None if is_null else {name: row[name] for name in self.node.fields if name != KEY}
        window = (row[WINDOW_START], row[WINDOW_END]) if WINDOW_START in self.node.fields else None
        self.written.append(
            Output(
                key=row[self.node.key],
                value=value,
                timestamp_ms=record.timestamp_ms,
                revision=record.revision,
                window=window,
            )
        )
        return (record,)


def table_of(outputs: Iterable[Output]) -> list[Row]:
    """The rows that remain when every output replaces the one before it of the same key and window."""
    latest: dict[Any, Mapping[str, Any] | None] = {}
    for output in outputs:
        latest[output.key, output.window] = output.value
    return [value for value in latest.values() if value is not None]
