"""A custom processor over one key's records: their turn in the log, and between them the timers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from recount.core.processing import KeyState

Row = Mapping[str, Any]
OnRecord = Callable[[Row, KeyState], Iterable[Row]]
OnTimer = Callable[[int, KeyState], Iterable[Row]] | None


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


def processed(
    key: Any, turns: Sequence[Turn], on_record: OnRecord, on_timer: OnTimer, *, end_ms: int | None
) -> Iterator[Made]:
    """All rows that leave. Timers go off, earliest first, as time reaches them; in the end those up to ``end_ms``."""
    state = KeyState(key=key)
    for number, turn in enumerate(turns):
        yield from _timers(state, on_timer, turn.reached_ms)
        state.timestamp_ms = turn.timestamp_ms
        for index, row in enumerate(on_record(turn.row, state)):
            yield Made(row, turn.timestamp_ms, number, index)
    yield from _timers(state, on_timer, end_ms)


def _timers(state: KeyState, on_timer: OnTimer, reached_ms: int | None) -> Iterator[Made]:
    """A timer may set further ones."""
    while reached_ms is not None and state.timers_ms and (at_ms := min(state.timers_ms)) <= reached_ms:
        state.timers_ms.discard(at_ms)
        state.timestamp_ms = at_ms
        for index, row in enumerate(on_timer(at_ms, state) if on_timer else ()):
            yield Made(row, at_ms, None, index)
