"""Operators that remember each key in their own way: deduplication and custom processors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from numbers import Integral
from typing import TYPE_CHECKING, Any

from recount.declare.columns import require_free
from recount.declare.expression_types import require_key_passes, type_of
from recount.declare.expressions import Expression
from recount.declare.operators.stateless import OneInput
from recount.declare.schema import LONG_MAX, FieldType, require_types
from recount.runtime.errors import Terminal, require
from recount.runtime.times import readable

if TYPE_CHECKING:
    pass

Row = Mapping[str, Any]

MOST_FIRINGS = 1_000_000
"""Between two records of a key no more timers of it go off: a timer that always sets the next one has no other end."""
_LASTING = frozenset({str, int, bool, type(None)})
"""Types whose values are the same after JSON, and that nothing can change."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Deduplicate(OneInput):
    """Deduplication: of records with one id at most ``horizon_ms`` apart (inclusive) the first wins; the others go.

    ``partitioned`` (the id determines the partition): the first by offset, which leaves at once. Otherwise the first by
    (event time, partition, offset), which leaves when no earlier one can come: ``ts + horizon < frontier``. A record is
    late when ``ts + horizon < stream time``; a duplicate does not prolong the horizon; a null id is dropped.
    """

    by: Expression
    horizon_ms: int
    partitioned: bool

    def __post_init__(self) -> None:
        given = type_of(self.by, self.input.fields)
        require(given is not None and given.kind != "list", "id-of-no-plain-type", given=f"{self.by} ({given})")

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

    grace_ms: int

    @property
    def delay_ms(self) -> int:
        """How far behind the frontier the records are that leave."""
        return self.grace_ms

    def __str__(self) -> str:
        return f"in order of event time, grace {readable(self.grace_ms)}"


@dataclass(kw_only=True, slots=True)
class KeyState:
    """State that a processor remembers of one key; ``remembered`` is its own, and must hold plain JSON values.

    Nothing else is kept from call to call, and what a function holds on to elsewhere is not ``remembered``: each call
    finds it as it comes back from JSON.

    ``schedule(at_ms)`` asks for a call of ``on_timer``, once per time: when the frontier has reached ``at_ms``, or
    before the key's next record where the stream time of its partition had reached it before that record. ``fired``
    counts the timers that have fired since the key's last record.
    """

    key: Any
    timestamp_ms: int = 0
    remembered: dict[str, Any] = field(default_factory=dict)
    timers_ms: set[int] = field(default_factory=set)
    fired: int = 0

    def schedule(self, at_ms: int) -> None:
        """Ask to be called at ``at_ms``, in event time.

        Raises ``TypeError`` for what is no whole number, and ``ValueError`` for what is no time of a record.
        """
        at_ms = _time(at_ms)
        self.timers_ms.add(at_ms)


def two_partitions(processor: object, key: Any, before: tuple[str, int], now: tuple[str, int]) -> Terminal:
    """The error of a ``processor`` that remembers something of a ``key`` whose records come from two partitions."""
    return Terminal.of("key-in-two-partitions", given=f"key {key!r} in {before} and {now}", processor=processor)


@dataclass(frozen=True, kw_only=True, eq=False)
class Process(OneInput):
    """A custom processor: Python functions that see one key's records in (partition, offset) order, with its state.

    ``on_record(row, state)`` and ``on_timer(at_ms, state)`` return rows; their time is that of the record or timer.
    A record for which ``on_record`` raises is set aside, and has changed nothing; a timer that raises fails the stream.
    """

    on_record: Callable[[Row, KeyState], Iterable[Row]]
    on_timer: Callable[[int, KeyState], Iterable[Row]] | None
    made: Mapping[str, FieldType]

    def __post_init__(self) -> None:
        require(callable(self.on_record), "not-a-function", given=repr(self.on_record), field="on_record")
        if self.on_timer is not None:
            require(callable(self.on_timer), "not-a-function", given=repr(self.on_timer), field="on_timer")
        require_types("fields", self.made)
        require_free("fields", self.made)
        require_key_passes(f"key {self.key}", self.input.fields[self.key], self.made.get(self.key))

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        return {self.key: self.input.fields[self.key], **self.made}

    def __str__(self) -> str:
        return f"process each {self.key} to {', '.join(self.made)}"


def settle(state: KeyState, key: Any) -> None:
    """Check what a call has left in ``state``, and cut it off from what the function still holds.

    Raises ``Terminal`` for what would not come back from JSON as it is: a restart would change it. Raises as
    ``schedule`` does for a timer that was set without it.
    """
    for at_ms in state.timers_ms:
        _time(at_ms)
    if state.key != key:
        raise TypeError(f"the key of a state cannot be changed, here to {state.key!r}: give the row a field of its own")
    state.remembered = {**state.remembered} if _is_flat(state.remembered) else _from_json(state)


def _is_flat(remembered: object) -> bool:
    """Whether it is plain JSON without anything in it that could be changed: most is, and JSON takes its time."""
    return type(remembered) is dict and all(
        type(name) is str and (type(one) in _LASTING or (type(one) is float and isfinite(one)))
        for name, one in remembered.items()
    )


def _from_json(state: KeyState) -> Any:
    try:
        made = json.loads(json.dumps(state.remembered, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_plain(state, str(error)) from error
    if made != state.remembered:
        raise _not_plain(state, "it comes back from JSON as something else")
    return made


def _not_plain(state: KeyState, detail: str) -> Terminal:
    return Terminal.of("remembered-no-json", given=f"{state.remembered!r}: {detail}", key=state.key)


def count_timer(state: KeyState, at_ms: int, processor: object) -> None:
    """Count a timer of ``processor`` that goes off; raises ``Terminal`` for one more than ``MOST_FIRINGS``."""
    state.fired += 1
    if state.fired > MOST_FIRINGS:
        raise Terminal.of(
            "timers-without-an-end",
            given=f"key {state.key!r}, the timer at {at_ms} ms; further timers {sorted(state.timers_ms)[:3]}",
            processor=processor,
            most=MOST_FIRINGS,
        )


def _time(given: Any) -> int:
    if type(given) is bool or not isinstance(given, Integral):
        raise TypeError(
            f"a timer is a whole number of milliseconds since the epoch, not {given!r}, a {type(given).__name__}:"
            " write state.schedule(int(at_ms))"
        )
    at_ms = int(given)
    if not 0 <= at_ms <= LONG_MAX:
        raise ValueError(f"a timer is set to the time of a record, in milliseconds since the epoch: {at_ms} is none")
    return at_ms
