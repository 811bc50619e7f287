"""Anybody who may write to the status topic can say anything there: it is shown as text, or not at all."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from tests.statuses import a_status

from recount.airflow.pages import overview_row
from recount.core.registry import declared
from recount.kafka.status import MOST_CHARACTERS, StreamStatus, UnreadableStatus

STREAM = "revenue-by-region"
SCRIPT = "<script>alert(1)</script>"
STATUS = a_status(stream=STREAM, state="failed", error="disk full")


def shown(status: StreamStatus) -> str:
    return overview_row(STREAM, declared().stream(STREAM), status)


def test_an_error_is_shown_as_text_whatever_it_holds() -> None:
    row = shown(replace(STATUS, error=f'{SCRIPT} javascript:alert(1) " onload=x'))
    assert SCRIPT not in row
    assert "&lt;script&gt;" in row
    assert "javascript:" not in "".join(part.split('"')[0] for part in row.split('href="')[1:])


@pytest.mark.parametrize("field", ["host", "driver_id", "application_id", "error"])
def test_no_text_of_a_status_reaches_the_page_as_markup(field: str) -> None:
    status = StreamStatus.from_json(replace(STATUS, **{field: SCRIPT}).to_json())  # type: ignore[arg-type]
    assert "<script" not in shown(status)


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
