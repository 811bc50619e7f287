"""Real drivers as processes of their own, and what they leave behind, read without Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import KafkaError, Message, TopicPartition

from recount.kafka.connection import Connection
from recount.kafka.offsets import partitions_of
from recount.profile.home import Project
from recount.runtime.settings import Settings
from recount.tables.ledger import BatchProof
from recount.tables.places import Tables

_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A driver of a test lives for seconds: the JVM's optimising compiler would take longer than what it compiles for."""

DRIVER_PROCESS = Path(__file__).with_name("driver_process.py")


@dataclass(frozen=True, kw_only=True)
class Driver:
    """A running driver: Python, its JVM and its workers are one process group."""

    process: subprocess.Popen[bytes]
    log: Path

    def finish(self, timeout_s: float = 300) -> int:
        """Wait for the end; returns the exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"the driver did not end:\n{self.said()}") from error

    def kill(self) -> None:
        """SIGKILL to all of it, at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)

    def said(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-6_000:]

    def until(self, holds: Callable[[str], bool], timeout_s: float = 300) -> None:
        """Wait until its log is as it should be."""
        deadline = time.monotonic() + timeout_s
        while not holds(self.log.read_text(errors="replace")):
            assert self.process.poll() is None, f"the driver ended:\n{self.said()}"
            assert time.monotonic() < deadline, f"waited in vain:\n{self.said()}"
            time.sleep(0.05)


@dataclass
class DriversInTurn:
    """A process that runs drivers to their ends: each has its exit code, and what it said."""

    process: Driver

    def run(self, *arguments: str) -> tuple[int, str]:
        stdin, stdout = self.process.process.stdin, self.process.process.stdout
        assert stdin and stdout
        before = len(self.process.log.read_text(errors="replace"))
        stdin.write(f"{' '.join(arguments)}\n".encode())
        stdin.flush()
        answer = stdout.readline()
        assert answer, f"the process ended:\n{self.process.said()}"
        return int(answer), self.process.log.read_text(errors="replace")[before:]


@dataclass
class Deployment:
    """A place where drivers run: settings, tables, checkpoints and logs of its own."""

    project: Project
    settings: Settings
    _started: list[Driver] = field(default_factory=list)

    @classmethod
    def below(cls, folder: Path, project: Project, bootstrap_servers: str, topologies: str) -> Deployment:
        places = {name: str(folder / name) for name in ("data", "checkpoints", "reports", "logs", "run")}
        (folder / "logs").mkdir()
        settings = Settings(
            profile="embedded",
            bootstrap_servers=bootstrap_servers,
            jars=str(project.spark_jars),
            topologies=topologies,
            **places,
        )
        return cls(project=project, settings=settings)

    def start(self, program: Path, *arguments: str, **pipes: int) -> Driver:
        """Start ``program`` in the environment of the deployment; its output goes to the log, or to ``stdout``."""
        log = Path(self.settings.logs) / f"driver-{len(self._started)}.log"
        environment = {
            **os.environ,
            **self.settings.to_environment(),
            "PYTHONPATH": str(self.project.root),
            "JAVA_TOOL_OPTIONS": _SHORT_LIVED,
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, str(program), *arguments],
                env=environment,
                **{"stdout": output, "stderr": output, **pipes},
                start_new_session=True,
            )
        driver = Driver(process=process, log=log)
        self._started.append(driver)
        return driver

    def start_stream(self, name: str, *arguments: str) -> Driver:
        """Start the driver that users start."""
        return self.start(self.project.spark_jobs / "stream.py", "--stream", name, *arguments)

    def drivers_in_turn(self) -> DriversInTurn:
        """A process that runs one driver after the other."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return DriversInTurn(self.start(DRIVER_PROCESS, **pipes))

    def kill_all(self) -> None:
        """Kill what still runs."""
        for driver in self._started:
            driver.kill()

    @property
    def connection(self) -> Connection:
        return Connection.of(self.settings)

    @property
    def tables(self) -> Tables:
        return Tables(self.settings.data)


def committed(connection: Connection, topic: str, isolation_level: str = "read_committed") -> list[Message]:
    """All records of ``topic``, partition by partition, in offset order."""
    options = {"enable.partition.eof": True, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
    consumer = connection.consumer("reader", {**options, "isolation.level": isolation_level})
    found: dict[int, list[Message]] = {partition: [] for _, partition in partitions_of(connection, topic)}
    consumer.assign([TopicPartition(topic, partition, 0) for partition in found])
    left = set(found)
    while left:
        message = consumer.poll(30)
        assert message is not None, f"no answer for {topic}, {left}"
        if (error := message.error()) is None:
            found[message.partition()].append(message)
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            left.discard(message.partition())
    consumer.close()
    return [message for partition in sorted(found) for message in found[partition]]


def by_key(records: list[Message]) -> dict[bytes | None, list[tuple[Any, ...]]]:
    """Value, headers and timestamp of every record, in order, by key: all that a reader can tell apart."""
    found: dict[bytes | None, list[tuple[Any, ...]]] = {}
    for record in records:
        found.setdefault(record.key(), []).append((record.value(), record.headers(), record.timestamp()))
    return found


def delta_rows(path: str) -> list[dict[str, Any]]:
    """The rows of a Delta table, without the columns it is partitioned by."""
    files: dict[str, None] = {}
    for action in _actions(path):
        if "add" in action:
            files[action["add"]["path"]] = None
        if "remove" in action:
            del files[action["remove"]["path"]]
    tables = [pq.read_table(f"{path}/{file}", partitioning=None) for file in files]
    rows: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist() if tables else []
    return rows


def proofs(path: str) -> list[BatchProof]:
    """The batch ledger in the commits of a state table, or of an archive, oldest first."""
    said = (action["commitInfo"].get("userMetadata") for action in _actions(path) if "commitInfo" in action)
    return [proof for text in said if (proof := BatchProof.from_json(text))]


def _actions(path: str) -> Iterator[dict[str, Any]]:
    for commit in sorted((Path(path) / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            yield json.loads(line)


def assert_each_offset_once(ledger: list[BatchProof], records: int, unseen: int = 0) -> None:
    """The ranges of the batches follow each other without a gap or an overlap, and each record has one fate.

    ``unseen`` are markers of transactions and aborted records.
    """
    reached: dict[int, int] = {}
    fates = 0
    for proof in sorted(ledger, key=lambda proof: proof.order):
        for part in proof.partitions:
            assert part.start == reached.get(part.partition, 0)
            reached[part.partition] = part.end
            fates += part.counted + part.late + part.filtered + part.null_key + part.dead_lettered
    assert (sum(reached.values()), fates) == (records + unseen, records)
