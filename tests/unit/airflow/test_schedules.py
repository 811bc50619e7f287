"""Nights begin apart, at the same time every night, and missed ones are made up for by one run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pendulum
from airflow.serialization.decoders import decode_timetable
from airflow.serialization.encoders import encode_timetable
from airflow.timetables.base import DataInterval, TimeRestriction

from recount.airflow.links import FIRST_HOUR, MINUTES, nightly

NEVER = TimeRestriction(earliest=None, latest=None, catchup=False)
DAY = timedelta(days=1)


def next_run(name: str, now: datetime, last: datetime | None) -> datetime:
    """When the scheduler starts the next run of a DAG whose last automated one was due at ``last``."""
    timetable = decode_timetable(encode_timetable(nightly(name)))
    before = None if last is None else DataInterval(pendulum.instance(last - DAY), pendulum.instance(last))
    with patch("airflow.timetables.trigger.utcnow", return_value=now):
        run = timetable.next_dagrun_info(last_automated_data_interval=before, restriction=NEVER)
    assert run
    return run.run_after


def night_of(name: str, day: int) -> datetime:
    """When the night of that day in November begins."""
    return next_run(name, datetime(2026, 11, day, tzinfo=UTC), None)


def test_nights_begin_apart_and_each_at_its_own_time() -> None:
    names = ("orders", "customers", "page-views", "revenue-by-region")
    begins = [night_of(name, 25) for name in names]
    assert len(set(begins)) == len(names)
    first = datetime(2026, 11, 25, FIRST_HOUR, tzinfo=UTC)
    assert all(first <= begin < first + timedelta(minutes=MINUTES) for begin in begins)
    assert [night_of(name, 26) - DAY for name in names] == begins


def test_nights_that_were_missed_are_made_up_for_once_and_at_once() -> None:
    due = night_of("orders", 25)
    morning = due.replace(hour=9)
    assert next_run("orders", morning, due - 3 * DAY) == due
    assert next_run("orders", morning, due) == due + DAY


def test_what_is_new_in_the_morning_is_audited_the_next_night() -> None:
    due = night_of("orders", 25)
    assert next_run("orders", due + timedelta(minutes=10), None) == due + DAY
