"""The offsets nobody saw, as ranges."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from recount.kafka import offsets
from recount.kafka.connection import Connection
from recount.kafka.offsets import LogRange, Partition, UnreadRecordsGone, deleted_before, require_unread_kept

NOWHERE = Connection(bootstrap_servers="127.0.0.1:1")
ORDERS, USERS = ("orders", 0), ("users", 0)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders are kept from 50 to 90, users from 0 to 0."""
    spans = {ORDERS: LogRange(start=50, end=90), USERS: LogRange(start=0, end=0)}
    monkeypatch.setattr(offsets, "log_ranges", lambda _connection, asked, _level: {key: spans[key] for key in asked})


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("starts", [{}, {ORDERS: 50, USERS: 0}, {ORDERS: 90}])
def test_a_stream_goes_on_where_kafka_holds_all_that_it_has_not_read(starts: Mapping[Partition, int]) -> None:
    require_unread_kept(NOWHERE, "revenue", starts)


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("starts", "named"), [({ORDERS: 49}, "orders-0"), ({ORDERS: 91}, "orders-0"), ({USERS: 1}, "users-0")]
)
def test_a_stream_whose_unread_records_have_left_kafka_is_told_to_begin_anew(
    starts: Mapping[Partition, int], named: str
) -> None:
    """It stood still for longer than the topic is kept, or the topic was cut."""
    with pytest.raises(UnreadRecordsGone) as refused:
        require_unread_kept(NOWHERE, "revenue", starts)
    assert named in refused.value.given
    assert "recount reset revenue" in refused.value.remedy


@pytest.mark.usefixtures("kept")
def test_a_new_stream_says_which_records_were_deleted_before_it_could_read_them() -> None:
    warning = deleted_before(NOWHERE, "revenue", [ORDERS, USERS])
    assert warning is not None
    assert "revenue begins with what Kafka still has; it has deleted the offsets of orders-0 before 50. " in warning
    assert deleted_before(NOWHERE, "revenue", [USERS]) is None
