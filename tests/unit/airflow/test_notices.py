"""One place names the notifiers of an installation, and whatever is wrong is told to each."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from airflow.sdk import BaseNotifier

from recount.airflow.notices import SETTING, notifiers, notify, tell_of_deadline
from recount.runtime.errors import Terminal

TOLD: list[str] = []


class Listed(BaseNotifier):
    """Remembers what it is told, as a template of a failed task would read it."""

    def notify(self, context: Any) -> None:
        TOLD.append(context["exception"])


class Broken(BaseNotifier):
    """A service that is down."""

    def notify(self, context: Any) -> None:  # noqa: ARG002 - it fails before it looks
        raise ConnectionError("no answer")


both = [Broken(), Listed()]
one = Listed()
none = 7


def test_nobody_is_told_where_no_notifier_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    assert notifiers() == []


def test_a_notifier_that_fails_does_not_keep_the_next_from_being_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SETTING, f"{__name__}:both")
    TOLD.clear()
    with caplog.at_level(logging.ERROR):
        notify({}, "stream revenue: degraded; lag 2 records, limit 1")
    assert TOLD == ["stream revenue: degraded; lag 2 records, limit 1"]
    assert "a notifier failed" in caplog.text


def test_a_single_notifier_needs_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, f"{__name__}:one")
    assert notifiers() == [one]


@pytest.mark.parametrize("place", ["nowhere:one", f"{__name__}:nothing", f"{__name__}:none", "no-colon", ":"])
def test_a_place_without_a_notifier_is_refused(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv(SETTING, place)
    with pytest.raises(Terminal):
        notifiers()


def test_a_missed_deadline_names_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, f"{__name__}:one")
    TOLD.clear()
    context: Any = {"dag_run": {"dag_id": "night__orders", "dag_run_id": "scheduled__1"}, "deadline": {}}
    asyncio.run(tell_of_deadline(context=context))
    assert TOLD == ["night__orders: the run scheduled__1 has not ended by its deadline"]
