"""Streams of one module on a real broker, and of a registry where they need one: their records, runs and audits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.integration.engine.drivers import committed, delta_rows
from tests.local_spark import TINY, local_session

from recount.audit.compare.published import fields_of
from recount.audit.night import audited
from recount.declare.output import REVISION_HEADER
from recount.declare.registry import declared
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.engine.commit.batch import TopologyWork
from recount.engine.driver.runner import RunOptions, StreamRunner
from recount.engine.exchange.work import Work
from recount.formats.registry_encoders import encoder_of
from recount.kafka.connection import Connection
from recount.kafka.topic_drift import all_topics
from recount.kafka.topics_on_cluster import apply, plan
from recount.profile.daemon import free_ports
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.runtime.errors import VARIABLE, RegistryUnreachable
from recount.runtime.settings import Settings
from recount.tables.places import Tables
from recount.tables.spark_session import task_environment

MINUTE_MS = 60_000
PAID = [("ann", 2, Decimal("30.75")), ("bob", 1, Decimal("12345678901234.56"))]
"""Customer, payments and amount of the first minute of the payments, in each format."""
WINDOW = {"window_start": 0, "window_end": MINUTE_MS}
PUBLISHED_AMOUNTS = [{"customer": who, **WINDOW, "payments": many, "amount": amount} for who, many, amount in PAID]
PUBLISHED_COPIES = [
    {"customer": "ann", "amount": Decimal("10.50"), "note": None, "at": 1_000},
    {"customer": "ann", "amount": Decimal("20.25"), "note": "x", "at": 2_000},
    {"customer": "bob", "amount": Decimal("12345678901234.56"), "note": None, "at": 3_000},
    {"customer": "eve", "amount": Decimal("1.00"), "note": None, "at": 2 * MINUTE_MS},
]
"""What sinks publish of these payments, in each format."""


@contextmanager
def registry_of(project: Project, folder: Path, port: int | None = None) -> Iterator[Registry]:
    """An empty registry that runs until the end of the block; its log lies in ``folder``. Skips without a JDK."""
    found = java()
    if found is None:
        pytest.skip("Apicurio Registry needs a JDK 21 or later beside the one in use")
    with running(project, folder / "registry.log", found, port) as registry:
        yield registry


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Those of one module, with their topics; the address of the registry is known though none runs yet."""

    settings: Settings
    spark: SparkSession
    project: Project
    folder: Path

    @contextmanager
    def registry(self) -> Iterator[Registry]:
        """The registry of ``settings``, anew."""
        port = int(self.settings.schema_registry.split(":")[2].partition("/")[0])
        with registry_of(self.project, self.folder, port) as registry:
            yield registry

    def send(self, topic: Topic, values: Sequence[bytes], keys: Sequence[bytes] = ()) -> None:
        """To the topic, with ``keys``, or p0, p1, …"""
        producer = Connection.of(self.settings).producer()
        for number, value in enumerate(values):
            producer.produce(topic.name, key=keys[number] if keys else f"p{number}".encode(), value=value)
        assert producer.flush(60) == 0

    def run(self, stream: Topology | Work) -> None:
        """To the end of the topics."""
        work = TopologyWork(stream, self.settings.data) if isinstance(stream, Topology) else stream
        StreamRunner(self.spark, self.settings, work, RunOptions(available_now=True)).run()

    def outcome(self, topology: Topology, **options: object) -> str:
        """That of an audit."""
        audit = audited(self.spark, self.settings, topology, **options)  # type: ignore[arg-type] # its own
        return str(json.loads(audit.certificate.read_text())["outcome"])

    def letters(self, topic: Topic) -> list[str]:
        """The headers of the dead letters of the topic, as text."""
        found = committed(Connection.of(self.settings), topic.dead_letter_name)
        return [str(message.headers()) for message in found]

    def path(self, table: str) -> str:
        """Where the table of a sink lies."""
        return Tables(self.settings.data).output(table)

    def paid(self, table: str) -> list[tuple[str, int, Decimal]]:
        """The rows of a table as ``PAID`` has them."""
        return sorted((row["customer"], row["payments"], row["amount"]) for row in delta_rows(self.path(table)))

    def require_wait(self, topology: Topology, topic: Topic) -> None:
        """Fail unless a stream without a registry waits: it writes nothing, and dead-letters no record."""
        with pytest.raises(RegistryUnreachable):
            self.run(topology)
        assert self.letters(topic) == []
        assert [row for node in topology.written for row in delta_rows(self.path(node.table))] == []

    def require_published(self, topology: Topology, expected: Sequence[Mapping[str, Any]]) -> None:
        """Fail unless the one sink publishes ``expected``, and audits are green, and red once an amount is forged."""
        self.run(topology)
        [written] = topology.written
        connection, topic = Connection.of(self.settings), written.topic.name
        published = committed(connection, topic)
        said = [fields_of(message.value(), written) for message in published]
        assert sorted(said, key=str) == sorted(expected, key=str)
        assert self.outcome(topology) == "match"

        encode = encoder_of(written)
        assert encode is not None
        forged = {**dict.fromkeys(written.fields), **expected[0], "amount": Decimal("30.76")}
        message = published[0]
        headers = [(name, b"1" if name == REVISION_HEADER else told) for name, told in message.headers()]
        producer = connection.producer()
        producer.produce(topic, encode(forged), message.key(), headers=headers, timestamp=message.timestamp()[1])
        assert producer.flush(60) == 0
        assert self.outcome(topology) == "violation"

    def require_red(self, topology: Topology, table: str) -> None:
        """Fail unless the audit is green, and red once an amount in ``table`` is altered by a cent."""
        assert self.outcome(topology) == "match"
        rows = DeltaTable.forPath(self.spark, self.path(table))
        rows.update(F.col("customer") == "ann", {"amount": F.col("amount") + F.lit(Decimal("0.01"))})
        assert self.outcome(topology) == "violation"


@contextmanager
def streams_of(
    module: ModuleType, factory: pytest.TempPathFactory, kafka: EmbeddedKafka, project: Project
) -> Iterator[Streams]:
    """The streams of ``module``, with a Spark session of their own."""
    folder = factory.mktemp("streams")
    settings = Settings(
        profile="embedded",
        bootstrap_servers=kafka.bootstrap_servers,
        jars=str(project.spark_jars),
        topologies=module.__name__,
        schema_registry=f"http://127.0.0.1:{free_ports(1)[0]}/apis/ccompat/v7",
        **{name: str(folder / name) for name in ("data", "checkpoints", "reports", "logs", "run")},
    )
    connection = Connection.of(settings)
    topics = all_topics(declared(settings.topologies), connection.own)
    apply(connection.admin(), plan(connection.admin(), topics, "embedded"))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = local_session(str(project.spark_jars), factory.mktemp("spark"), **TINY, **task_environment(settings))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(VARIABLE, settings.schema_registry)  # of a driver, which sinks need
            yield Streams(settings=settings, spark=session, project=project, folder=folder)
    finally:
        session.stop()


VERSION = "3.3.3"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_LEAST_JAVA = 21
_START_S = 120


@dataclass(frozen=True, kw_only=True)
class Registry:
    """A running registry."""

    address: str

    def register(self, subject: str, schema: Any, references: Mapping[str, str] = MappingProxyType({})) -> int:
        """Give ``schema`` to the registry, the text of a Protobuf file or an Avro schema; returns its id.

        ``references`` are names of files that it imports, with their subjects.
        """
        is_text = isinstance(schema, str)
        given: dict[str, Any] = {"schema": schema, "schemaType": "PROTOBUF"}
        if not is_text:
            given = {"schema": json.dumps(schema)}
        given["references"] = [{"name": name, "subject": of, "version": 1} for name, of in references.items()]
        body = json.dumps(given).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        with urlopen(Request(f"{self.address}/subjects/{subject}/versions", body, headers), timeout=30) as answer:  # noqa: S310 - of this test
            return int(json.load(answer)["id"])

    def subjects(self) -> list[str]:
        """All that have a schema."""
        with urlopen(f"{self.address}/subjects", timeout=30) as answer:  # noqa: S310 - of this test
            return list(json.load(answer))

    def require(self, rule: str) -> None:
        """The rule of compatibility of all subjects."""
        body, headers = json.dumps({"compatibility": rule}).encode(), {"Content-Type": "application/json"}
        with urlopen(Request(f"{self.address}/config", body, headers, method="PUT"), timeout=30):  # noqa: S310 - of this test
            pass


def java() -> Path | None:
    """The Java of a JDK that is new enough, beside the one in use; None where there is none."""
    found = shutil.which("java")
    homes = Path(found).resolve().parents[2].glob("*/bin/java") if found else ()
    for one in sorted({path.resolve() for path in homes}):
        said = subprocess.run([one, "-version"], capture_output=True, text=True, check=False).stderr
        number = said.partition('version "')[2].partition('"')[0].partition(".")[0]
        if number.isdigit() and int(number) >= _LEAST_JAVA:
            return one
    return None


def unpacked(project: Project) -> Path:
    """The folder of the registry, fetched once."""
    folder = project.root / ".cache" / "apicurio" / VERSION
    if not (folder / "quarkus-run.jar").exists():
        folder.mkdir(parents=True, exist_ok=True)
        artifact = f"-Dartifact=io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
        command = ["mvn", "--batch-mode", "--quiet", _COPY, artifact, f"-DoutputDirectory={folder}"]
        subprocess.run(command, check=True, cwd=folder, timeout=280)
        [archive] = folder.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        archive.unlink()
    return folder


@contextmanager
def running(project: Project, log: Path, java: Path, port: int | None = None) -> Iterator[Registry]:
    """A registry on the loopback address, empty, until the end of the block."""
    port = port or free_ports(1)[0]
    command = [
        *(str(java), "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}", "-jar", "quarkus-run.jar"),
    ]
    registry = Registry(address=f"http://127.0.0.1:{port}/apis/ccompat/v7")
    with log.open("ab") as said:
        process = subprocess.Popen(command, cwd=unpacked(project), stdout=said, stderr=subprocess.STDOUT)
    try:
        _await(registry, process, log)
        yield registry
    finally:
        process.kill()
        process.wait(30)


def _await(registry: Registry, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        assert process.poll() is None and time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
        try:
            with urlopen(f"{registry.address}/subjects", timeout=5):  # noqa: S310 - of this test
                return
        except (URLError, OSError):
            time.sleep(0.2)
