"""``recount stop``: the order to end, for anything that holds a lease."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

from recount.core.settings import Settings
from recount.kafka.connection import Connection
from recount.kafka.held_leases import PATIENCE_S, driver_of, stop_driver


def stop(
    name: Annotated[str, typer.Argument(help="A stream, declared or not; or group.NAME, the driver of a group.")],
    patience_s: Annotated[float, typer.Option(min=0, help="How long to wait for its end.")] = PATIENCE_S,
) -> None:
    """Stop a stream after its batch, and wait until it has ended.

    The order stands until it is withdrawn (DAG stream_control, order start): Airflow does not launch it before.
    """
    connection = Connection.of(Settings.from_environment(os.environ))
    last = stop_driver(connection, name, patience_s=patience_s)
    how = "it said so" if last.is_over else "it is gone without a word"
    print(f"{name} does not run: {how} ({driver_of(last, time.time_ns() // 1_000_000)})")
