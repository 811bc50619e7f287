"""Two installations on one cluster share no group, no transactional.id and no topic of Recount's own."""

from __future__ import annotations

import os

import pytest

from recount.kafka.connection import Connection
from recount.kafka.topic_drift import STATUS, platform_topics
from recount.runtime.settings import InvalidSettings, Settings

ENVIRONMENT = {
    "RECOUNT_PROFILE": "production",
    **{
        f"RECOUNT_{name}": "x"
        for name in ("BOOTSTRAP_SERVERS", "DATA", "CHECKPOINTS", "REPORTS", "LOGS", "RUN", "JARS")
    },
}


def connection(**given: str) -> Connection:
    return Connection.of(Settings.from_environment({**ENVIRONMENT, **given}))


def test_an_installation_with_a_prefix_shares_no_name_with_another() -> None:
    plain, blue = connection(), connection(RECOUNT_PREFIX="blue")
    assert (plain.group("revenue"), blue.group("revenue")) == ("recount.revenue", "blue.revenue")
    assert blue.own("recount.revenue.lease") == "blue.revenue.lease"
    assert blue.own(STATUS) == "blue.status"
    names = [{topic.name for topic in platform_topics(one.own)} for one in (plain, blue)]
    assert names[0].isdisjoint(names[1])


def test_a_topic_of_others_has_no_prefix() -> None:
    assert connection(RECOUNT_PREFIX="blue").own("orders") == "orders"


@pytest.mark.parametrize("prefix", ["a.b", "-a", "a b", "x" * 65])
def test_a_prefix_that_two_installations_could_share_names_by_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidSettings):
        connection(RECOUNT_PREFIX=prefix)


def test_prefix_and_notifiers_survive_the_environment_of_a_driver() -> None:
    settings = Settings.from_environment({**ENVIRONMENT, "RECOUNT_PREFIX": "blue", "RECOUNT_NOTIFIERS": "alerts:all"})
    assert Settings.from_environment({**os.environ, **settings.to_environment()}) == settings
