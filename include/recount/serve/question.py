"""Questions about a sink by ``recount query`` and ``recount serve``: texts checked by the declaration."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

import polars as pl
import typer

from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.registry import declared
from recount.declare.schema import LONG_MAX, LONG_MIN
from recount.runtime.log_lines import write_log
from recount.runtime.settings import Settings
from recount.runtime.times import A_TIME, clock_ms, instant_ms, told_time
from recount.serve.asked_sink import AskedSink, BadQuestion
from recount.tables.places import Tables

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
            window_ms=None if window is None else min(max(instant_ms(window), LONG_MIN), LONG_MAX),
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


def _past(at_ms: int, now_ms: int) -> int:
    if at_ms > now_ms:
        raise BadQuestion.of("time-to-come", given=told_time(at_ms), time=A_TIME, now=told_time(now_ms))
    return at_ms


def _limit(text: str) -> int:
    if not _LIMIT.fullmatch(text) or not 1 <= int(text) <= MOST_ROWS:
        raise BadQuestion.of("no-such-number-of-rows", given=text[:100], most=MOST_ROWS)
    return int(text)


def query(
    stream: Annotated[str, typer.Argument(help="The name of the stream, as declared.")],
    sink: Annotated[str | None, typer.Option(help="The topic that it writes, where it writes several.")] = None,
    key: Annotated[str | None, typer.Option(help="Only rows of this key.")] = None,
    window: Annotated[str | None, typer.Option(help=f"Only windows with this time in them: {A_TIME}.")] = None,
    at: Annotated[str | None, typer.Option(help=f"As of a time in the past: {A_TIME}. Default: now.")] = None,
    count_by: Annotated[str | None, typer.Option(help="Count the rows by the values of this field.")] = None,
    limit: Annotated[str | None, typer.Option(help="At most so many rows, the newest. Default: 100.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what a stream's readers see now, or saw at a time in the past, and whether it has been audited.

    That a stream has nothing to answer from yet is an answer: the exit code is 0.
    """
    from recount.runtime.console import print_whole
    from recount.serve.answer import answer, table_of, told
    from recount.serve.asked_sink import asked_sink

    settings = Settings.from_environment(os.environ).acting_as("audit")
    asked = asked_sink(declared(settings.topologies).topology(stream), sink)
    now_ms = clock_ms()
    question = Question.of(asked, now_ms=now_ms, key=key, window=window, at=at, limit=limit, count_by=count_by)
    found = answer(Tables(settings.data), question, now_ms)
    if as_json:
        print(found.to_json().decode())
        return
    print_whole(*([table_of(found)] if found.rows else []), *told(found))


def serve(
    token_file: Annotated[Path | None, typer.Option(help="The file with the token; without it RECOUNT_TOKEN.")] = None,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535, help="The port to listen at.")] = 8321,
    route: Annotated[
        list[str] | None,
        typer.Option(help="NAME=STREAM or NAME=STREAM/SINK: /NAME/KEY/ is the key's current row. Again for several."),
    ] = None,
    rate: Annotated[str, typer.Option(help="How often one address may ask.")] = "50/second",
) -> None:
    """Answer questions about every declared stream over HTTP, until it is interrupted."""
    import uvicorn

    from recount.serve.http_answers import Server
    from recount.serve.listening import LimitRate, listening, rate_of, token_of

    limit = rate_of(rate)
    token = token_of(token_file, os.environ)
    settings = Settings.from_environment(os.environ).acting_as("audit")
    write_log(settings.log_format)
    server = Server(settings=settings, declarations=declared(settings.topologies), now_ms=clock_ms)
    app = LimitRate(server.app(token, route or []), limit)
    uvicorn.Server(listening(app, host, port)).run()
