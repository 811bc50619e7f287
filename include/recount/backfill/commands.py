"""``recount backfill`` and the entry point of spark_jobs/backfill.py."""

from __future__ import annotations

import logging
import os
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from recount.backfill.plan import Plan, keep, plan
from recount.backfill.repair import repair
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.registry import declared
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.sessions import spark_session

_SHOWN = 50


def backfill(
    stream: Annotated[str, typer.Option("--stream", help="The stream to repair.")],
    audit: Annotated[str | None, typer.Option(help="Repair what this audit found. Default: the last audit.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Only show what would change.")] = False,
) -> None:
    """Correct the results that an audit found incomplete: higher revisions, published exactly once."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = Settings.from_environment(os.environ)
    topology = declared(settings.topologies).topology(stream)
    session = spark_session(settings, f"recount backfill {stream}")
    try:
        tables = Tables(settings.data)
        planned = plan(session, tables, topology, audit)
        Console().print(_table(planned))
        if dry_run:
            keep(session, tables, planned)
            print(f"dry run of backfill {planned.audit}: nothing was changed")
            return
        done = repair(session, settings, planned)
        print(f"backfill {done.backfill}: {done.corrections} corrections, published {len(done.published)} backfills")
    finally:
        session.stop()


def backfill_job() -> None:
    """The command line of spark_jobs/backfill.py."""
    typer.run(backfill)


def _table(planned: Plan) -> Table:
    aggregates = list(planned.flow.aggregate.aggregates)
    changed = [heading for name in aggregates for heading in (f"{name} now", f"{name} corrected")]
    table = Table(planned.flow.key, WINDOW_START, WINDOW_END, *changed, "revision", title=f"audit {planned.audit}")
    for row in planned.changes.orderBy(WINDOW_START, planned.flow.key).limit(_SHOWN).collect():
        values = [value for name in aggregates for value in (row[f"now_{name}"], row[name])]
        cells = [row[planned.flow.key], row[WINDOW_START], row[WINDOW_END], *values, row["revision"]]
        table.add_row(*(str(cell) for cell in cells))
    return table
