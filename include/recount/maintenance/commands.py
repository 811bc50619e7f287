"""``recount maintain``, which the DAG ``maintenance`` runs every day."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

from recount.core.quantities import quantity
from recount.core.settings import Settings
from recount.maintenance.old_files import remove_old


def maintain(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
) -> None:
    """Remove validation runs and logs that are older than RECOUNT_KEEPING says."""
    settings = Settings.from_environment(os.environ)
    would = "would free" if dry_run else "freed"
    for freed in remove_old(settings, time.time_ns() // 1_000_000, only_count=dry_run):
        print(f"{freed.kind}: {would} {freed.bytes / 2**20:,.1f} MiB in {quantity(freed.files, 'file')}")
