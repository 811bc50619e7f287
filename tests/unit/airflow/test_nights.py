"""The night of a group: who is audited, what is tried again, and what each stream's task then says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from recount.airflow import nights
from recount.airflow.audits import VerdictOperator, certificate_of
from recount.airflow.links import audited
from recount.airflow.nights import LEFT_OUT, REFUSED, GroupAuditOperator
from recount.audit.certificate.summary import STATES
from recount.runtime.settings import Settings

STREAMS = ("clicks", "orders", "views")


NO_FINDINGS = {f"{state}{found}": [] if not found else 0 for state in STATES for found in ("", "_found")}
LOST = {
    "finding": "f-1",
    "state": "open",
    "kind": "output",
    "verdict": "lost",
    "place": "table outputs/orders",
    "key": "ann",
    "window_start": None,
    "window_end": None,
    "origin": None,
    "first_audit": "a-1",
    "expected": "{n: 1}",
    "actual": None,
    "cause": "nobody wrote it",
    "evidence": ["orders-0@7"],
}


def issue(settings: Settings, stream: str, audit: str, **more: Any) -> None:
    """A certificate as far as a task reads it."""
    document = {
        "audit": audit,
        "stream": stream,
        "outcome": "match",
        "differences_found": 0,
        "grace_misses_found": 2,
        "warnings": [],
        "interval_ms": [None, 1_000],
        "cut": {"batch_timestamp_ms": 900, "frontier_ms": 800},
        "findings": {**NO_FINDINGS, "open": [LOST], "open_found": 1},
        "sha256": "ab",
        **more,
    }
    file = certificate_of(settings, stream, audit)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document))


class Application:
    """Stands in for spark-submit: issues the certificates of those streams that it ``can`` judge."""

    can: tuple[str, ...] = STREAMS
    asked: list[list[str]] = []
    refused: dict[str, str] = {}

    def __init__(self, *, arguments: list[str], settings: Settings, **_: object) -> None:
        self.arguments, self.settings = arguments, settings

    def run(self) -> str | None:
        words = self.arguments
        streams = [words[place + 1] for place, word in enumerate(words) if word == "--stream"]
        self.asked.append(streams)
        for stream in streams:
            if stream in self.can:
                issue(self.settings, stream, words[words.index("--audit") + 1])
        return None if set(streams) <= set(self.can) else "Error code is: 75"


class Task:
    """The task instance of one try."""

    def __init__(self, paused: tuple[str, ...], try_number: int) -> None:
        self.paused, self.try_number, self.max_tries = paused, try_number, 1
        self.pushed: dict[str, Any] = {}

    def get_dag(self, dag_id: str) -> Any:
        return SimpleNamespace(is_paused=dag_id in {f"audit__{stream}" for stream in self.paused})

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    folders = dict.fromkeys(("data", "checkpoints", "reports", "logs", "run", "jars"), str(tmp_path))
    made = Settings(profile="embedded", bootstrap_servers="127.0.0.1:1", **folders)
    for name, value in made.to_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(nights, "Submission", Application)
    monkeypatch.setattr(nights, "_has_run", lambda _, stream: stream != "new")
    monkeypatch.setattr(Application, "asked", [])
    monkeypatch.setattr(Application, "can", STREAMS)
    return made


def night(*, paused: tuple[str, ...] = (), try_number: int = 1) -> tuple[Task, Context]:
    run = SimpleNamespace(
        dag_id="night__shop",
        run_id="scheduled__1",
        run_type="scheduled",
        run_after=datetime(2026, 11, 24, 1, 7, tzinfo=UTC),
        data_interval_start=datetime(2026, 11, 23, 1, 7, tzinfo=UTC),
        data_interval_end=datetime(2026, 11, 24, 1, 7, tzinfo=UTC),
    )
    task = Task(paused, try_number)
    return task, {"ti": task, "dag_run": run, "params": {}}  # type: ignore[typeddict-item]


def audit_all(context: Context, streams: tuple[str, ...] = STREAMS) -> None:
    GroupAuditOperator(task_id="audit", group="shop", streams=streams, application=Path("audit.py")).execute(context)


def test_one_application_audits_all_streams_and_names_the_audit_of_each(settings: Settings) -> None:
    task, context = night()
    audit_all(context)
    assert Application.asked == [list(STREAMS)]
    assert set(task.pushed) == set(STREAMS)
    assert all(certificate_of(settings, stream, audit).exists() for stream, audit in task.pushed.items())


@pytest.mark.usefixtures("settings")
def test_a_paused_stream_and_one_that_has_never_run_are_left_out_with_the_reason() -> None:
    task, context = night(paused=("orders",))
    audit_all(context, (*STREAMS, "new"))
    assert Application.asked == [["clicks", "views"]]
    assert "paused" in task.pushed[f"{LEFT_OUT}orders"]
    assert "never run" in task.pushed[f"{LEFT_OUT}new"]


@pytest.mark.usefixtures("settings")
def test_where_all_are_left_out_no_application_starts() -> None:
    _, context = night(paused=STREAMS)
    audit_all(context)
    assert Application.asked == []


@pytest.mark.usefixtures("settings")
def test_another_try_audits_only_what_could_not_be_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Application, "can", ("clicks", "views"))
    first, context = night()
    with pytest.raises(AirflowException, match="not judged: orders"):
        audit_all(context)
    assert set(first.pushed) == {"clicks", "views"}
    monkeypatch.setattr(Application, "can", STREAMS)
    second, context = night(try_number=2)
    audit_all(context)
    assert Application.asked == [list(STREAMS), ["orders"]]
    assert second.pushed.keys() == set(STREAMS)
    assert second.pushed["clicks"] == first.pushed["clicks"]


@pytest.mark.usefixtures("settings")
def test_a_cleared_night_that_judged_everything_is_audited_anew() -> None:
    first, context = night()
    audit_all(context)
    again, context = night(try_number=2)
    audit_all(context)
    assert Application.asked == [list(STREAMS)] * 2
    assert again.pushed["orders"] != first.pushed["orders"]


@pytest.mark.usefixtures("settings")
def test_after_the_last_try_the_stream_s_own_task_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Application, "can", ("clicks", "views"))
    task, context = night(try_number=2)
    audit_all(context)
    assert "orders" not in task.pushed


@pytest.mark.usefixtures("settings")
def test_a_night_that_judged_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Application, "can", ())
    with pytest.raises(AirflowException, match="clicks, orders, views"):
        audit_all(night(try_number=2)[1])


@pytest.mark.usefixtures("settings")
def test_a_stream_that_no_retry_can_help_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Application, "can", ("clicks", "views"))
    monkeypatch.setattr(Application, "refused", {"orders": "the declaration has changed"})
    task, context = night()
    audit_all(context)
    assert task.pushed[f"{REFUSED}orders"] == "the declaration has changed"
    _, raised, _ = verdict("None", refused=task.pushed[f"{REFUSED}orders"])
    assert str(raised) == "orders could not be judged: the declaration has changed"


@pytest.mark.usefixtures("settings")
def test_a_night_that_no_retry_can_help_fails_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Application, "can", ())
    monkeypatch.setattr(Application, "refused", dict.fromkeys(STREAMS, "the declaration has changed"))
    with pytest.raises(AirflowFailException, match="orders is not judged: the declaration has changed"):
        audit_all(night()[1])


@pytest.mark.usefixtures("settings")
def test_a_night_with_one_stream_that_a_retry_may_help_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Application, "can", ("clicks",))
    monkeypatch.setattr(Application, "refused", {"orders": "the declaration has changed"})
    with pytest.raises(AirflowException, match="not judged: orders, views") as raised:
        audit_all(night()[1])
    assert not isinstance(raised.value, AirflowFailException)


def verdict(audit: str, left_out: str = "None", refused: str = "None") -> tuple[Task, Any, Mapping[str, Any]]:
    """What the task of orders pushes and emits; the second is what it raised."""
    task, context = night()
    event = SimpleNamespace(extra={})
    context["outlet_events"] = {audited("orders"): event}  # type: ignore[typeddict-item]
    operator = VerdictOperator(task_id="verdict", stream="orders", audit=audit, left_out=left_out, refused=refused)
    raised: BaseException | None = None
    try:
        operator.execute(context)
    except AirflowException as error:
        raised = error
    return task, raised, event.extra


def test_a_match_emits_what_was_audited_and_where_the_certificate_is(settings: Settings) -> None:
    issue(settings, "orders", "a-1")
    task, raised, extra = verdict("a-1")
    assert raised is None
    assert (task.pushed["audit"], task.pushed["grace_misses"]) == ("a-1", 2)
    assert extra == {
        "audit": "a-1",
        "outcome": "match",
        "interval_ms": [None, 1_000],
        "through_ms": 900,
        "frontier_ms": 800,
        "grace_misses": 2,
        "certificate": "certificates/orders/a-1.json",
        "sha256": "ab",
    }


def test_a_violation_is_red_says_so_to_later_tasks_and_emits_nothing(settings: Settings) -> None:
    issue(settings, "orders", "a-1", outcome="violation")
    task, raised, extra = verdict("a-1")
    assert isinstance(raised, AirflowFailException)
    assert "lost, output, table outputs/orders, ann" in str(raised) and "orders-0@7" in str(raised)
    assert "findings__orders" in str(raised)
    assert task.pushed["outcome"] == "violation"
    assert extra == {}


@pytest.mark.usefixtures("settings")
def test_a_stream_that_could_not_be_judged_is_red() -> None:
    assert isinstance(verdict("None")[1], AirflowFailException)


@pytest.mark.usefixtures("settings")
def test_a_stream_that_was_left_out_is_skipped() -> None:
    assert isinstance(verdict("None", "it has never run")[1], AirflowSkipException)
