"""``recount backfill`` and the entry point of spark_jobs/backfill.py."""

from __future__ import annotations

import os
from decimal import Decimal
from typing import Annotated, Any

import typer
from pyspark.sql import SparkSession
from rich.table import Table

from recount.audit.carry.erased_keys import ErasedKeys
from recount.audit.certificate.certificate_files import write_summary
from recount.audit.certificate.summary import printable
from recount.audit.cut.auditable import writes_nothing
from recount.audit.integrity.strangers import Lineage, damage_told
from recount.backfill.carrying_out import CarryingOut
from recount.backfill.corrections_due import corrections_due, keep_due, left_out, table_of
from recount.backfill.single_backfill import Plan, Repaired, keep, pending, plan, repair
from recount.declare.columns import NOW, REVISION
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.registry import declared, is_audited
from recount.declare.schema import FieldType, with_places
from recount.declare.topology import Topology
from recount.kafka.connection import refusals_told
from recount.recompute.single_flow import flow_of
from recount.recompute.spark_columns import named
from recount.runtime.console import print_whole, run_job
from recount.runtime.log_lines import about, write_log
from recount.runtime.settings import Settings
from recount.runtime.times import quantity, told_window
from recount.tables.places import Tables
from recount.tables.spark_session import spark_session

_SHOWN = 50


def backfill(
    stream: Annotated[str, typer.Option("--stream", help="The stream to repair.")],
    audit: Annotated[str | None, typer.Option(help="Only what this audit found and nobody has repaired.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Only show what would change.")] = False,
) -> None:
    """Correct all results that audits found incomplete and nobody has repaired: higher revisions, exactly once."""
    settings = Settings.from_environment(os.environ).acting_as("stream")
    write_log(settings.log_format)
    topology = declared(settings.topologies).topology(stream)
    if not is_audited(topology):
        raise writes_nothing(topology)
    ErasedKeys.of(settings, stream).require_finished()
    session = spark_session(settings, f"recount backfill {stream}")
    try:
        with about(stream=stream, audit=audit), refusals_told(), damage_told(stream, "recount backfill"):
            _backfill(session, settings, topology, audit, dry_run=dry_run)
    finally:
        session.stop()


def _backfill(
    session: SparkSession, settings: Settings, topology: Topology, audit: str | None, *, dry_run: bool
) -> None:
    tables = Tables(settings.data)
    if flow_of(topology) is None:
        backfill_rows(session, settings, topology, audit, dry_run=dry_run)
        return
    planned = plan(session, tables, topology, audit)
    Lineage.of(settings, topology.name).require_unaltered(planned.audit)
    print_whole(_table(planned))
    if dry_run:
        keep(session, tables, planned)
        _tell(settings, topology.name, planned.audit, planned.changes.count(), pending(session, settings, planned))
        return
    _tell_done(repair(session, settings, planned))


def backfill_rows(
    session: SparkSession, settings: Settings, topology: Topology, audit: str | None, *, dry_run: bool
) -> None:
    """The same of a topology that is no single aggregation: row by row of all of its sinks."""
    tables = Tables(settings.data)
    due = corrections_due(session, tables, topology, audit)
    Lineage.of(settings, topology.name).require_unaltered(due.run.audit)
    carrying_out = CarryingOut(session=session, settings=settings, due=due)
    now = carrying_out.ready()
    print_whole(table_of(due, now))
    if dry_run:
        keep_due(session, tables, due)
        _tell(settings, topology.name, due.run.audit, len(now), carrying_out.waiting())
    else:
        _tell_done(carrying_out.run())
    for line in left_out(due, now):
        print(line)


def _tell(settings: Settings, stream: str, audit: str, changes: int, unpublished: int) -> None:
    write_summary(settings, stream, audit, changes, unpublished)
    rest = f"; {unpublished} earlier backfills are to be published" if unpublished else ""
    print(f"dry run: {quantity(changes, 'open miss', 'open misses')} as of audit {audit}{rest}; nothing was changed")


def _tell_done(done: Repaired) -> None:
    name = done.backfill or "nothing to correct"
    published = quantity(len(done.published), "backfill")
    print(f"backfill {name}: {quantity(done.corrections, 'correction')}, published {published}")


def backfill_job() -> None:
    """The command line of spark_jobs/backfill.py."""
    run_job("backfill", backfill)


def _table(planned: Plan) -> Table:
    aggregates = list(planned.flow.aggregate.aggregates)
    changed = [heading for name in aggregates for heading in (f"{name} now", f"{name} corrected")]
    title = f"open misses as of audit {planned.audit}"
    table = Table(planned.flow.key, "window", *changed, "revision", title=title)
    for row in planned.changes.orderBy(WINDOW_START, named(planned.flow.key)).limit(_SHOWN).collect():
        kinds = planned.flow.aggregate.fields
        values = [_text(row[name], kinds[of]) for of in aggregates for name in (f"{NOW}{of}", of)]
        cells = [row[planned.flow.key], told_window(row[WINDOW_START], row[WINDOW_END]), *values, row[REVISION]]
        table.add_row(*map(printable, cells))
    return table


def _text(value: Any, kind: FieldType) -> str:
    whole = with_places(value, kind)
    return format(whole, "f") if isinstance(whole, Decimal) else str(whole)
