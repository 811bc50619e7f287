"""A stream that nothing declares any more: its driver is reported, stopped by its name, and forgotten as was asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.integration.kafka.conftest import MakeTopic
from tests.statuses import a_status

from recount.declare.fingerprint import Declared
from recount.declare.registry import Declarations, declared
from recount.kafka.connection import Connection
from recount.kafka.leases import ControlChannel, Lease, StandingOrders, require_declared, stop_driver
from recount.kafka.status import StatusBoard, status_of_group
from recount.kafka.transaction import KafkaRecord, OutputTransaction
from recount.lifecycle.retirement import Retirement
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.decisions import DeclarationLog, OtherDeclaration
from recount.tables.places import Tables

TOPOLOGIES = "tests.integration.engine.streams"
DECLARED = "live"
NOTHING = Declarations(topologies={}, topics={})


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def settings(tmp_path: Path, connection: Connection) -> Settings:
    folders = {name: str(tmp_path / name) for name in ("data", "checkpoints", "reports", "logs", "run", "jars")}
    (tmp_path / "run" / "drivers").mkdir(parents=True)
    return Settings(
        profile="embedded", bootstrap_servers=connection.bootstrap_servers, topologies=TOPOLOGIES, **folders
    )


class Driver:
    """A driver as far as others see it: it holds the lease, speaks, and ends when it is ordered to, if it ``obeys``."""

    def __init__(self, connection: Connection, stream: str, *, obeys: bool = True, heard_ago_ms: int = 0) -> None:
        self._lease = Lease.acquire(connection, stream)
        self._connection, self._obeys, self._heard_ago_ms = connection, obeys, heard_ago_ms
        self._killed = threading.Event()
        self._say("running")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _say(self, state: str) -> None:
        heard_ms = now_ms() - self._heard_ago_ms
        status = a_status(stream=self._lease.stream, lease_epoch=self._lease.epoch, heartbeat_ms=heard_ms, state=state)
        self._lease.publish(status)

    def _run(self) -> None:
        with closing(ControlChannel(self._connection, self._lease.stream, self._lease.epoch)) as orders:
            while not self._killed.wait(0.2):
                if self._obeys and orders.stop_requested():
                    self._say("stopped")
                    return

    @property
    def is_at_work(self) -> bool:
        return self._thread.is_alive()

    def kill(self) -> None:
        self._killed.set()
        self._thread.join(10)


@pytest.fixture
def driven(connection: Connection, unique: Callable[[str], str]) -> Iterator[Callable[..., tuple[str, Driver]]]:
    """Starts the driver of a stream that nothing declares; its name and the driver."""
    started: list[Driver] = []

    def start(name: str = "old", **how: Any) -> tuple[str, Driver]:
        stream = unique(name)
        started.append(Driver(connection, stream, **how))
        return stream, started[-1]

    yield start
    for driver in started:
        driver.kill()


def run_before(settings: Settings, connection: Connection, stream: str, topic: str) -> None:
    """What the stream has left behind: a declaration, tables, a checkpoint, a position and groups, an audit."""
    sink = {"operator": "sink", "topic": topic, "table": "old_results"}
    document = {"kind": "topology", "operators": [{"operator": "source", "topic": "orders"}, sink]}
    DeclarationLog(settings.data, stream).enact("first", Declared(document=document))
    tables = Tables(settings.data)
    for place in (tables.state(stream), tables.output("old_results"), tables.audit(stream, "differences")):
        Path(place).mkdir(parents=True)
    (Path(settings.checkpoints) / stream).mkdir(parents=True)
    with closing(OutputTransaction(connection, stream)) as outputs:
        outputs.commit_once(
            [KafkaRecord(topic=topic, key=b"k", value=b"{}")],
            start_offsets={(topic, 0): 0},
            end_offsets={(topic, 0): 1},
            batch=0,
        )


def offsets_of(connection: Connection, stream: str, topic: str) -> dict[tuple[str, int], int]:
    """Where Kafka says the stream stands, in its group or its last position."""
    with closing(OutputTransaction(connection, stream)) as outputs:
        return {place: one.offset for place, one in outputs.committed([(topic, 0)]).items()}


def test_a_retired_stream_is_stopped_and_forgotten_and_what_was_found_stays(
    settings: Settings, connection: Connection, driven: Callable[..., tuple[str, Driver]], make_topic: MakeTopic
) -> None:
    stream, driver = driven()
    topic = make_topic("results")
    run_before(settings, connection, stream, topic)
    record = Path(settings.run) / "drivers" / f"{stream}.json"
    record.write_text("{}")
    assert offsets_of(connection, stream, topic) == {(topic, 0): 1}

    retirement = Retirement(settings, stream)
    said = "\n".join(retirement.planned())
    assert "stop    its driver: running, pid 1" in said
    assert f"keep    {settings.data}/outputs/old_results" in said and f"keep    topic {topic}" in said
    assert driver.is_at_work, "a plan stops nothing"

    retirement.run(patience_s=20)
    assert not driver.is_at_work
    assert offsets_of(connection, stream, topic) == {}
    assert topic in connection.admin().list_topics(timeout=10).topics
    kept = [Path(settings.checkpoints) / stream, *Path(settings.data).glob("*/*")]
    assert {path.relative_to(settings.data).as_posix() for path in kept[1:]} == {
        f"declarations/{stream}",
        f"streams/{stream}",
        "outputs/old_results",
        f"audits/{stream}",
    }
    assert all(path.exists() for path in kept) and not record.exists()
    with closing(StatusBoard(connection)) as board:
        statuses = {stream: board.latest()[stream]}
    assert statuses[stream].state == "stopped"
    require_declared(statuses, NOTHING, now_ms())
    with closing(StandingOrders(connection)) as orders:
        assert orders.stop_of(stream) is None, "a stream of that name can begin again"
    Retirement(settings, stream).run(patience_s=1)  # each step is safe to repeat


def test_tables_and_topics_go_when_that_is_asked_for_and_the_record_stays(
    settings: Settings, connection: Connection, driven: Callable[..., tuple[str, Driver]], make_topic: MakeTopic
) -> None:
    stream, driver = driven(heard_ago_ms=120_000)
    topic = make_topic("results")
    run_before(settings, connection, stream, topic)
    driver.kill()  # it never said that it ended
    with pytest.raises(Terminal, match="not only those of results"):
        Retirement(settings, stream, topics=["live-purchases"])
    Retirement(settings, stream, remove_tables=True, topics=[topic]).run(patience_s=1)
    assert {path.relative_to(settings.data).as_posix() for path in Path(settings.data).glob("*/*")} == {
        f"declarations/{stream}",
        f"audits/{stream}",
    }
    assert not (Path(settings.checkpoints) / stream).exists()
    assert topic not in connection.admin().list_topics(timeout=10).topics


def test_a_stream_that_is_declared_is_retired_only_when_that_is_said(settings: Settings) -> None:
    with pytest.raises(Terminal, match=f"stream {DECLARED} is declared"):
        Retirement(settings, DECLARED)


def test_a_name_that_never_ran_is_refused_with_those_that_have(
    settings: Settings, driven: Callable[..., tuple[str, Driver]]
) -> None:
    stream, _ = driven()
    with pytest.raises(Terminal) as refused:
        Retirement(settings, f"{stream}-x")
    assert stream in refused.value.expected


def test_a_retired_stream_starts_again_after_a_reset_only(settings: Settings) -> None:
    log = DeclarationLog(settings.data, DECLARED)
    live = Declared.of(declared(TOPOLOGIES).stream(DECLARED))
    log.enact("first", live)
    log.require(live, None)
    log.enact("retired", live)
    with pytest.raises(OtherDeclaration, match=f"recount reset {DECLARED}"):
        log.require(live, None)
    log.enact("reset", live, version=2)
    log.require(live, None)


def test_whatever_holds_a_lease_is_stopped_by_its_name(
    connection: Connection, driven: Callable[..., tuple[str, Driver]], unique: Callable[[str], str]
) -> None:
    stream, driver = driven()
    group = Driver(connection, status_of_group(unique("group")))
    for name, holder in ((stream, driver), (group._lease.stream, group)):
        assert stop_driver(connection, name, patience_s=20).state == "stopped"
        assert not holder.is_at_work


def test_a_driver_that_does_not_end_is_named_and_the_order_stands(
    connection: Connection, driven: Callable[..., tuple[str, Driver]]
) -> None:
    stream, _ = driven(obeys=False)
    with pytest.raises(Terminal) as late:
        stop_driver(connection, stream, patience_s=1)
    assert "pid 1 on" in str(late.value.given)
    with closing(StandingOrders(connection)) as orders:
        assert orders.stop_of(stream) == 1


def test_drivers_without_a_declaration_are_reported_and_others_are_not() -> None:
    declarations = declared(TOPOLOGIES)
    at = now_ms()
    statuses = {
        name: a_status(stream=name, heartbeat_ms=at - ago_ms, state=state)
        for name, ago_ms, state in (
            ("old", 1_000, "running"),
            ("killed", 3_600_000, "running"),
            ("recovering", 120_000, "starting"),
            ("ended", 1_000, "stopped"),
            (DECLARED, 1_000, "running"),
            (status_of_group("shared-driver"), 1_000, "running"),
            (status_of_group("old-group"), 1_000, "running"),
        )
    }
    with pytest.raises(Terminal) as raised:
        require_declared(statuses, declarations, at)
    assert raised.value.what == "3 streams run without a declaration"
    assert [part.split(":")[0] for part in str(raised.value.given).split("; ")] == [
        "group.old-group",
        "old",
        "recovering",
    ]
    assert "`recount retire old`" in raised.value.remedy
