"""``recount panels``."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from recount.core.registry import declared
from recount.core.settings import Settings
from recount.exit_codes import run_job


def panels(
    streams: Annotated[list[str] | None, typer.Argument(help="Names of streams, as declared. Default: all.")] = None,
) -> None:
    """Write what the page of each stream shows of a longer grace and of what other engines would have dropped.

    About the interval of the newest audit; the task ``panels`` of the nightly DAGs calls it. What cannot be told of a
    stream is a sentence on its page: the exit code is 0.
    """
    from recount.panels.panel_files import write_panels

    settings = Settings.from_environment(os.environ).acting_as("audit")
    declarations = declared(settings.topologies)
    for topology in [declarations.topology(name) for name in streams or declarations.topologies]:
        for kind, panel in write_panels(settings, topology).items():
            typer.echo(f"{topology.name}: {kind}: {' '.join(map(str, panel['said']))}")


if __name__ == "__main__":
    # the task of a nightly DAG: nobody waits for it, and somebody does for the backfill that may run beside it
    os.nice(10)
    run_job("panels", panels)
