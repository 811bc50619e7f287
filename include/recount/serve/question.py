"""What is asked of a sink, by whoever asks: texts of a command line or of a URL, checked by the declaration."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

import polars as pl

from recount.core.instants import A_TIME, instant_ms, told_time
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.schema import LONG_MAX, LONG_MIN
from recount.serve.asked_sink import AskedSink, BadQuestion

MOST_ROWS, DEFAULT_ROWS = 10_000, 100
_LIMIT = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, kw_only=True)
class Question:
    """Rows of ``sink`` with the ``key`` (None: any), whose window has the time ``window_ms`` in it (None: any).

    ``at_ms``: as of that time (None: now). The answer has at most ``limit`` rows, the newest first; ``count_by`` asks
    for the number of rows by the value of that field instead.
    """

    sink: AskedSink
    key: str | int | None = None
    window_ms: int | None = None
    at_ms: int | None = None
    limit: int = DEFAULT_ROWS
    count_by: str | None = None

    @classmethod
    def of(
        cls,
        sink: AskedSink,
        *,
        now_ms: int,
        key: str | None = None,
        window: str | None = None,
        at: str | None = None,
        limit: str | None = None,
        count_by: str | None = None,
    ) -> Self:
        """The question of these texts; raises ``Terminal`` for one that means nothing."""
        if window is not None:
            sink.require_windows()
        if count_by is not None:
            sink.require_countable(count_by)
        return cls(
            sink=sink,
            key=None if key is None else sink.key_of(key),
            window_ms=None if window is None else _in_64_bits(instant_ms(window)),
            at_ms=None if at is None else _past(instant_ms(at), now_ms),
            limit=DEFAULT_ROWS if limit is None else _limit(limit),
            count_by=count_by,
        )

    @property
    def wanted(self) -> pl.Expr | None:
        """Whether a row is asked for; None where all are."""
        found = []
        if self.key is not None:
            found.append(pl.col(self.sink.key) == pl.lit(self.key))
        if self.window_ms is not None:
            at, end = pl.lit(self.window_ms), pl.col(WINDOW_END)
            found.append(pl.col(WINDOW_START) <= at)
            found.append(at <= end if self.sink.ends_count else at < end)
        return pl.all_horizontal(found) if found else None


def _in_64_bits(at_ms: int) -> int:
    return min(max(at_ms, LONG_MIN), LONG_MAX)


def _past(at_ms: int, now_ms: int) -> int:
    if at_ms > now_ms:
        raise BadQuestion(
            "that time has not come",
            given=told_time(at_ms),
            expected=f"{A_TIME}, up to now: {told_time(now_ms)}",
            remedy="leave the time out for what is known now",
        )
    return at_ms


def _limit(text: str) -> int:
    if not _LIMIT.fullmatch(text) or not 1 <= int(text) <= MOST_ROWS:
        raise BadQuestion(
            "no such number of rows",
            given=text[:100],
            expected=f"1 to {MOST_ROWS}",
            remedy="read a whole table with Polars, DuckDB or Spark: docs/tables.md",
        )
    return int(text)
