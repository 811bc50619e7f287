"""The contender plain Structured Streaming: the jobs as Spark's documentation would write them, to Delta and Kafka.

At least once on Kafka, for Spark's sink offers no more; the Delta table is written idempotently, as Delta's
documentation advises for ``foreachBatch``. Session, fetch options and batch size are those of Recount.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.contending import Arguments, contend
from bench.jobs import GRACE
from recount.core.settings import Settings

_ORDER = "order_id STRING, user_id STRING, region STRING, amount DOUBLE, status STRING"
FETCH = {
    "kafka.isolation.level": "read_committed",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.max.poll.records": "10000",
    "kafka.fetch.min.bytes": str(512 << 10),
    "kafka.fetch.max.wait.ms": "20",
}


def orders(session: SparkSession, arguments: Arguments, topic: str) -> DataFrame:
    """The decoded orders with their watermark."""
    records = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments["bootstrap"])
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments["max-offsets"])
        .options(**FETCH)
        .load()
    )
    return decoded(records).withWatermark("timestamp", GRACE.replace("s", "seconds"))


def decoded(records: DataFrame) -> DataFrame:
    """The fields of Kafka's ``records``, and their time."""
    order = F.from_json(F.col("value").cast("string"), _ORDER).alias("order")
    return records.select("timestamp", order).select("timestamp", "order.*")


def revenue_by_region(records: DataFrame) -> DataFrame:
    """The job revenue-by-region."""
    region = F.coalesce("region", F.lit("UNKNOWN")).alias("key")
    return records.groupBy(F.window("timestamp", "5 minutes"), region).agg(
        F.count("*").alias("orders"), F.sum("amount").alias("revenue")
    )


def counts_per_user(records: DataFrame) -> DataFrame:
    """The job counts-per-user."""
    return records.groupBy(F.window("timestamp", "5 minutes"), F.col("user_id").alias("key")).agg(
        F.count("*").alias("orders")
    )


JOBS = {"revenue-by-region": revenue_by_region, "counts-per-user": counts_per_user}


def run(session: SparkSession, settings: Settings, arguments: Arguments, prefix: str) -> Path:
    """Run the query to the end of its topic, or until it is killed."""
    name, output = arguments[prefix + "application"], arguments[prefix + "output"]
    table = f"{settings.data}/{name}"
    checkpoint = f"{settings.checkpoints}/{name}"

    def write(results: DataFrame, batch: int) -> None:
        rows = results.select(
            "key", F.unix_millis("window.start").alias("window_start"), *results.columns[2:]
        ).persist()
        rows.write.format("delta").mode("append").option("txnAppId", name).option("txnVersion", batch).save(table)
        record = rows.select("key", F.to_json(F.struct("*")).alias("value"))
        record.write.format("kafka").option("kafka.bootstrap.servers", arguments["bootstrap"]).option(
            "topic", output
        ).save()
        rows.unpersist()

    results = JOBS[arguments["job"]](orders(session, arguments, arguments[prefix + "topic"]))
    writer = results.writeStream.outputMode("update").option("checkpointLocation", checkpoint).foreachBatch(write)
    query = (writer if "follow" in arguments else writer.trigger(availableNow=True)).start()
    query.awaitTermination()
    return Path(checkpoint)


if __name__ == "__main__":
    contend(run)
