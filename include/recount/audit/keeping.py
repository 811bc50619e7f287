"""What an audit recomputed and read, kept for itself and the audits to come.

It passes through here, ``ROWS_AT_HAND`` rows at a time: Spark would take a second to write a small table, on all cores,
and a table has one library that writes it (docs/decisions/0007).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.audit.committed import offsets_in, read_committed
from recount.audit.published import copies_by_spark, copies_of
from recount.audit.store import PARTIALS, PUBLISHED, AuditStore
from recount.kafka.connection import Connection
from recount.recompute.aggregating import group_of
from recount.recompute.columns import named
from recount.recompute.flow import Flow
from recount.recompute.log import Ranges
from recount.recompute.recomputation import Recomputation

ROWS_AT_HAND = 500_000
RECORDS_AT_HAND = 100_000
"""So many records are decoded here sooner than Spark has begun."""


def at_hand(rows: DataFrame) -> pl.DataFrame:
    """Spark's ``rows``, fetched: there must be few."""
    return pl.DataFrame(rows.toArrow())


def keep_partials(store: AuditStore, audit: str, recomputed: Recomputation) -> None:
    """Put the partials of the stretch into the store."""
    parts = max(1, ceil(recomputed.rows / ROWS_AT_HAND))
    place = F.pmod(F.xxhash64(*map(named, group_of(recomputed.flow))), F.lit(parts))
    for part in range(parts):
        rows = recomputed.partials
        store.put_rows(PARTIALS, audit, at_hand(rows if parts == 1 else rows.where(place == part)), part=part)


def keep_published(
    session: SparkSession, connection: Connection, store: AuditStore, audit: str, flow: Flow, ranges: Ranges
) -> None:
    """Put the copies in ``ranges`` of the sink's topic into the store."""
    for part, piece in enumerate(pieces(ranges, ROWS_AT_HAND)):
        if offsets_in(piece) > RECORDS_AT_HAND:
            rows = at_hand(copies_by_spark(session, connection, flow, piece))
        else:
            rows = pl.DataFrame(copies_of(read_committed(connection, flow.sink.topic.name, piece), flow))
        store.put_rows(PUBLISHED, audit, rows, part=part)


def pieces(ranges: Ranges, offsets: int) -> Iterator[Ranges]:
    """``ranges`` in pieces of about so many offsets, each with its share of every partition; at least one.

    >>> list(pieces({0: (0, 5), 1: (7, 9)}, 4))
    [{0: (0, 2), 1: (7, 8)}, {0: (2, 5), 1: (8, 9)}]
    """
    number = max(1, ceil(offsets_in(ranges) / offsets))
    for part in range(number):
        yield {
            partition: (start + (end - start) * part // number, start + (end - start) * (part + 1) // number)
            for partition, (start, end) in ranges.items()
        }
