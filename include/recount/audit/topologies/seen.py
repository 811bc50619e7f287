"""What readers of a sink see once backfills have corrected rows of it.

A correction takes the place of all rows of its identity that batches up to its own had written, and of all corrections
before it. What the stream writes in a later batch takes the place of the correction. So a reader orders by batch, and
within a batch puts the stream's rows first and corrections, by the number of their backfill, behind them. On Kafka the
records lie in that order.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from recount.audit.copies import DELTA
from recount.audit.topologies.claims import ENTRY, IDENTITY, IS_NULL, REVISION, of_rows
from recount.audit.topologies.every import same_bag
from recount.audit.topologies.identity import Identity
from recount.core.own_columns import BACKFILL, BACKFILL_NUMBER, BATCH, GENERATION

SEEN, HIGHEST, CORRECTED_AT, GOES_ON = "seen", "highest", "corrected_at", "goes_on"
WRITTEN_AT = "written_at"
"""When a row was written: the batch, and behind all rows of the batch the backfill."""
OF_STREAM = -1


def of_stream(outputs: DataFrame, identity: Identity) -> DataFrame:
    """Claims of the rows in the sink's table, each with ``WRITTEN_AT``."""
    evidence = F.concat_ws("", F.lit(f"outputs/{identity.written.table} batch "), GENERATION, F.lit("/"), BATCH)
    return of_rows(outputs, identity, F.lit(DELTA), evidence, **{WRITTEN_AT: _at(F.lit(OF_STREAM))})


def of_backfills(corrections: DataFrame, identity: Identity, **more: Column) -> DataFrame:
    """The same of the rows in the table of its corrections; ``more`` are further columns."""
    evidence = F.concat_ws("", F.lit(f"corrections/{identity.written.table} "), BACKFILL)
    number = F.coalesce(BACKFILL_NUMBER, F.lit(0))
    return of_rows(corrections, identity, F.lit(DELTA), evidence, **{WRITTEN_AT: _at(number), **more})


def seen_rows(written: DataFrame, identity: Identity) -> DataFrame:
    """One row for each identity of ``written``: ``SEEN`` (sorted entries of what readers see, deletions too), the
    ``HIGHEST`` revision.

    ``CORRECTED_AT`` is when it was last corrected, null where it was not; ``GOES_ON``: the stream has written it since.
    """
    at = F.col(WRITTEN_AT)
    number = at["number"]
    told = F.struct(at.alias(WRITTEN_AT), F.col(REVISION).alias(REVISION), F.col(ENTRY).alias(ENTRY))
    grouped = written.groupBy(*IDENTITY).agg(
        F.max(REVISION).alias(HIGHEST),
        F.max(F.when(number > OF_STREAM, at)).alias(CORRECTED_AT),
        F.collect_list(told).alias("rows"),
    )
    corrected_at = F.col(CORRECTED_AT)
    since = F.filter("rows", lambda one: corrected_at.isNull() | (one[WRITTEN_AT] > corrected_at))
    correction = F.filter("rows", lambda one: one[WRITTEN_AT] == corrected_at)
    current = F.when(F.size(since) > 0, since).otherwise(correction)
    if identity.is_latest:
        current = F.slice(F.sort_array(current, asc=False), 1, 1)
    entries = F.transform(current, lambda one: one[ENTRY])
    return grouped.select(
        *IDENTITY,
        F.array_sort(entries).alias(SEEN),
        HIGHEST,
        CORRECTED_AT,
        (corrected_at.isNotNull() & (F.size(since) > 0)).alias(GOES_ON),
    )


def sees(seen: Column, complete: Column, identity: Identity) -> Column:
    """Whether readers who see the entries ``seen`` see what ``complete`` has; a row that was deleted is none."""
    nothing = (F.size(complete) == 0) & F.forall(seen, lambda entry: entry[IS_NULL])
    return nothing | same_bag(seen, complete, identity)


def _at(number: Column) -> Column:
    return F.struct(
        F.col(GENERATION).cast("long").alias("generation"),
        F.col(BATCH).cast("long").alias("batch"),
        number.cast("long").alias("number"),
    )
