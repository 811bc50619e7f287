"""The contender plain Structured Streaming: the jobs as Spark's documentation would write them, to Delta and Kafka.

At least once on Kafka, for Spark's sink offers no more; the Delta table is written idempotently, as Delta's
documentation advises for ``foreachBatch``. Session, fetch options and batch size are those of Recount.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.contending import Arguments, contend
from bench.jobs import GRACE, PAID_WITHIN, SESSION_GAP
from bench.payments import payments_of
from bench.routes import BY_REGION
from recount.kafka.connection import SCAN_OPTIONS
from recount.runtime.settings import Settings
from recount.runtime.times import milliseconds

_ORDER = "order_id STRING, user_id STRING, region STRING, amount DOUBLE, status STRING"
PAYMENT = "order_id STRING, method STRING"


def source(session: SparkSession, arguments: Arguments, topic: str, max_offsets: int) -> DataFrame:
    """Kafka's records of ``topic``."""
    return (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments["bootstrap"])
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max_offsets)
        .options(**SCAN_OPTIONS)
        .load()
    )


def decoded(records: DataFrame, schema: str = _ORDER) -> DataFrame:
    """The fields of Kafka's ``records``, and their time."""
    value = F.from_json(F.col("value").cast("string"), schema).alias("value")
    return records.select("timestamp", value).select("timestamp", "value.*")


def watermarked(records: DataFrame, schema: str = _ORDER) -> DataFrame:
    """The decoded records with their watermark."""
    return decoded(records, schema).withWatermark("timestamp", _interval(milliseconds(GRACE)))


def revenue_by_region(orders: DataFrame) -> DataFrame:
    """The job revenue-by-region."""
    region = F.coalesce("region", F.lit("UNKNOWN")).alias("key")
    revenue = orders.groupBy(F.window("timestamp", "5 minutes"), region).agg(
        F.count("*").alias("orders"), F.sum("amount").alias("revenue")
    )
    return revenue.select("key", _window_start(), "orders", "revenue")


def counts_per_user(orders: DataFrame) -> DataFrame:
    """The job counts-per-user."""
    user = F.col("user_id").alias("key")
    counts = orders.groupBy(F.window("timestamp", "5 minutes"), user).agg(F.count("*").alias("orders"))
    return counts.select("key", _window_start(), "orders")


def sessions_per_user(orders: DataFrame) -> DataFrame:
    """The job sessions-per-user. Spark ends a session at its gap, the others only after it: hence one more millisecond.

    Spark has session windows in the output mode append only: each leaves when the watermark has passed its end.
    """
    gap = F.session_window("timestamp", _interval(milliseconds(SESSION_GAP) + 1)).alias("window")
    sessions = orders.groupBy(gap, F.col("user_id").alias("key")).agg(F.count("*").alias("orders"))
    return sessions.select("key", _window_start(), "orders")


def orders_with_payments(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """The job orders-with-payments."""
    paid = payments.select(F.col("order_id").alias("paid_order_id"), F.col("timestamp").alias("paid_at"), "method")
    meet = F.expr(
        "paid_order_id = order_id AND paid_at >= timestamp"
        f" AND paid_at <= timestamp + INTERVAL {_interval(milliseconds(PAID_WITHIN))}"
    )
    return orders.join(paid, meet).select(F.col("order_id").alias("key"), "user_id", "amount", "method")


def routing_by_region(orders: DataFrame) -> DataFrame:
    """The job routing-by-region; ``route`` is how the name of the record's topic ends."""
    route = F.lit(BY_REGION.others)
    for region, ending in BY_REGION.by_region.items():
        route = F.when(F.col("region") == region, ending).otherwise(route)
    return orders.select(F.col("order_id").alias("key"), "region", "amount", route.alias("route"))


def totals_per_user(orders: DataFrame) -> DataFrame:
    """The job totals-per-user."""
    totals = orders.groupBy(F.col("user_id").alias("key"))
    return totals.agg(F.count("*").alias("orders"), F.sum("amount").alias("total"))


def _window_start() -> Column:
    return F.unix_millis("window.start").alias("window_start")


def _interval(duration_ms: int) -> str:
    return f"{duration_ms} milliseconds"


JOBS: dict[str, Callable[..., DataFrame]] = {
    "revenue-by-region": revenue_by_region,
    "counts-per-user": counts_per_user,
    "sessions-per-user": sessions_per_user,
    "orders-with-payments": orders_with_payments,
    "routing-by-region": routing_by_region,
}
"""Each makes of the orders, and of the payments if it joins them, the key and the fields of its results."""
BATCH_JOBS = {**JOBS, "totals-per-user": totals_per_user}
"""What the same jobs are as batch queries; audits are compared with them."""
_UPDATING = ("revenue-by-region", "counts-per-user")


def query(session: SparkSession, arguments: Arguments, topic: str) -> DataFrame:
    """The results of the job; two sources share the size of a batch."""
    job, max_offsets = arguments["job"], int(arguments["max-offsets"])
    match job:
        case "orders-with-payments":
            orders = source(session, arguments, topic, max_offsets // 2)
            payments = source(session, arguments, payments_of(topic), max_offsets // 2)
            return JOBS[job](watermarked(orders), watermarked(payments, PAYMENT))
        case "routing-by-region":
            return JOBS[job](decoded(source(session, arguments, topic, max_offsets)))
    return JOBS[job](watermarked(source(session, arguments, topic, max_offsets)))


def run(session: SparkSession, settings: Settings, arguments: Arguments, prefix: str) -> Path:
    """Run the query to the end of its topic, or until it is killed."""
    name, output = arguments[prefix + "application"], arguments[prefix + "output"]
    table = f"{settings.data}/{name}"
    checkpoint = f"{settings.checkpoints}/{name}"

    def write(results: DataFrame, batch: int) -> None:
        rows = results.persist()
        rows.write.format("delta").mode("append").option("txnAppId", name).option("txnVersion", batch).save(table)
        topic = F.concat(F.lit(output), "route") if "route" in rows.columns else F.lit(output)
        value = F.to_json(F.struct(*(column for column in rows.columns if column != "route")))
        records = rows.select(topic.alias("topic"), "key", value.alias("value"))
        records.write.format("kafka").option("kafka.bootstrap.servers", arguments["bootstrap"]).save()
        rows.unpersist()

    mode = "update" if arguments["job"] in _UPDATING else "append"
    results = query(session, arguments, arguments[prefix + "topic"])
    writer = results.writeStream.outputMode(mode).option("checkpointLocation", checkpoint).foreachBatch(write)
    running = (writer if "follow" in arguments else writer.trigger(availableNow=True)).start()
    running.awaitTermination()
    return Path(checkpoint)


if __name__ == "__main__":
    contend(run)
