"""``recount lens``."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from recount.core.archive import Archive
from recount.core.errors import Terminal
from recount.core.instants import A_TIME, instant_ms
from recount.core.registry import declared
from recount.core.settings import Settings


def lens(
    stream: Annotated[str, typer.Argument(help="The name of the stream, as declared.")],
    start: Annotated[str | None, typer.Option(help=f"Ask about batches recorded from this time on: {A_TIME}.")] = None,
    end: Annotated[str | None, typer.Option(help=f"Ask about batches recorded before: {A_TIME}. Default: all.")] = None,
    batch_records: Annotated[
        int | None,
        typer.Option(min=1, help="Let the others read in batches of so many records, not in the stream's own."),
    ] = None,
    first: Annotated[int, typer.Option(min=0, help="How many records and results to list.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what Kafka Streams and Spark Structured Streaming would have answered on the log that a stream has read.

    Reads the raw log and the batch ledger, writes nothing, and runs neither of them. That they differ is an answer: the
    exit code is 0.
    """
    from recount.lens.lens_of_stream import lens_of
    from recount.lens.told_answer import cost, told
    from recount.printed_tables import print_whole

    settings = Settings.from_environment(os.environ).acting_as("audit")
    topology = declared(settings.topologies).stream(stream)
    if isinstance(topology, Archive):
        raise Terminal(
            "an archive answers nothing that another engine could answer otherwise",
            given=stream,
            expected="a topology",
            remedy=f"look at a stream that reads {topology.topic.name}",
        )
    start_ms, end_ms = _instant_ms(start), _instant_ms(end)
    if start_ms is not None and end_ms is not None and end_ms <= start_ms:
        raise Terminal(
            "the end is not after the start",
            given=f"--start {start}, --end {end}",
            expected="an end that is after the start",
            remedy="exchange the two, or leave --end out for all batches from the start on",
        )
    answer = lens_of(
        settings,
        topology,
        start_ms=start_ms,
        end_ms=end_ms,
        batch_records=batch_records,
        first=first,
    )
    if as_json:
        print(json.dumps(answer.document(), ensure_ascii=False))
        return
    print_whole(*told(answer), cost(answer))


def _instant_ms(text: str | None) -> int | None:
    return None if text is None else instant_ms(text)
