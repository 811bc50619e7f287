"""What the watch finds: each test puts a real status on a real board, and where it needs one, a real process."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.eventually import eventually
from tests.fake_kubernetes import FakeKubernetes
from tests.integration.engine.streams import live_purchases, revenue
from tests.statuses import a_status

from recount.airflow import orders
from recount.airflow.drivers import DriverPod, DriverProcess, record_of
from recount.airflow.streams import FREE, STOPPED, StreamOperator
from recount.airflow.triggers import Finding, StreamWatch
from recount.declare.fingerprint import Declared
from recount.declare.limits import Health
from recount.kafka.connection import Connection
from recount.kafka.leases import ControlChannel, Lease
from recount.kafka.status import State, StatusBoard
from recount.kafka.topic_drift import STATUS, platform_topics
from recount.kafka.topics_on_cluster import apply, plan
from recount.lifecycle.reset import require_no_driver
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.decisions import DeclarationLog

LIMITS = Health(heartbeat_age_ms=30_000)
START_TIMEOUT_MS = 60_000


@pytest.fixture
def run(tmp_path: Path, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> str:
    """The run folder, and the settings that orders read from the environment."""
    folders = dict.fromkeys(("data", "checkpoints", "reports", "logs", "run", "jars"), str(tmp_path))
    settings = Settings(profile="embedded", bootstrap_servers=connection.bootstrap_servers, **folders)
    for name in [name for name in os.environ if name.startswith("RECOUNT_")]:
        monkeypatch.delenv(name)
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    return settings.run


@pytest.fixture
def stream(unique: Callable[[str], str]) -> str:
    return unique("stream").replace("_", "-").lower()  # a name that can be declared


@pytest.fixture
def driver(run: str, stream: str) -> Iterator[DriverProcess]:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    launched = DriverProcess.launch(command, os.environ, record=record_of(run, stream), log=Path(run) / "driver.log")
    yield launched
    launched.end()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def says(
    connection: Connection,
    lease: Lease,
    state: State = "running",
    heartbeat_ms: int | None = None,
    error: str | None = None,
    fingerprint: str | None = None,
    **more: Any,
) -> None:
    """Publish, and wait until everybody can read it."""
    status = a_status(
        stream=lease.stream,
        lease_epoch=lease.epoch,
        state=state,
        started_at_ms=now_ms(),
        heartbeat_ms=heartbeat_ms or now_ms(),
        error=error,
        fingerprint=fingerprint,
        **more,
    )
    lease.publish(status)
    board = StatusBoard(connection)
    assert eventually(lambda: board.of(lease.stream), status) == status
    board.close()


def watch(
    connection: Connection,
    run: str,
    stream: str,
    after_epoch: int = 0,
    launched_ago_ms: int = 0,
    deployed: Callable[[], str | None] = lambda: None,
    **alerts: Any,
) -> StreamWatch:
    return StreamWatch(
        connection=connection,
        stream=stream,
        limits=LIMITS,
        record=record_of(run, stream),
        after_epoch=after_epoch,
        launched_at_ms=now_ms() - launched_ago_ms,
        start_timeout_ms=START_TIMEOUT_MS,
        deployed=deployed,
        **alerts,
    )


def test_a_driver_with_another_declaration_than_the_deployed_one_is_outdated(
    connection: Connection, run: str, stream: str
) -> None:
    lease = Lease.acquire(connection, stream)
    deployed: list[str | None] = ["one"]
    watching = watch(connection, run, stream, deployed=lambda: deployed[-1])
    says(connection, lease, fingerprint="one")
    assert outcome(watching) is None
    deployed.append("other")
    assert outcome(watching) == "outdated"
    deployed.append(None)
    assert outcome(watching) is None


def test_an_outdated_driver_whose_state_does_not_go_with_the_deployment_is_held_and_not_relaunched(
    connection: Connection, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", "tests.integration.engine.streams")
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    DeclarationLog(run, "live").enact("first", Declared(document={"kind": "topology", "operators": []}))
    operator = StreamOperator(task_id="run", stream="live", application=Path("stream.py"), limits=LIMITS)
    event = {"outcome": "outdated", "reasons": ["other code"], "healthy_ms": 1}
    with pytest.raises(AirflowFailException, match="the declaration of stream live has changed"):
        operator.found({}, event, relaunched=0)  # type: ignore[arg-type]
    assert orders.is_held("live")
    orders.start("live")
    with pytest.raises(AirflowFailException, match="recount reset live"):
        operator.relaunch({}, {}, relaunched=1)  # type: ignore[arg-type]
    assert orders.is_held("live")


def test_a_driver_that_refuses_to_go_on_is_held_with_its_remedy_and_not_relaunched(
    connection: Connection, run: str, stream: str
) -> None:
    lease = Lease.acquire(connection, stream)
    says(connection, lease, "failed", error="the tables are older; remedy: restore", final=True)
    found = watch(connection, run, stream).look()
    assert found is not None
    assert (found.outcome, found.reasons) == ("refused", ["the tables are older; remedy: restore"])
    operator = StreamOperator(task_id="run", stream=stream, application=Path("stream.py"), limits=LIMITS)
    with pytest.raises(AirflowFailException, match=r"no relaunch can help: .*remedy: restore"):
        operator.found({}, found.to_event(), relaunched=0)  # type: ignore[arg-type]
    assert orders.is_held(stream)


def test_a_stream_whose_process_is_gone_died_though_its_group_has_another_driver_by_now(
    connection: Connection, run: str, stream: str, driver: DriverProcess
) -> None:
    lease = Lease.acquire(connection, stream)
    says(connection, lease, host=socket.gethostname(), pid=2**22)
    assert outcome(watch(connection, run, stream)) is None
    assert outcome(watch(connection, run, stream, is_shared=True)) == "died"
    says(connection, lease, host=socket.gethostname(), pid=driver.pid)
    assert outcome(watch(connection, run, stream, is_shared=True)) is None


def test_a_stream_of_a_group_has_ended_when_it_says_so_or_its_driver_is_gone(
    connection: Connection, run: str, stream: str, driver: DriverProcess
) -> None:
    lease, group = Lease.acquire(connection, "member"), stream
    says(connection, lease)
    assert not orders.wait_for_end("member", 1, group)
    says(connection, lease, "stopped")
    assert orders.wait_for_end("member", 1, group)
    assert driver.is_alive
    says(connection, lease)
    driver.end()
    assert orders.wait_for_end("member", 1, group)


def outcome(watch: StreamWatch) -> str | None:
    found = watch.look()
    return found.outcome if found else None


def test_a_driver_that_has_not_spoken_yet_has_its_time(connection: Connection, run: str, stream: str) -> None:
    assert outcome(watch(connection, run, stream)) is None
    assert outcome(watch(connection, run, stream, launched_ago_ms=START_TIMEOUT_MS + 1_000)) == "not started"


ENDED = "the driver ended before it took its lease"


@pytest.mark.parametrize(
    ("said", "found", "reason"),
    [
        ("recount stream: no retry can help: invalid settings", "refused", f"{ENDED}; invalid settings"),
        ('{"msg": "recount stream: no retry can help: invalid settings"}', "refused", f"{ENDED}; invalid settings"),
        ("recount stream: no brokers", "not started", f"{ENDED}; its log ends with: recount stream: no brokers"),
    ],
)
def test_a_driver_that_dies_before_its_lease_says_in_its_log_why_and_whether_a_relaunch_can_help(
    connection: Connection, run: str, stream: str, driver: DriverProcess, said: str, found: str, reason: str
) -> None:
    log = Path(run) / "driver.log"
    log.write_text(f"starting\n{said}\n\n")
    watching = watch(connection, run, stream, log=log, launched_ago_ms=1_000)
    assert watching.look() is None
    driver.end()
    assert watching.look() == Finding(outcome=found, reasons=[reason])
    launched_since = watch(connection, run, stream, log=log, launched_ago_ms=-1_000)
    assert launched_since.look() == Finding(outcome="not started", reasons=[ENDED]), "an earlier driver has said it"


@pytest.mark.parametrize(("exit_code", "found"), [(1, "refused"), (75, "not started")])
def test_a_pod_that_ends_before_its_lease_says_by_its_exit_code_whether_a_relaunch_can_help(
    connection: Connection,
    stream: str,
    tmp_path: Path,
    run: str,
    monkeypatch: pytest.MonkeyPatch,
    exit_code: int,
    found: str,
) -> None:
    pod = DriverPod.named(stream, "streams")
    pod.write(record_of(run, stream))
    with FakeKubernetes(folder=tmp_path, environment={}) as cluster:
        (tmp_path / "kubeconfig").write_text(cluster.kubeconfig)
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER", "False")
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", str(tmp_path / "kubeconfig"))
        cluster.has(pod.pod, "streams", "Failed", terminated={"exitCode": exit_code, "reason": "Error"})
        ended = watch(connection, run, stream).look()
    assert ended is not None and ended.outcome == found
    assert f"{ENDED}; {pod.name} has failed: exit code {exit_code}, Error" in ended.reasons[0]


@contextmanager
def open_transaction(connection: Connection, stream: str) -> Iterator[None]:
    """Somebody else's transaction on the status topic, open until the end: later statuses are hidden."""
    producer = connection.producer({"transactional.id": f"stranger-to-{stream}"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(STATUS, key=f"stranger-to-{stream}", value=b"{}")
    assert producer.flush(10) == 0
    try:
        yield
    finally:
        producer.abort_transaction(20)


def publish(lease: Lease, **said: Any) -> None:
    """As ``says``, for a status that nobody can read yet."""
    times = {"started_at_ms": now_ms(), "heartbeat_ms": now_ms()}
    lease.publish(a_status(**{"stream": lease.stream, "lease_epoch": lease.epoch, **times, **said}))


def test_a_driver_whose_statuses_an_open_transaction_hides_is_not_called_silent(
    connection: Connection, run: str, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    lease = Lease.acquire(connection, stream)
    says(connection, lease, heartbeat_ms=now_ms() - 31_000)
    watching = watch(connection, run, stream)
    with open_transaction(connection, stream):
        assert outcome(watching) == "unhealthy"  # it is silent: no later status is hidden
        publish(lease)
        with caplog.at_level(logging.WARNING):
            assert outcome(watching) is None
        [warned] = [record.getMessage() for record in caplog.records if record.name == "recount.airflow.triggers"]
        assert f"{STATUS}-0@" in warned
        publish(lease, heartbeat_ms=now_ms() - 32_000)
    assert eventually(lambda: outcome(watching), "unhealthy") == "unhealthy"
    publish(lease)
    assert eventually(lambda: outcome(watching), None) is None


@pytest.mark.parametrize("group", [None, "g"])
def test_a_driver_whose_first_status_is_hidden_is_known_to_all_who_ask(
    connection: Connection, run: str, stream: str, group: str | None
) -> None:
    """It is not called not started, it is adopted, an order to stop is for it, and it does not stand still."""
    former = Lease.acquire(connection, stream)
    says(connection, former, heartbeat_ms=now_ms() - 31_000)
    lease = Lease.acquire(connection, stream)
    launched_ago_ms = START_TIMEOUT_MS + 1_000
    watching = watch(connection, run, stream, after_epoch=former.epoch, launched_ago_ms=launched_ago_ms)
    operator = StreamOperator(task_id="run", stream=stream, group=group, application=Path("stream.py"), limits=LIMITS)
    with open_transaction(connection, stream):
        assert outcome(watching) == "not started"
        publish(lease)
        assert outcome(watching) is None
        adopted = operator._adopted()
        # the drivers of a group hide each other's statuses for moments: those of its streams are read uncommitted
        assert adopted and adopted[0] == (former if group is None else lease).epoch - 1
        with pytest.raises(Terminal, match="is running"):
            require_no_driver(connection, revenue(stream, live_purchases))
        orders.stop(stream)
        channel = ControlChannel(connection, stream, lease.epoch)
        assert channel.stop_requested()
        channel.close()
    assert outcome(watching) is None


def test_a_driver_that_is_dead_by_its_process_died_whatever_is_hidden(
    connection: Connection, run: str, stream: str, driver: DriverProcess
) -> None:
    lease = Lease.acquire(connection, stream)
    says(connection, lease)
    watching = watch(connection, run, stream)
    with open_transaction(connection, stream):
        publish(lease)
        driver.end()
        assert outcome(watching) == "died"


def test_a_backlog_is_told_once_and_the_driver_is_left_alone(connection: Connection, run: str, stream: str) -> None:
    lease = Lease.acquire(connection, stream)
    backlog = {"lag": 20_000_000, "last_progress_ms": now_ms() + 60_000}
    says(connection, lease, **backlog)
    patient = watch(connection, run, stream)
    assert outcome(patient) is None
    prompt = watch(connection, run, stream, alert_after_ms=0)
    assert outcome(prompt) == "degraded"
    told = watch(connection, run, stream, alert_after_ms=0, degraded=True)
    assert outcome(told) is None
    says(connection, lease, lag=0)
    assert outcome(told) == "recovered"


def test_two_installations_on_a_cluster_do_not_fence_each_other(connection: Connection, stream: str) -> None:
    blue = replace(connection, prefix=f"blue{stream[-6:].replace('.', '-')}")
    admin = blue.admin()
    apply(admin, plan(admin, platform_topics(blue.own), "embedded"))
    ours, theirs = Lease.acquire(connection, stream), Lease.acquire(blue, stream)
    says(connection, ours)
    says(blue, theirs, error="of the other installation")
    says(connection, ours, error="of ours")
    assert (ours.epoch, theirs.epoch) == (1, 1)


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_driver_s_last_word_is_believed(
    connection: Connection, run: str, stream: str, driver: DriverProcess, state: State
) -> None:
    says(connection, Lease.acquire(connection, stream), state, error="no space left")
    driver.end()
    assert outcome(watch(connection, run, stream)) == state


def test_a_later_driver_that_took_over_is_watched_instead(connection: Connection, run: str, stream: str) -> None:
    says(connection, Lease.acquire(connection, stream))
    watching = watch(connection, run, stream)
    assert outcome(watching) is None
    later = Lease.acquire(connection, stream)
    says(connection, later)
    assert outcome(watching) is None
    says(connection, later, "failed")
    assert outcome(watching) == "failed"


def test_an_order_does_not_hold_a_driver_launched_in_spite_of_it(connection: Connection, run: str, stream: str) -> None:
    says(connection, Lease.acquire(connection, stream))
    orders.stop(stream)
    says(connection, Lease.acquire(connection, stream))
    assert not orders.is_held(stream)


def test_a_stream_that_never_ran_can_be_held(connection: Connection, run: str, stream: str) -> None:
    orders.stop(stream)
    assert orders.is_held(stream)


def test_an_order_to_stop_that_comes_while_a_run_looks_for_a_driver_is_heeded(
    connection: Connection, run: str, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StreamOperator, "_adopted", lambda _: orders.stop(stream))
    monkeypatch.setattr(StreamOperator, "_launch", lambda *_: pytest.fail("launched"))
    operator = StreamOperator(task_id="run", stream=stream, application=Path("stream.py"), limits=LIMITS)
    assert operator.execute({"ti": Mock(xcom_pull=Mock(return_value=FREE))}) == STOPPED  # type: ignore[typeddict-item]


def test_an_order_is_for_a_declared_stream_and_a_stop_for_whatever_has_held_a_lease(
    connection: Connection, run: str, stream: str
) -> None:
    with pytest.raises(Terminal, match="no stream to stop"):
        orders.give(stream, "stop", declared=["revenue"])
    says(connection, Lease.acquire(connection, stream))  # as a stream does whose declaration has gone
    orders.give(stream, "stop", declared=["revenue"])
    assert orders.is_held(stream)
    with pytest.raises(Terminal, match="no stream to start"):
        orders.give(stream, "start", declared=["revenue"])
    orders.give(stream, "start", declared=[stream])
    assert not orders.is_held(stream)


def test_stopping_waits_for_the_driver_s_end(
    connection: Connection, run: str, stream: str, driver: DriverProcess
) -> None:
    says(connection, Lease.acquire(connection, stream))
    assert not orders.stop_and_wait(stream, 1, patience_s=0.5)
    driver.end()
    assert orders.stop_and_wait(stream, 1, patience_s=0.5)
