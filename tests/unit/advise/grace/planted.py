"""Late records: the stream revenue-by-region with some that were planted, and the ledger as the interpreter has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
from deltalake import write_deltalake
from tests.unit.serve.written_streams import WrittenStream, as_arrivals
from tests.unit.topologies.shop_log import Arrival

from recount.advise.grace_judges import attributed, judges_of, shortfalls
from recount.certificate.finding import GraceMiss
from recount.declare.columns import AUDIT
from recount.declare.registry import declared
from recount.declare.topology import Topology
from recount.engine.stage.intake import LATE_SCHEMA
from recount.reference.records import LateRecord
from recount.tables.batch_proofs import MISSES

MISS_SCHEMA = {
    **dict.fromkeys(("key", "published", "complete", "sink", "origin"), pl.String()),
    **dict.fromkeys(("window_start", "window_end", "late_records"), pl.Int64()),
    "late": pl.List(pl.String()),
    "explained": pl.Boolean(),
}
WAITS_MS = 305_000
"""Five minutes of the window, 5 s of grace."""


def orders(second: int, *regions: str) -> list[Arrival]:
    """An order of each region at that second."""
    return as_arrivals(
        "orders", *((None, second, {"order_id": "o", "amount": 1, "region": region}) for region in regions)
    )


def planted(root: Path) -> WrittenStream:
    """In a hundred regions an order at second 1, and one more at second 2 that comes too late.

    Results of the first 5 minutes are closed at second 305. 50 orders come when the stream is at second 335, which is
    30 s too late, 40 at second 420, and 10 after 3 hours.
    """
    written = WrittenStream(declared().topology("revenue-by-region"), root)
    regions = [f"r{number:02}" for number in range(100)]
    written.write(
        [
            orders(1, *regions),
            [*orders(335, "clock"), *orders(2, *regions[:50])],
            [*orders(420, "clock"), *orders(2, *regions[50:90])],
            [*orders(10_800, "clock"), *orders(2, *regions[90:])],
        ]
    )
    return written


def with_misses(stream: WrittenStream, audit: str, misses: Sequence[GraceMiss]) -> None:
    """What ``audit`` found."""
    rows: list[dict[str, Any]] = [{**asdict(one), "late": list(one.late)} for one in misses]
    table = pl.DataFrame(rows, schema=MISS_SCHEMA).with_columns(pl.lit(audit).alias(AUDIT))
    write_deltalake(stream.tables.audit(stream.topology.name, MISSES), table, mode="append")


def misses_of(stream: WrittenStream) -> list[GraceMiss]:
    """A grace miss for each late record, as an audit finds them; those that need least first."""
    late = pl.scan_delta(stream.tables.late(stream.topology.name)).sort("margin_ms").collect()
    return [
        GraceMiss(
            key=row["key"],
            window_start=row["window_start"],
            window_end=row["window_end"],
            published="1",
            complete="2",
            late_records=1,
            late=(f"{row['topic']}-{row['partition']}@{row['offset']} +{row['margin_ms']} ms",),
            explained=True,
        )
        for row in late.iter_rows(named=True)
    ]


def late_rows(late: Sequence[LateRecord]) -> pl.LazyFrame:
    rows = [{**asdict(one), "key": None if one.key is None else str(one.key)} for one in late]
    return pl.LazyFrame(rows, schema=LATE_SCHEMA)


def shortfalls_of(topology: Topology, late: Sequence[LateRecord], place: int = 0) -> tuple[pl.Series, pl.Series | None]:
    """Those of records and of results of the judge at ``place``."""
    judges = judges_of(topology)
    return shortfalls(attributed(late_rows(late), judges), place, judges[place])
