"""``recount backfill`` and the entry point of spark_jobs/backfill.py."""

import os
from typing import Annotated

import typer

from recount.audit.carry.erased_keys import ErasedKeys
from recount.audit.certificate.certificate_files import write_summary
from recount.audit.cut.auditable import writes_nothing
from recount.audit.integrity.strangers import LeftForBackfills, damage_told
from recount.backfill.carrying_out import CarryingOut, Repaired
from recount.backfill.corrections_due import keep_due, left_out, table_of
from recount.declare.registry import declared, is_audited
from recount.declare.topology import Topology
from recount.kafka.connection import refusals_told
from recount.runtime.console import print_whole, run_job
from recount.runtime.log_lines import about, write_log
from recount.runtime.settings import Settings
from recount.runtime.times import quantity
from recount.tables.places import Tables


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
    with about(stream=stream, audit=audit), refusals_told(), damage_told(stream, "recount backfill"):
        backfill_rows(settings, topology, audit, dry_run=dry_run)


def backfill_rows(settings: Settings, topology: Topology, audit: str | None, *, dry_run: bool) -> None:
    """Correct what is due, or (``dry_run``) show it and keep it for the person who decides."""
    carrying_out = CarryingOut.of(settings, topology, audit)
    due, now = carrying_out.due, carrying_out.ready()
    LeftForBackfills.of(settings, topology.name).require_unaltered(due.run)
    print_whole(table_of(due, now))
    if dry_run:
        keep_due(Tables(settings.data), due)
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
