"""The Spark of the tests has what a driver has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.runtime.installation import class_archive

_DRIVER = """
import sys
from pathlib import Path
from recount.audit.audit_session import OF_AN_AUDIT
from recount.runtime.settings import Settings
from recount.tables.spark_session import spark_session

places = dict.fromkeys(("data", "checkpoints", "reports", "logs", "run"), "")
settings = Settings(profile="embedded", bootstrap_servers="", jars=sys.argv[1], **places)
session = spark_session(settings, "driver", conf=OF_AN_AUDIT)
assert OF_AN_AUDIT.items() <= dict(session.sparkContext.getConf().getAll()).items()
print(Path(f"/proc/{session._jvm.java.lang.ProcessHandle.current().pid()}/maps").read_text())
session.stop()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("home", ["that of the tests", ""])
def test_a_driver_has_its_classes_from_the_archive_of_its_spark(
    monkeypatch: pytest.MonkeyPatch, project: Project, tmp_path: Path, home: str
) -> None:
    """`make setup` and `make test` have made them."""
    if not home:
        monkeypatch.delenv("SPARK_HOME")
    command = [sys.executable, "-c", _DRIVER, str(project.spark_jars)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert str(class_archive(project.spark_jars)) in ended.stdout


def test_a_delta_table_is_written_and_read_back(spark: SparkSession, table: str) -> None:
    spark.range(10).write.format("delta").save(table)
    assert spark.read.format("delta").load(table).count() == 10


def test_records_of_the_broker_are_read(
    spark: SparkSession, kafka: EmbeddedKafka, unique: Callable[[str], str]
) -> None:
    topic = unique("orders")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, num_partitions=2)])[topic].result(10)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, key=b"a", value=b"1")
    assert producer.flush(10) == 0
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    assert [bytes(row.value) for row in records.collect()] == [b"1"]
