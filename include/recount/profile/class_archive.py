"""Spark's classes in a file that each JVM maps, instead of loading and verifying them itself (CDS of the JDK).

The archive holds for one JDK and for the jars of one Spark, that of SPARK_HOME or else of the installed PySpark. It
is stored beside our jars, where ``runtime.installation.shared_classes`` finds it.
"""

import logging
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from recount.audit.audit_session import FEW_OFFSETS, JAVA_FOR_FEW, session_for
from recount.runtime.installation import class_archive
from recount.runtime.settings import Settings
from recount.tables.spark_session import spark_session

_TIMEOUT_S = 600
_LAST_WORDS = 1_000
_MADE = "classes.jsa"
_SCHEMA = "id long, text string"
_LOG = logging.getLogger(__name__)


def make_archive(jars: Path) -> None:
    """Make the archive beside ``jars`` if there is none of this PySpark: run one that does a little of what jobs do.

    Where that fails a warning says why: JVMs start slower without an archive, and nothing else is different.
    """
    archive, of_spark = class_archive(jars), Path(pyspark.__file__).with_name("jars")
    if archive.exists() and archive.stat().st_mtime > of_spark.stat().st_mtime:
        return
    # a JVM that maps one makes none
    archive.unlink(missing_ok=True)
    with TemporaryDirectory(dir=jars.parent, prefix=".classes-") as folder:
        command = [sys.executable, "-m", "recount.profile.class_archive", str(jars), folder]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
            said = ended.stdout + ended.stderr
        except subprocess.TimeoutExpired:
            said = f"not done in {_TIMEOUT_S} s"
        made = Path(folder) / _MADE
        if made.exists():
            made.replace(archive)
        else:
            _LOG.warning("no archive of Spark's classes, without it JVMs start slower: %s", said[-_LAST_WORDS:])


def do_a_little(jars: str, folder: str) -> None:
    """Run the usual work of streams and audits on a few rows in a JVM, which writes the archive to ``folder`` last."""
    settings = Settings(
        profile="embedded",
        bootstrap_servers="",
        data=folder,
        checkpoints=folder,
        reports=folder,
        logs=folder,
        run=folder,
        jars=jars,
    )
    options = f"{JAVA_FOR_FEW} -XX:ArchiveClassesAtExit={folder}/{_MADE}"
    session = spark_session(settings, "class archive", java_options=options)
    session.range(100).withColumn("text", F.col("id").cast("string")).write.parquet(f"{folder}/rows")
    _stream(session, folder)
    _query(session, f"{folder}/compiled")
    _query(session_for(session, FEW_OFFSETS), f"{folder}/interpreted")
    session.stop()


def _stream(session: SparkSession, folder: str) -> None:
    def collected(batch: DataFrame, _number: int) -> None:
        batch.mapInArrow(_unchanged, _SCHEMA).toArrow()

    rows = session.readStream.schema(_SCHEMA).parquet(f"{folder}/rows")
    writer = rows.writeStream.foreachBatch(collected).option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()


def _query(session: SparkSession, path: str) -> None:
    rows = session.createDataFrame([(at, str(at)) for at in range(100)], _SCHEMA)
    rows.write.format("delta").save(path)
    read = session.read.format("delta").load(path).withColumn("key", F.col("id") % 7)
    ranked = read.withColumn("rank", F.row_number().over(Window.partitionBy("key").orderBy(F.desc("id"))))
    kept = ranked.where(F.col("rank") < 5).localCheckpoint(eager=False)
    texts = F.transform(F.array_sort(F.collect_list("text")), lambda text: F.concat(text, F.lit("!")))
    grouped = kept.groupBy("key").agg(F.count("*").alias("n"), F.sum("id").alias("sum"), texts.alias("texts"))
    told = F.to_json(F.struct("n", "sum", F.element_at("texts", 1).alias("first")))
    joined = grouped.join(read.select("key").distinct(), "key", "full").withColumn("told", told)
    joined.unionByName(joined.limit(1)).orderBy("key").collect()
    kept.select("id", "text").mapInArrow(_unchanged, _SCHEMA).toArrow()
    kept.select("id", "text").toPandas()


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    do_a_little(*sys.argv[1:3])
