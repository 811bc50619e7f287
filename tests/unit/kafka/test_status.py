"""The status message: what goes in comes out, and what cannot be understood is refused."""

from __future__ import annotations

import json

import pytest
from tests.statuses import a_status

from recount.kafka.status import LARGEST_EPOCH, StreamStatus, UnreadableStatus

STATUS = a_status(batch=3, frontier_ms=1_690_000_020_000, error="é")


def test_a_status_survives_the_topic() -> None:
    assert StreamStatus.from_json(STATUS.to_json()) == STATUS


def test_fields_of_a_newer_driver_are_ignored() -> None:
    message = {**json.loads(STATUS.to_json()), "mood": "good"}
    assert StreamStatus.from_json(json.dumps(message).encode()) == STATUS


@pytest.mark.parametrize("change", [{"version": 2}, {"state": "asleep"}, {"version": None}])
def test_another_version_or_state_is_refused(change: dict[str, object]) -> None:
    message = {**json.loads(STATUS.to_json()), **change}
    with pytest.raises(UnreadableStatus):
        StreamStatus.from_json(json.dumps(message).encode())


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"\xff", b'{"version":1,"state":"running"}', b"[" * 100_000])
def test_what_is_no_status_is_refused(text: bytes) -> None:
    with pytest.raises(UnreadableStatus):
        StreamStatus.from_json(text)


def test_half_a_character_is_refused_for_no_page_can_show_it() -> None:
    message = STATUS.to_json().replace(b"\\u00e9", b"\\ud800")
    assert b"ud800" in message
    with pytest.raises(UnreadableStatus):
        StreamStatus.from_json(message)


@pytest.mark.parametrize("epoch", [1, LARGEST_EPOCH])
def test_a_lease_epoch_up_to_the_largest_is_read(epoch: int) -> None:
    status = a_status(lease_epoch=epoch)
    assert StreamStatus.from_json(status.to_json()) == status


@pytest.mark.parametrize("epoch", [-1, 0, LARGEST_EPOCH + 1, 2**63 - 1])
def test_a_lease_epoch_that_no_lease_has_is_refused(epoch: int) -> None:
    with pytest.raises(UnreadableStatus):
        StreamStatus.from_json(a_status(lease_epoch=epoch).to_json())
