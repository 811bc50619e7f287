"""The Spark of the tests has what a driver has."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path

import polars as pl
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import write_deltalake
from py4j.clientserver import ClientServerConnection
from py4j.java_collections import JavaList
from py4j.java_gateway import JavaPackage
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.runtime.installation import class_archive
from recount.runtime.settings import Settings

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


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The first lines of what Python sends to the JVM, without objects that it lets go."""
    sent: list[str] = []
    send = ClientServerConnection.send_command

    def noting(connection: ClientServerConnection, command: str) -> str:
        if not command.startswith("m\n"):
            sent.append(command)
        answer: str = send(connection, command)
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(ClientServerConnection, "send_command", noting)
        yield sent


def test_a_column_that_is_made_again_looks_up_no_class_and_no_method(spark: SparkSession, commands: list[str]) -> None:
    def make() -> list[str]:
        commands.clear()
        F.coalesce("a", F.lit(1)).alias("b")
        return [command for command in commands if command.startswith("r\n")]  # Py4J's reflection command

    make()
    assert make() == []
    assert len(commands) > 3  # the calls themselves


def test_another_name_is_looked_up(spark: SparkSession, commands: list[str]) -> None:
    F.abs("a")
    commands.clear()
    F.sqrt("a")
    assert [command.splitlines()[3] for command in commands if command.startswith("r\n")] == ["sqrt"]


def test_a_static_field_is_asked_for_each_time(spark: SparkSession, commands: list[str]) -> None:
    largest = [getattr(spark._jvm, "java.lang.Integer").MAX_VALUE for _ in range(2)]
    assert largest == [2**31 - 1] * 2
    assert len([command for command in commands if "MAX_VALUE" in command]) == 2


def test_a_package_is_not_kept_for_a_class_of_its_name_may_come(spark: SparkSession) -> None:
    assert isinstance(getattr(spark._jvm, "org.example.NotYetThere"), JavaPackage)
    assert "org.example.NotYetThere" not in vars(spark._jvm)


@pytest.mark.parametrize("number", [2, 10, 11, 37])
def test_a_list_is_handed_over_in_parts(spark: SparkSession, commands: list[str], number: int) -> None:
    columns = [F.lit(at).alias(f"c{at}") for at in range(number)]
    commands.clear()
    selected = spark.range(1).select(*columns)
    calls = len([command for command in commands if command.startswith(("c\n", "i\n"))])
    assert calls <= 8 + 2 * (number // 10)
    assert selected.collect() == [tuple(range(number))]


@pytest.mark.parametrize(
    "given", [[], ["a"], ["a", None, 2], [1.5, "b", True, 2**40], [["a", "b"], ["c"]], ("a",) * 25]
)
def test_a_list_arrives_as_it_is(spark: SparkSession, given: list[object]) -> None:
    arrived = getattr(spark._jvm, "java.util.ArrayList")(given)
    assert [list(one) if isinstance(one, JavaList) else one for one in arrived] == list(given)


def test_a_set_and_a_map_arrive_as_such(spark: SparkSession) -> None:
    assert sorted(getattr(spark._jvm, "java.util.HashSet")({"a", "b"})) == ["a", "b"]
    assert dict(getattr(spark._jvm, "java.util.HashMap")({"a": 1, "b": 2})) == {"a": 1, "b": 2}


# the optimizer knows that no element is null: of that LogicalRDD warns
PROGRAM = """
import os
from pyspark.sql import functions as F
from recount.runtime.settings import Settings
from recount.tables.spark_session import spark_session
session = spark_session(Settings.from_environment(os.environ), "lines")
one = session.range(1)
v = F.lit(1).alias("v")
joined = one.withColumnRenamed("id", "k").join(one.select("id", v), F.col("k") == F.col("id"), "left")
joined.filter("v = 1").select(F.array("v").alias("a")).localCheckpoint(eager=False)
log4j = session._jvm.org.apache.logging.log4j
for name in ("LogicalRDD", "Other"):
    logger = log4j.LogManager.getLogger(f"org.apache.spark.sql.execution.{name}")
    logger.warn(f"a warning of {name}")
    logger.error(f"an error of {name}")
"""


@pytest.mark.thorough
def test_all_loggers_warn_but_the_one_that_tells_columns(project: Project, tmp_path: Path) -> None:
    """Also where Spark's own layout for JSON is taken."""
    places = dict.fromkeys(("data", "checkpoints", "reports", "logs", "run"), str(tmp_path))
    settings = Settings(
        profile="embedded",
        bootstrap_servers="nowhere:1",
        jars=str(project.spark_jars),
        log_format="json",
        **places,
    )
    environment = {**os.environ, **settings.to_environment()}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=250
    )
    said = ended.stdout + ended.stderr
    found = [name for name in ("a warning of Other", "an error of Other", "an error of LogicalRDD") if name in said]
    assert found == ["a warning of Other", "an error of Other", "an error of LogicalRDD"]
    assert "output columns" not in said
    assert "a warning of LogicalRDD" not in said


JOINS = 40


def test_a_task_has_memory_for_many_joins_of_few_rows(spark: SparkSession) -> None:
    """Each join keeps one of its sides as long as the task lives; none of it can be spilled."""
    frames = [spark.range(3).coalesce(1).withColumnRenamed("id", f"id{number}") for number in range(JOINS)]

    def joined(left: DataFrame, right: DataFrame) -> DataFrame:
        return left.join(right.hint("shuffle_hash"), left[left.columns[0]] == right[right.columns[0]], "left")

    assert reduce(joined, frames).count() == 3


THERE, SAID = 123_456_789, 987_654_321


def test_a_page_index_that_lies_hides_no_row(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pl.DataFrame({"batch": [THERE]}))
    [file] = tmp_path.glob("*.parquet")
    file.write_bytes(with_other_index(file.read_bytes()))

    careless = spark.newSession()
    careless.conf.set("spark.sql.parquet.filterPushdown", "true")
    assert (found(careless, tmp_path), found(spark, tmp_path)) == (0, 1)


def with_other_index(parquet: bytes) -> bytes:
    """The file with another value in its page indexes, which lie between the pages and the footer."""
    before, (length,) = parquet[:-8], struct.unpack("<i", parquet[-8:-4])
    start = before.index(struct.pack("<q", THERE)) + 8  # behind the one page
    rest, footer = before[start:-length], before[-length:]
    there, said = (struct.pack("<q", value) for value in (THERE, SAID))
    assert there in rest
    return parquet[:start] + rest.replace(there, said) + footer + parquet[-8:]


def found(session: SparkSession, table: Path) -> int:
    return session.read.format("delta").load(str(table)).where(F.col("batch") == THERE).count()
