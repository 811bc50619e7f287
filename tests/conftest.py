"""Fixtures the parts of the tests share: one real broker for the run, a browser, names that never meet."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import hypothesis
import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.eventually import eventually
from tests.lean_spark import lean_spark

from recount.declare.topics import Topic
from recount.kafka.connection import Connection
from recount.kafka.topic_drift import platform_topics
from recount.kafka.topics_on_cluster import apply, plan
from recount.profile import daemon
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Home, Project
from recount.runtime.console import look_seldom

if TYPE_CHECKING:
    from playwright.sync_api import Browser

look_seldom()
# a busy machine, or a large process that collects its garbage, is no error
hypothesis.settings.register_profile("recount", deadline=None)
hypothesis.settings.load_profile("recount")
PROJECT = Project.containing(Path(__file__).parent)
# Airflow reads it at its first import, and would otherwise write into the home of whoever runs the tests.
_AIRFLOW_HOME = TemporaryDirectory(prefix="recount-airflow-")
os.environ["AIRFLOW_HOME"] = _AIRFLOW_HOME.name
os.environ["SPARK_HOME"] = str(lean_spark(PROJECT.jars.parent))
_STATUS = pytest.StashKey[int]()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[_STATUS] = exitstatus


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Pytest's summary comes last, and its verdict counts.

    The interpreter would take down the threads of five native libraries (librdkafka, Arrow, Polars, Delta, gRPC) in no
    order: once in some dozens of runs it aborted there, after every test had passed.
    """
    if _STATUS in config.stash:
        _AIRFLOW_HOME.cleanup()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash[_STATUS])


@pytest.fixture(scope="session", autouse=True)
def _ended_like_interrupted() -> None:
    """A run that is ended from outside stops the brokers, drivers and Airflows that it started.

    As at Ctrl-C: what pytest.exit raises is an Exception, which whoever was at work would take for an error of its own.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session")
def project() -> Project:
    return PROJECT


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Iterator[EmbeddedKafka]:
    """One real broker for the whole run; tests keep apart by ``unique`` names."""
    with EmbeddedKafka(home=Home(path=tmp_path_factory.mktemp("kafka")), project=project) as broker:
        yield broker


@pytest.fixture(scope="session")
def connection(kafka: EmbeddedKafka) -> Connection:
    connection = Connection(bootstrap_servers=kafka.bootstrap_servers)
    admin = connection.admin()
    topics = platform_topics()
    apply(admin, plan(admin, topics, "embedded"))
    assert eventually(lambda: _lead(admin, topics), expected=True), "a topic of the platform has no leader"
    assert eventually(lambda: _knows_groups(connection), expected=True), "no broker answers for groups"
    return connection


def _lead(admin: AdminClient, topics: Iterable[Topic]) -> bool:
    """Whether the brokers answer for each of ``topics``, as they do a moment after they made it."""
    asked = admin.list_offsets({TopicPartition(topic.name, 0): OffsetSpec.latest() for topic in topics})
    return all(answer.exception() is None for answer in asked.values())


def _knows_groups(connection: Connection) -> bool:
    """Whether a broker answers for groups, whose topic is made when the first is asked for."""
    with closing(connection.consumer("recount.tests", {})) as consumer:
        try:
            consumer.committed([TopicPartition("nowhere", 0)], timeout=10)
        except KafkaException:
            return False
    return True


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(path=tmp_path / "home")
    home.create()
    yield home
    daemon.sweep(home, patience_s=1)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium for one test module: while it runs, its event loop is in the way of others."""
    from playwright.sync_api import sync_playwright  # takes its time, and few tests have a browser

    chromium = shutil.which("chromium")
    assert chromium, "no chromium on this machine: install it (Debian: apt-get install chromium)"
    # Chromium's sandbox does not start for root, who runs the tests in a container.
    sandbox = os.geteuid() != 0
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, chromium_sandbox=sandbox)
        yield started
        started.close()


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes a name (of a topic, a stream, a group) that no other test has: ``unique("orders")``."""
    test = re.sub(r"\W+", "-", request.node.name)[:40].strip("-")
    prefix = f"{test}-{uuid.uuid4().hex[:6]}"
    return lambda name: f"{prefix}-{name}"
