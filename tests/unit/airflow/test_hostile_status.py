"""Anybody who may write to the status topic can say anything there: it is shown as text, or not at all."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from tests.shown_shop import ShownShop, shown_shop
from tests.statuses import a_status

from recount.airflow.links import PAGES
from recount.kafka.status import MOST_CHARACTERS, StreamStatus, UnreadableStatus

STREAM = "revenue-by-region"
SCRIPT = "<script>alert(1)</script>"
STATUS = a_status(stream=STREAM, state="failed", error="disk full")


def shown(shop: ShownShop, status: StreamStatus) -> str:
    """The overview and the page of the stream, when that is its driver's last word."""
    shop.say = replace(shop.say, statuses={**shop.say.statuses, STREAM: status})
    with shop.served() as app:
        pages = [TestClient(app).get(f"{PAGES}{path}") for path in ("/", f"/streams/{STREAM}")]
    assert [page.status_code for page in pages] == [200, 200]
    return "".join(page.text for page in pages)


@pytest.fixture
def shop(tmp_path: Path) -> ShownShop:
    return shown_shop(tmp_path)


def test_an_error_is_shown_as_text_whatever_it_holds(shop: ShownShop) -> None:
    pages = shown(shop, replace(STATUS, error=f'{SCRIPT} javascript:alert(1) " onload=x'))
    assert SCRIPT not in pages
    assert "&lt;script&gt;" in pages
    assert "javascript:" not in "".join(part.split('"')[0] for part in pages.split('href="')[1:])


@pytest.mark.parametrize("field", ["host", "driver_id", "application_id", "error"])
def test_no_text_of_a_status_reaches_a_page_as_markup(shop: ShownShop, field: str) -> None:
    status = StreamStatus.from_json(replace(STATUS, **{field: SCRIPT}).to_json())  # type: ignore[arg-type]
    pages = shown(shop, status)
    assert "<script" not in pages
    assert "&lt;script&gt;" in pages


@pytest.mark.parametrize("number", [-(2**62), -1, 0, 2**62])
def test_numbers_of_any_size_are_shown(shop: ShownShop, number: int) -> None:
    names = ("started_at_ms", "heartbeat_ms", "batch", "lag", "records_total", "late_records", "dead_letters")
    more = ("frontier_ms", "stream_time_ms", "batch_duration_ms", "commit_duration_ms", "memory_used", "memory_left")
    shown(shop, replace(STATUS, state="running", error=None, **dict.fromkeys([*names, *more], number)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"state": SCRIPT},
        {"batch": SCRIPT},
        {"lag": SCRIPT},
        {"dead_letters": None},
        {"records_total": True},
        {"records_per_second": "1"},
        {"records_per_second": 1e300},
        {"records_per_second": float("nan")},
        {"frontier_ms": 2**63},
        {"heartbeat_ms": "2000"},
        {"error": ["disk full"]},
        {"host": {"href": "javascript:alert(1)"}},
        {"error": "x" * (MOST_CHARACTERS + 1)},
    ],
)
def test_a_status_of_other_types_or_lengths_is_no_status(change: dict[str, object]) -> None:
    message = {"version": 1, **asdict(STATUS), **change}
    with pytest.raises(UnreadableStatus):
        StreamStatus.from_json(json.dumps(message).encode())
