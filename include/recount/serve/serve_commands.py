"""``recount query`` and ``recount serve``."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from recount.core.archive import Archive
from recount.core.errors import Terminal
from recount.core.instants import A_TIME
from recount.core.registry import Stream, declared
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.log_lines import write_log


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
    from recount.printed_tables import print_whole
    from recount.serve.answer import answer
    from recount.serve.asked_sink import asked_sink
    from recount.serve.question import Question
    from recount.serve.shown import table_of, told

    settings = Settings.from_environment(os.environ).acting_as("audit")
    asked = asked_sink(_topology(declared(settings.topologies).stream(stream)), sink)
    now_ms = _now_ms()
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

    from recount.serve.bearer import token_of
    from recount.serve.http_answers import Server
    from recount.serve.listening import LimitRate, listening, rate_of

    limit = rate_of(rate)
    token = token_of(token_file, os.environ)
    settings = Settings.from_environment(os.environ).acting_as("audit")
    write_log(settings.log_format)
    server = Server(settings=settings, declarations=declared(settings.topologies), now_ms=_now_ms)
    app = LimitRate(server.app(token, route or []), limit)
    uvicorn.Server(listening(app, host, port)).run()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _topology(stream: Stream) -> Topology:
    if isinstance(stream, Archive):
        raise Terminal(
            "an archive has no results to ask for",
            given=stream.name,
            expected="a topology",
            remedy=f"read the table archive/{stream.topic.name}, as docs/tables.md shows",
        )
    return stream
