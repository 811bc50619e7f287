"""A real Kafka: one or three KRaft brokers from the Maven jars, with their data in the home."""

import json
import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaException

from recount.profile import daemon
from recount.profile.daemon import Daemon, Started, require_free
from recount.profile.home import Home, Project
from recount.profile.listeners import Listeners, OpenListeners, SecuredListeners
from recount.runtime.errors import Terminal, Transient, require
from recount.runtime.times import quantity

_HEAP = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC")
_START_LIMIT_S = 120.0

_LOG4J = """\
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %-5p %c{1}: %m%n
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
logger.kafka.name = kafka.server
logger.kafka.level = INFO
logger.config.name = org.apache.kafka.common.config
logger.config.level = ERROR
"""


class EmbeddedKafka(Started):
    """One or three brokers (each also a controller) on the loopback address.

    Three brokers replicate everything, internal topics too, with min.insync.replicas 2. Ports stay the same over
    ``stop`` and ``start``, and so do topics and their records. ``secure``: see ``SecuredListeners``. A context manager:
    started on entry, stopped on exit. ``ports`` are those of brokers that an earlier object of this home has started.
    """

    def __init__(
        self, *, home: Home, project: Project, brokers: int = 1, secure: bool = False, ports: Sequence[int] = ()
    ) -> None:
        require(brokers in (1, 3), "brokers-one-or-three", given=brokers)
        self._home = home
        self._jars = project.kafka_jars
        self.listeners: Listeners = (
            SecuredListeners(brokers, home.kafka_security, ports) if secure else OpenListeners(brokers, ports)
        )
        self._daemons: dict[int, Daemon] = {}
        self.brokers = brokers

    @property
    def bootstrap_servers(self) -> str:
        return self.listeners.bootstrap_servers()

    @property
    def security(self) -> str:
        """Where clients find their security, as RECOUNT_KAFKA_SECURITY says it; empty where there is none."""
        return self.listeners.security

    def start(self) -> None:
        """Start the brokers that do not run; returns when all of them serve.

        Raises ``Terminal`` with the end of the log when one ends instead, ``Transient`` after a minute.
        """
        self._home.create()
        self.listeners.prepare()
        missing = [node for node in self._nodes if not self.runs(node)]
        self._format([node for node in missing if not self._data(node).exists()])
        for node in missing:
            self._start(node)
        self._wait()
        self.listeners.admit()

    def adopt(self) -> None:
        """Take over the brokers that run in this home, at the ports that were given."""
        self._daemons = {int(one.name.removeprefix("kafka-")): one for one in daemon.alive(self._home, "kafka-")}
        for node in self._nodes:
            if not self.runs(node):
                require_free(self.listeners.ports_of(node), f"kafka-{node}")

    def stop(self) -> None:
        """Stop all brokers; their data stays.

        All at once and with little patience: the last brokers of a quorum have nobody left to hand over to, and
        what was acknowledged is on every replica.
        """
        daemon.stop(self._home, self._daemons.values(), patience_s=5)
        self._daemons.clear()

    def stop_broker(self, node: int, *, patience_s: float = 20) -> None:
        """Stop one broker, which hands its partitions over; ``patience_s=0`` is a crash (kill -9 at once)."""
        if broker := self._daemons.pop(node, None):
            daemon.stop(self._home, [broker], patience_s)

    def runs(self, node: int) -> bool:
        return node in self._daemons and self._daemons[node].alive

    @property
    def _nodes(self) -> range:
        return range(1, self.brokers + 1)

    def _folder(self, node: int) -> Path:
        return self._home.kafka / f"broker-{node}"

    def _data(self, node: int) -> Path:
        return self._folder(node) / "data"

    def _properties(self, node: int) -> str:
        in_sync = 2 if self.brokers == 3 else 1
        settings = {
            "process.roles": "broker,controller",
            "node.id": node,
            **self.listeners.properties(node),
            "log.dirs": self._data(node),
            # Topics are declared; one that appears by a misspelt name would hide the mistake.
            "auto.create.topics.enable": "false",
            "default.replication.factor": self.brokers,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": self.brokers,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": self.brokers,
            "transaction.state.log.min.isr": in_sync,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": self.brokers,
            "share.coordinator.state.topic.min.isr": in_sync,
            "broker.session.timeout.ms": 6000,
            "group.initial.rebalance.delay.ms": 0,
            # Old event times are not a reason to delete: retention is what a topic declares.
            "log.retention.ms": -1,
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _java(self, *arguments: str | Path) -> list[str | Path]:
        logging = f"-Dlog4j2.configurationFile={self._home.kafka / 'log4j2.properties'}"
        return ["java", *_HEAP, logging, "-cp", f"{self._jars}/*", *arguments]

    def _format(self, nodes: list[int]) -> None:
        """Give the storage of new brokers the identity of one cluster."""
        self._home.kafka.mkdir(parents=True, exist_ok=True)
        (self._home.kafka / "log4j2.properties").write_text(_LOG4J)
        identity = self._identity()
        formatting = []
        for node in nodes:
            self._folder(node).mkdir(parents=True, exist_ok=True)
            arguments = ("format", "--cluster-id", identity, "--config", self._write_properties(node))
            command = self._java("kafka.tools.StorageTool", *arguments)
            formatting.append(Daemon.start(self._home, f"kafka-{node}-format", command, os.environ))
        for process in formatting:
            process.wait(self._home, _START_LIMIT_S)

    def _identity(self) -> str:
        """The id of the cluster in this home, made at the first start; ``Terminal`` when it has another shape."""
        file = self._home.kafka / "cluster.json"
        if not file.exists():
            file.write_text(json.dumps({"id": uuid.uuid4().hex[:22], "brokers": self.brokers}))
        cluster = json.loads(file.read_text())
        if cluster["brokers"] != self.brokers:
            raise Terminal.of(
                "kafka-of-another-shape",
                given=f"{quantity(self.brokers, 'broker')}",
                cluster=quantity(cluster["brokers"], "broker"),
            )
        return str(cluster["id"])

    def _write_properties(self, node: int) -> Path:
        properties = self._folder(node) / "server.properties"
        properties.write_text(self._properties(node))
        return properties

    def _start(self, node: int) -> None:
        command = self._java("kafka.Kafka", self._write_properties(node))
        self._daemons[node] = Daemon.start(self._home, f"kafka-{node}", command, os.environ)

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < deadline:
            for broker in self._daemons.values():
                broker.require_alive()
            if self.listeners.are_open() and self._is_whole():
                return
            time.sleep(0.2)
        raise Transient.of(
            "kafka-not-up",
            given=daemon.end_of(self._home.logs / "kafka-1.log"),
            brokers=quantity(self.brokers, "broker"),
            limit_s=_START_LIMIT_S,
        )

    def _is_whole(self) -> bool:
        try:
            return len(self.listeners.keeper().admin().list_topics(timeout=1).brokers) == self.brokers
        except (KafkaException, Transient):
            return False
