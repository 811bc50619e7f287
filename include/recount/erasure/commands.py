"""``recount erase``."""

from __future__ import annotations

import logging
import os
from typing import Annotated

import typer

from recount.core.errors import Terminal
from recount.core.quantities import quantity
from recount.core.registry import declared
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.erasure.asked_key import Asked
from recount.erasure.elsewhere import MAX_FILES, reports_naming, under_other_keys
from recount.erasure.erasing import Order
from recount.log_lines import write_log


def erase(
    key: Annotated[str, typer.Option("--key", help="The key as text: the key of sinks, and of archived records.")],
    by: Annotated[str, typer.Option("--by", help="Who erases it; goes into the certificate.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; goes into the certificate. Do not name the key.")],
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", help="A stream or archive; again for several. Without it: all that have the key."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go, and what hinders it.")] = False,
) -> None:
    """Erase one key from the tables, the state, the audits and the archives of streams that stand still.

    Each stream must have been audited up to its last batch, and nothing may be open. Later audits go on from there.
    A run that was killed is completed by running the same again.
    """
    settings = Settings.from_environment(os.environ)
    write_log(settings.log_format, level=logging.WARNING)
    asked = Asked.of(settings, declared(settings.topologies), Order(key=key, by=by, reason=reason), stream or [])
    _show(asked)
    found = asked.hindrances()
    for name, text in found:
        print(f"{name}: hindered: {text}")
    if dry_run:
        print("dry run: nothing was erased")
    elif found:
        raise Terminal(
            "nothing was erased",
            given=f"{len(found)} hindrances in {', '.join(sorted({name for name, _ in found}))}",
            expected="streams that stand still, whose newest audit is a match up to their last batch",
            remedy="do what is said above, then run this again; --stream erases from the streams that it names only",
        )
    else:
        for run in [*(one.run for one in asked.streams), *(one.run for one in asked.archives)]:
            done = run()
            print(f"{done.stream}: erasure {done.erasure} is done, {quantity(sum(done.counts.values()), 'row')}")
    _show_what_stays(settings, asked, key)


def _show(asked: Asked) -> None:
    counts = asked.counts()
    for name, tables in counts.items():
        print(f"{name}: {', '.join(f'{table} {n}' for table, n in sorted(tables.items())) or 'no rows'}")
    if not counts:
        print("no stream has this key")


def _show_what_stays(settings: Settings, asked: Asked, key: str) -> None:
    tables = Tables(settings.data)
    topics = {source.topic.name for one in asked.streams for source in one.topology.sources}
    letters = {source.topic.dead_letter_name for one in asked.streams for source in one.topology.sources}
    written = {node.topic.name for one in asked.streams for node in one.topology.written}
    archived = {one.archive.topic.name for one in asked.archives}
    if topics | written | archived:
        print(f"stays in Kafka until its retention: {', '.join(sorted(topics | letters | written | archived))}")
    for name in asked.left:
        print(f"stays in {name}, which was not named")
    for one in asked.streams:
        for line in under_other_keys(tables, one.topology, key):
            print(f"stays in {line}")
    files = reports_naming(settings, key)
    for file in files[:MAX_FILES]:
        print(f"stays in {file}")
    if len(files) > MAX_FILES:
        print(f"stays in {len(files) - MAX_FILES} more files below {settings.reports}")
