"""Operators that remember each key in their own way: deduplication and custom processors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from recount.core.durations import readable
from recount.core.errors import require, require_function
from recount.core.expression_types import require_key_passes, type_of
from recount.core.expressions import Expression
from recount.core.own_columns import require_free
from recount.core.schema import FieldType, require_types
from recount.core.stateless import OneInput

if TYPE_CHECKING:
    from recount.core.nodes import Node

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Deduplicate(OneInput):
    """Of the records with one id that are at most ``horizon_ms`` apart (inclusive), the first wins; the others go.

    ``partitioned`` (the id determines the partition): the first by offset, which leaves at once. Otherwise the first by
    (event time, partition, offset), which leaves when no earlier one can come: ``ts + horizon < frontier``. A record is
    late when ``ts + horizon < stream time``; a duplicate does not prolong the horizon; a null id is dropped.
    """

    input: Node
    by: Expression
    horizon_ms: int
    partitioned: bool

    def __post_init__(self) -> None:
        given = type_of(self.by, self.input.fields)
        require(
            given is not None and given.kind != "list",
            "deduplicate",
            given=f"{self.by} ({given})",
            expected="an id: a text, a number or a boolean",
            remedy="choose a field by which two records are the same",
        )

    @property
    def delay_ms(self) -> int:
        """How long the first by event time is waited for."""
        return 0 if self.partitioned else self.horizon_ms

    def __str__(self) -> str:
        order = "offset" if self.partitioned else "event time"
        return f"first of each {self.by} by {order} within {readable(self.horizon_ms)}"


@dataclass(frozen=True, kw_only=True, eq=False)
class InOrder(OneInput):
    """Lets records go in the order of (event time, topic, partition, offset), once no earlier one can come on time.

    A record leaves when ``ts + grace < frontier``. It is late when ``ts + grace < stream time``, or less than the
    frontier that the batch before had reached: a partition that was idle cannot put its records before those that have
    left. Null keys and null values pass.
    """

    input: Node
    grace_ms: int

    @property
    def delay_ms(self) -> int:
        """How far behind the frontier the records are that leave."""
        return self.grace_ms

    def __str__(self) -> str:
        return f"in order of event time, grace {readable(self.grace_ms)}"


@dataclass(kw_only=True)
class KeyState:
    """What a processor remembers of one key; ``remembered`` is its own, and must hold plain JSON values.

    ``schedule(at_ms)`` asks for a call of ``on_timer``, once per time: when the frontier has reached ``at_ms``, or
    before the key's next record where the stream time of its partition had reached it before that record.
    """

    key: Any
    timestamp_ms: int = 0
    remembered: dict[str, Any] = field(default_factory=dict)
    timers_ms: set[int] = field(default_factory=set)

    def schedule(self, at_ms: int) -> None:
        """Ask to be called at ``at_ms``, in event time."""
        self.timers_ms.add(at_ms)


@dataclass(frozen=True, kw_only=True, eq=False)
class Process(OneInput):
    """A custom processor: Python functions that see one key's records in (partition, offset) order, with its state.

    ``on_record(row, state)`` and ``on_timer(at_ms, state)`` return rows; their time is that of the record or timer.
    A record for which ``on_record`` raises is set aside, and has changed nothing; a timer that raises fails the stream.
    """

    input: Node
    on_record: Callable[[Row, KeyState], Iterable[Row]]
    on_timer: Callable[[int, KeyState], Iterable[Row]] | None
    made: Mapping[str, FieldType]

    def __post_init__(self) -> None:
        require_function("on_record", self.on_record)
        if self.on_timer is not None:
            require_function("on_timer", self.on_timer)
        require_types("fields", self.made)
        require_free("fields", self.made)
        require_key_passes(f"key {self.key}", self.input.fields[self.key], self.made.get(self.key))

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        """The key and the declared fields."""
        return {self.key: self.input.fields[self.key], **self.made}

    def __str__(self) -> str:
        return f"process each {self.key} to {', '.join(self.made)}"
