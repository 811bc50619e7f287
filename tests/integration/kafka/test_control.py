"""A driver listens to the control topic for as long as it runs, also while its broker is away."""

from __future__ import annotations

from pathlib import Path

from tests.eventually import eventually

from recount.kafka.connection import Connection
from recount.kafka.control import ControlChannel, request_stop
from recount.kafka.platform import platform_topics
from recount.kafka.topics import apply, plan
from recount.local.home import Home
from recount.local.kafka import EmbeddedKafka
from recount.local.project import Project


def test_a_driver_whose_broker_is_lost_hears_the_next_order_once_it_is_back(tmp_path: Path, project: Project) -> None:
    with EmbeddedKafka(home=Home(path=tmp_path), project=project) as kafka:
        connection = Connection(bootstrap_servers=kafka.bootstrap_servers)
        admin = connection.admin()
        apply(admin, plan(admin, platform_topics(), "embedded"))
        channel = ControlChannel(connection, "orders", lease_epoch=1)
        assert not channel.stop_requested()
        kafka.stop_broker(1, patience_s=0)
        assert not channel.stop_requested()
        kafka.start()
        request_stop(connection, "orders", 1)
        assert eventually(channel.stop_requested, True, limit_s=60)
        channel.close()
