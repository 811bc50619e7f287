"""Every copy of every result that can be found: records on the sink's topic, rows of its Delta tables."""

from __future__ import annotations

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.audit.committed import committed_records, header
from recount.audit.ledger import Order
from recount.core.nodes import KEY
from recount.core.output import ORIGIN_HEADER, REVISION_HEADER
from recount.core.tables import Tables
from recount.recompute.aggregating import TIMESTAMP
from recount.recompute.columns import named, spark_type
from recount.recompute.flow import Flow
from recount.recompute.log import Ranges

KAFKA, DELTA, LATER = "kafka", "delta", "later"
STREAM, BACKFILL = "stream", "backfill"
NO_REVISION = -1
PLACE, ORIGIN, REVISION, EVIDENCE = "place", "origin", "revision", "evidence"


def copies_on_kafka(session: SparkSession, bootstrap_servers: str, flow: Flow, ranges: Ranges) -> DataFrame:
    """The committed records of the sink's topic: result columns, place, origin, revision, and offset as evidence.

    A value that is no result of this sink has nulls; a record without our headers has ``NO_REVISION``.
    """
    topic = flow.sink.topic.name
    records = committed_records(session, bootstrap_servers, topic, ranges)
    if records is None:
        return session.createDataFrame([], _schema(flow))
    value = F.from_json(F.col("value").cast("string"), _value_schema(flow), {"prefersDecimal": "true"})
    origin = F.when(header(ORIGIN_HEADER) == BACKFILL, BACKFILL).otherwise(STREAM)
    record_key = F.col("key").cast("string")
    columns = {name: F.col("decoded")[name] for name in flow.aggregate.fields}
    if flow.key == KEY:
        columns[KEY] = record_key
    revision = F.coalesce(header(REVISION_HEADER).try_cast("int"), F.lit(NO_REVISION))
    has_own_key = record_key.eqNullSafe(columns[flow.key].cast("string"))
    return records.withColumn("decoded", value).select(
        *(column.alias(name) for name, column in columns.items()),
        F.unix_millis("timestamp").alias(TIMESTAMP),
        F.lit(KAFKA).alias(PLACE),
        origin.alias(ORIGIN),
        F.when(has_own_key, revision).otherwise(NO_REVISION).alias(REVISION),
        F.concat_ws("", F.lit(f"{topic}-"), "partition", F.lit("@"), "offset").alias(EVIDENCE),
    )


def copies_in_output(session: SparkSession, tables: Tables, flow: Flow, cut: Order) -> DataFrame:
    """The rows of the sink's Delta table; those of batches after ``cut`` have the place ``LATER``."""
    evidence = F.concat_ws("", F.lit(f"outputs/{flow.sink.table} batch "), "generation", F.lit("/"), "batch")
    rows = session.read.format("delta").load(tables.output(flow.sink.table))
    return rows.select(
        *_result(flow),
        F.when(is_after(cut), LATER).otherwise(DELTA).alias(PLACE),
        F.lit(STREAM).alias(ORIGIN),
        F.coalesce(F.col(REVISION), F.lit(NO_REVISION)).alias(REVISION),
        evidence.alias(EVIDENCE),
    )


def copies_in_corrections(session: SparkSession, tables: Tables, flow: Flow) -> DataFrame:
    """The rows that backfills wrote for the sink."""
    path = tables.corrections(flow.sink.table)
    if not DeltaTable.isDeltaTable(session, path):
        return session.createDataFrame([], _schema(flow))
    return (
        session.read.format("delta")
        .load(path)
        .select(
            *_result(flow),
            F.lit(DELTA).alias(PLACE),
            F.lit(BACKFILL).alias(ORIGIN),
            REVISION,
            F.concat_ws(" ", F.lit(f"corrections/{flow.sink.table}"), "backfill_id").alias(EVIDENCE),
        )
    )


def is_after(order: Order) -> Column:
    """Whether a row was written by a batch after ``order``."""
    generation, batch = order
    same = (F.col("generation") == generation) & (F.col("batch") > batch)
    return (F.col("generation") > generation) | same


def _result(flow: Flow) -> list[Column]:
    return [named(name) for name in [*flow.aggregate.fields, TIMESTAMP]]


def _value_schema(flow: Flow) -> T.StructType:
    return T.StructType([T.StructField(name, spark_type(kind)) for name, kind in flow.aggregate.fields.items()])


def _schema(flow: Flow) -> T.StructType:
    texts = {PLACE: T.StringType(), ORIGIN: T.StringType(), REVISION: T.IntegerType(), EVIDENCE: T.StringType()}
    further = {TIMESTAMP: T.LongType(), **texts}
    return T.StructType([*_value_schema(flow), *(T.StructField(name, kind) for name, kind in further.items())])
