"""``recount grace``."""

from __future__ import annotations

import json
import os
import time
from typing import Annotated

import typer

from recount.core.archive import Archive
from recount.core.errors import Terminal
from recount.core.registry import DEFAULT_MODULES, declared
from recount.core.settings import Settings
from recount.core.tables import Tables


def grace(
    stream: Annotated[str, typer.Argument(help="The name of the stream, as declared.")],
    rate: Annotated[
        list[str],
        typer.Option(help="Records a second of a source topic, instead of those measured; NAME=NUMBER for one alone."),
    ] = [],  # noqa: B006
    keys: Annotated[
        list[str], typer.Option(help="How many different keys, or 'unique'; NAME=NUMBER for one alone.")
    ] = [],  # noqa: B006
    record_bytes: Annotated[float, typer.Option(help="Bytes of a record's value.")] = 100.0,
    trigger: Annotated[str, typer.Option(help="Time that a batch spans.")] = "1 s",
    late_by: Annotated[str, typer.Option(help="How far the slowest partition is behind the fastest.")] = "0 s",
    data: Annotated[str | None, typer.Option(help="Root of its Delta tables. Default: RECOUNT_DATA.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a longer grace would have saved of what came too late, and what it would cost.

    No broker has to run. That a stream has nothing to tell yet is an answer: the exit code is 0.
    """
    from recount.grace.advice import advice
    from recount.grace.advice_shown import advice_shown
    from recount.printed_tables import print_whole
    from recount.spark.estimates.workload import workload

    root = data or Settings.from_environment(os.environ).data
    topology = declared(os.environ.get("RECOUNT_TOPOLOGIES", DEFAULT_MODULES)).stream(stream)
    if isinstance(topology, Archive):
        raise Terminal(
            "an archive has no grace",
            given=stream,
            expected="a topology",
            remedy="name the stream that reads the topic",
        )
    given = workload(topology, rate=rate, keys=keys, record_bytes=record_bytes, trigger=trigger, late_by=late_by)
    found = advice(Tables(root), topology, given, time.time_ns() // 1_000_000, measures_rates=not rate)
    if as_json:
        typer.echo(json.dumps(found.document(), indent=1))
    else:
        print_whole(*advice_shown(found))
