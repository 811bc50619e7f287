"""``recount backfill`` and the entry point of spark_jobs/backfill.py."""

from __future__ import annotations

import logging
import os
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from recount.audit.open_misses import write_summary
from recount.backfill.plan import Plan, keep, plan
from recount.backfill.repair import pending, repair
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.own_columns import NOW, REVISION
from recount.core.registry import declared
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.recompute.columns import named
from recount.sessions import spark_session

_SHOWN = 50


def backfill(
    stream: Annotated[str, typer.Option("--stream", help="The stream to repair.")],
    audit: Annotated[str | None, typer.Option(help="Only what this audit found and nobody has repaired.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Only show what would change.")] = False,
) -> None:
    """Correct all results that audits found incomplete and nobody has repaired: higher revisions, exactly once."""
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
            changes, unpublished = planned.changes.count(), pending(session, settings, planned)
            write_summary(settings, stream, planned.audit, changes, unpublished)
            rest = f"; {unpublished} earlier backfills are to be published" if unpublished else ""
            print(f"dry run: {changes} open misses as of audit {planned.audit}{rest}; nothing was changed")
            return
        done = repair(session, settings, planned)
        name = done.backfill or "nothing to correct"
        print(f"backfill {name}: {done.corrections} corrections, published {len(done.published)} backfills")
    finally:
        session.stop()


def backfill_job() -> None:
    """The command line of spark_jobs/backfill.py."""
    typer.run(backfill)


def _table(planned: Plan) -> Table:
    aggregates = list(planned.flow.aggregate.aggregates)
    changed = [heading for name in aggregates for heading in (f"{name} now", f"{name} corrected")]
    title = f"open misses as of audit {planned.audit}"
    table = Table(planned.flow.key, WINDOW_START, WINDOW_END, *changed, "revision", title=title)
    for row in planned.changes.orderBy(WINDOW_START, named(planned.flow.key)).limit(_SHOWN).collect():
        values = [value for name in aggregates for value in (row[f"{NOW}{name}"], row[name])]
        cells = [row[planned.flow.key], row[WINDOW_START], row[WINDOW_END], *values, row[REVISION]]
        table.add_row(*(str(cell) for cell in cells))
    return table
