"""A topic keeps its id, and one that is made anew under its name has another."""

from __future__ import annotations

from tests.eventually import eventually
from tests.integration.kafka.conftest import MakeTopic

from recount.kafka.connection import Connection
from recount.kafka.topics_on_cluster import ids_of


def test_a_topic_that_is_made_anew_has_another_id(connection: Connection, make_topic: MakeTopic) -> None:
    orders, users = make_topic("orders", partitions=2), make_topic("users")
    found = ids_of(connection, [orders, users, orders])
    assert found.keys() == {orders, users}
    assert found[orders] != found[users]
    connection.producer().produce(orders, value=b"v")
    assert ids_of(connection, [orders]) == {orders: found[orders]}

    admin = connection.admin()
    admin.delete_topics([orders])[orders].result(15)
    assert eventually(lambda: ids_of(connection, [orders, users]), {users: found[users]}) == {users: found[users]}
    make_topic("orders", partitions=2)
    assert ids_of(connection, [orders])[orders] != found[orders]


def test_of_no_topics_nobody_is_asked() -> None:
    assert ids_of(Connection(bootstrap_servers="127.0.0.1:1"), []) == {}
