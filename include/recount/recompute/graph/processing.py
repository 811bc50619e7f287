"""A custom processor over one key's records: their turn in the log, and between them the timers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Row = Mapping[str, Any]
OnRecord = Callable[[Row, Any], Iterable[Row]]
OnTimer = Callable[[int, Any], Iterable[Row]] | None


@dataclass(kw_only=True)
class Memory:
    """What a processor is handed as its state: the names of ``recount.core.processing.KeyState``."""

    key: Any
    timestamp_ms: int = 0
    remembered: dict[str, Any] = field(default_factory=dict)
    timers_ms: set[int] = field(default_factory=set)

    def schedule(self, at_ms: int) -> None:
        """Ask for a timer, one for each time."""
        self.timers_ms.add(at_ms)


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
    state.timestamp_ms = turn.timestamp_ms
    return [{**row} for row in on_record(turn.row, state)]


def _timers(state: Memory, on_timer: OnTimer, reached_ms: int | None) -> Iterator[Made]:
    """A timer may set further ones."""
    while reached_ms is not None and state.timers_ms and (at_ms := min(state.timers_ms)) <= reached_ms:
        state.timers_ms.discard(at_ms)
        state.timestamp_ms = at_ms
        for index, row in enumerate(on_timer(at_ms, state) if on_timer else ()):
            yield Made(row, at_ms, None, index)
