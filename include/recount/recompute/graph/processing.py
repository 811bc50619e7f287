"""A custom processor over one key's records: their turn in the log, and between them the timers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, NamedTuple

from recount.core.errors import Terminal

Row = Mapping[str, Any]
OnRecord = Callable[[Row, Any], Iterable[Row]]
OnTimer = Callable[[int, Any], Iterable[Row]] | None


LONGEST_CHAIN = 1_000_000
"""So many timers of a key can go off one after the other; with a further one the processor has no end."""
LAST_TIME_MS = 2**63 - 1


@dataclass(kw_only=True, slots=True)
class Memory:
    """What a processor is handed as its state: the names of ``recount.core.processing.KeyState``."""

    key: Any
    timestamp_ms: int = 0
    remembered: dict[str, Any] = field(default_factory=dict)
    timers_ms: set[int] = field(default_factory=set)
    fired: int = 0

    def schedule(self, at_ms: int) -> None:
        """Ask for a timer, one for each time; raises for what is no time of a record."""
        self.timers_ms.add(_moment(at_ms))

    def left_by(self, key: Any) -> None:
        """A call of a function of ``key`` has ended: what it left is told in JSON, and read again from that.

        Raises ``Terminal`` where that is something else, and as ``schedule`` does for other timers.
        """
        for at_ms in self.timers_ms:
            _moment(at_ms)
        if self.key != key:
            raise TypeError(f"the key was changed to {self.key!r}")
        try:
            again = json.loads(json.dumps(self.remembered, allow_nan=False))
            detail = "" if again == self.remembered else "it comes back from JSON as something else"
        except (TypeError, ValueError, RecursionError) as error:
            again, detail = None, str(error)
        if detail:
            raise Terminal(
                f"what a processor remembers of key {key!r} cannot be recomputed",
                given=f"{self.remembered!r}: {detail}",
                expected="plain JSON",
                remedy="let the function remember texts, numbers, lists and dicts with text keys only",
            )
        self.remembered = again


class Turn(NamedTuple):
    """A record and the time that its partition had reached just before it; None: no time yet."""

    row: Row
    timestamp_ms: int
    reached_ms: int | None


class Made(NamedTuple):
    """A row that left, the ``number``-th of those made by the record ``turn``; None: made by a timer."""

    row: Row
    timestamp_ms: int
    turn: int | None
    number: int


class Remembered(NamedTuple):
    """What is remembered in the end."""

    state: Memory


class Raised(NamedTuple):
    """The function raised for the record ``turn``: for the processor it has not been."""

    turn: int
    error: Exception


def processed(
    before: Memory, turns: Sequence[Turn], on_record: OnRecord, on_timer: OnTimer, *, end_ms: int | None
) -> Iterator[Made | Raised | Remembered]:
    """All rows that leave. Timers go off, earliest first, as time reaches them; in the end those up to ``end_ms``.

    ``before`` is what is remembered of the turns before; what is remembered of all comes last.

    What a record changed that raised in the end is forgotten: the key begins again where it is ``sure``, the turns
    after that are repeated, and from there on it is sure.
    """
    state, sure, first = before, deepcopy(before), 0
    for number, turn in enumerate(turns):
        yield from _timers(state, on_timer, turn.reached_ms)
        try:
            rows = _rows(turn, on_record, state)
        except Exception as error:
            yield Raised(number, error)
            state = sure
            for former in turns[first:number]:
                list(_timers(state, on_timer, former.reached_ms))
                _rows(former, on_record, state)
            list(_timers(state, on_timer, turn.reached_ms))
            sure, first = deepcopy(state), number + 1
        else:
            yield from (Made(row, turn.timestamp_ms, number, index) for index, row in enumerate(rows))
    yield from _timers(state, on_timer, end_ms)
    yield Remembered(state)


def _rows(turn: Turn, on_record: OnRecord, state: Memory) -> list[Row]:
    key, state.timestamp_ms, state.fired = state.key, turn.timestamp_ms, 0
    rows: list[Row] = [deepcopy(dict(row)) for row in on_record(deepcopy(dict(turn.row)), state)]
    state.left_by(key)
    return rows


def _timers(state: Memory, on_timer: OnTimer, reached_ms: int | None) -> Iterator[Made]:
    """A timer may set further ones."""
    while reached_ms is not None and state.timers_ms and (at_ms := min(state.timers_ms)) <= reached_ms:
        state.timers_ms.discard(at_ms)
        key, state.timestamp_ms, state.fired = state.key, at_ms, state.fired + 1
        if state.fired > LONGEST_CHAIN:
            raise Terminal(
                f"{LONGEST_CHAIN:,} timers of a key went off one after the other without a record of the key",
                given=f"key {key!r}, the timer at {at_ms} ms",
                expected="timers that come to an end",
                remedy="let the function set no further timer after so many",
            )
        rows = [deepcopy(dict(row)) for row in on_timer(at_ms, state)] if on_timer else []
        state.left_by(key)
        yield from (Made(row, at_ms, None, index) for index, row in enumerate(rows))


def _moment(given: Any) -> int:
    if type(given) is bool or not isinstance(given, Integral):
        raise TypeError(f"a timer at {given!r}, which is no whole number")
    at_ms = int(given)
    if not 0 <= at_ms <= LAST_TIME_MS:
        raise ValueError(f"a timer at {at_ms}, which is no time of a record")
    return at_ms
