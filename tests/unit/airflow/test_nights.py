"""The tasks of audits: who is audited in the night of a group, what is tried again, and what each task then says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from tests.unit.audit.test_findings_register import FAULT, FAULT_ID, LOST_ID, STREAM
from tests.unit.audit.test_findings_register import LOST as LOST_ROW
from tests.unit.audit.test_findings_register import Nights as Audits

from recount.airflow import audits as of_audits
from recount.airflow import nights, submission
from recount.airflow.approvals import AcceptanceOperator, AcceptOperator, OpenFindingsOperator
from recount.airflow.audits import (
    ExpectationsOperator,
    GraceMissesOperator,
    LimitsOperator,
    VerdictOperator,
    certificate_of,
)
from recount.airflow.links import audited, grace_misses
from recount.airflow.nights import LEFT_OUT, REFUSED, GroupAuditOperator
from recount.airflow.notices import airflow_failures
from recount.audit.certificate.certificate_files import EXIT_DISAGREED, EXIT_FAILED, outcome_of
from recount.audit.certificate.summary import STATES
from recount.runtime.errors import Terminal, Transient
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
def night_settings(set_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(submission, "Submission", Application)
    monkeypatch.setattr(nights, "_has_run", lambda _, stream: stream != "new")
    monkeypatch.setattr(Application, "asked", [])
    monkeypatch.setattr(Application, "can", STREAMS)
    return set_settings


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


@pytest.mark.usefixtures("night_settings")
def test_a_paused_stream_and_one_that_has_never_run_are_left_out_with_the_reason() -> None:
    task, context = night(paused=("orders",))
    audit_all(context, (*STREAMS, "new"))
    assert Application.asked == [["clicks", "views"]]
    assert "paused" in task.pushed[f"{LEFT_OUT}orders"]
    assert "never run" in task.pushed[f"{LEFT_OUT}new"]


@pytest.mark.usefixtures("night_settings")
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


@pytest.mark.usefixtures("night_settings")
def test_a_cleared_night_that_judged_everything_is_audited_anew() -> None:
    first, context = night()
    audit_all(context)
    again, context = night(try_number=2)
    audit_all(context)
    assert Application.asked == [list(STREAMS)] * 2
    assert again.pushed["orders"] != first.pushed["orders"]


@pytest.mark.usefixtures("night_settings")
def test_a_night_that_judged_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Application, "can", ())
    with pytest.raises(AirflowException, match="clicks, orders, views"):
        audit_all(night(try_number=2)[1])


@pytest.mark.usefixtures("night_settings")
def test_a_stream_that_no_retry_can_help_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Application, "can", ("clicks", "views"))
    monkeypatch.setattr(Application, "refused", {"orders": "the declaration has changed"})
    task, context = night()
    audit_all(context)
    assert task.pushed[f"{REFUSED}orders"] == "the declaration has changed"
    _, raised, _ = verdict("None", refused=task.pushed[f"{REFUSED}orders"])
    assert str(raised) == "orders could not be judged: the declaration has changed"


@pytest.mark.usefixtures("night_settings")
def test_a_night_that_no_retry_can_help_fails_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Application, "can", ())
    monkeypatch.setattr(Application, "refused", dict.fromkeys(STREAMS, "the declaration has changed"))
    with pytest.raises(AirflowFailException, match="orders is not judged: the declaration has changed"):
        audit_all(night()[1])


@pytest.mark.usefixtures("night_settings")
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


def test_a_match_emits_what_was_audited_and_where_the_certificate_is(set_settings: Settings) -> None:
    issue(set_settings, "orders", "a-1")
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


def test_a_violation_is_red_says_so_to_later_tasks_and_emits_nothing(set_settings: Settings) -> None:
    issue(set_settings, "orders", "a-1", outcome="violation")
    task, raised, extra = verdict("a-1")
    assert isinstance(raised, AirflowFailException)
    assert "lost, output, table outputs/orders, ann" in str(raised) and "orders-0@7" in str(raised)
    assert "findings__orders" in str(raised)
    assert task.pushed["outcome"] == "violation"
    assert extra == {}


@pytest.mark.usefixtures("set_settings")
def test_a_stream_that_could_not_be_judged_is_red_and_one_that_was_left_out_skipped() -> None:
    assert isinstance(verdict("None")[1], AirflowFailException)
    assert isinstance(verdict("None", "it has never run")[1], AirflowSkipException)


BEYOND = "200,000 dead letters in 400,000 records"


@pytest.mark.parametrize(
    ("warnings", "params", "ends"),
    [
        ("", {}, nullcontext()),
        (BEYOND, {"announce": True}, pytest.raises(AirflowFailException, match="200,000 dead letters")),
        (BEYOND, {"announce": False}, pytest.raises(AirflowSkipException)),
        ("None", {}, pytest.raises(AirflowSkipException)),
    ],
    ids=["within", "beyond: says by how much", "after a repair: not again", "could not judge"],
)
def test_a_night_fails_beyond_a_limit_only(warnings: str, params: dict[str, bool], ends: Any) -> None:
    night: Any = {"params": params}
    with ends:
        LimitsOperator(task_id="limits", stream="revenue", warnings=warnings).execute(night)


def try_expectations(audit: str = "a1", try_number: int = 1) -> None:
    context: Any = {"ti": SimpleNamespace(try_number=try_number)}
    ExpectationsOperator(task_id="expectations", stream="clicks", audit=audit).execute(context)


@pytest.mark.parametrize(
    ("exit_code", "try_number", "ends"),
    [
        (0, 1, nullcontext()),
        (EXIT_FAILED, 1, pytest.raises(AirflowFailException, match="an expectation failed")),
        (EXIT_DISAGREED, 1, pytest.raises(AirflowFailException, match="disagree")),
        (0, 2, pytest.raises(AirflowFailException, match="could not be tried: exit code 1")),
        (None, 1, pytest.raises(AirflowFailException, match="could not be tried: exit code 1")),
    ],
    ids=["hold", "failed", "disagreed", "a later try looks again", "and so does one without an outcome"],
)
def test_the_task_says_what_the_audit_s_application_found_of_expectations(
    set_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    exit_code: int | None,
    try_number: int,
    ends: Any,
) -> None:
    path = outcome_of(set_settings.reports, "clicks", "a1")
    path.parent.mkdir(parents=True)
    if exit_code is not None:
        path.write_text(json.dumps({"exit_code": exit_code, "lines": ["clicks raw_log: told"]}))
    monkeypatch.setattr(of_audits.sys, "executable", "false")
    with ends:
        try_expectations(try_number=try_number)
    assert ("clicks raw_log: told" in capsys.readouterr().out) is (exit_code is not None and try_number == 1)
    with pytest.raises(AirflowSkipException):
        try_expectations(audit="None")  # it was not judged


class Messages:
    """What tasks of one run tell each other."""

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, task_ids: str, key: str = "") -> Any:
        return self.pushed[key or task_ids]


@pytest.fixture
def audits(set_settings: Settings) -> Audits:
    return Audits(set_settings)


def listed(findings: str = "") -> Messages:
    messages = Messages()
    context: Any = {"ti": messages, "params": {"findings": findings}}
    OpenFindingsOperator(task_id="open_findings", stream=STREAM).execute(context)
    return messages


def answered(by: str, reason: str) -> dict[str, Any]:
    user = {"id": "7", "name": by}
    return {"chosen_options": ["Approve"], "params_input": {"reason": reason}, "responded_by_user": user}


def test_what_was_listed_is_accepted_in_the_name_of_the_user_who_approved(audits: Audits) -> None:
    audits.audit("1", [LOST_ROW, FAULT], "lost")
    messages = listed(LOST_ID)
    assert LOST_ID in messages.pushed["told"]
    messages.pushed["approval"] = answered("ada", "deleted on request")
    context: Any = {"ti": messages}
    AcceptOperator(task_id="accept", stream=STREAM).execute(context)
    known = audits.register()
    assert {one.id: one.state for one in known.values()} == {LOST_ID: "accepted", FAULT_ID: "open"}
    assert (known[LOST_ID].acceptance.by, known[LOST_ID].acceptance.reason) == ("ada", "deleted on request")


def test_all_open_findings_are_listed_unless_some_are_named_and_a_closed_one_is_refused(audits: Audits) -> None:
    with pytest.raises(AirflowSkipException):
        listed()
    audits.audit("1", [LOST_ROW, FAULT], "lost")
    assert set(listed().pushed["findings"]) == {LOST_ID, FAULT_ID}
    audits.audit("2", [], "match")
    with pytest.raises(AirflowFailException):
        listed(LOST_ID)


def test_a_key_adds_no_markdown_to_what_a_person_is_asked(audits: Audits) -> None:
    audits.audit("1", [replace(LOST_ROW, key="`](x) ![](http://evil)\n- `id` **repaired**" + "k" * 900_000)], "lost")
    told = listed().pushed["told"]
    assert (told.count("\n"), told.count("`"), len(told) < 2_000) == (0, 8, True)


@pytest.mark.parametrize("reason", ["", "  "])
def test_an_approval_without_a_reason_is_none(reason: str) -> None:
    event = answered("ada", reason)
    context: Any = {}
    with pytest.raises(AirflowFailException, match="reason"):
        AcceptanceOperator(task_id="approval", subject="?").execute_complete(context, event)


def test_an_audit_that_could_not_judge_announces_nothing_and_one_that_did_announces_its_misses() -> None:
    """Item 1.2: the announcement runs after the audit whether it matched, violated or failed."""
    told = {}
    context: Any = {"params": {}, "outlet_events": {grace_misses(STREAM): type("Event", (), told)()}}
    with pytest.raises(AirflowSkipException):
        GraceMissesOperator(task_id="a", stream=STREAM, audit="None", misses="None").execute(context)
    GraceMissesOperator(task_id="b", stream=STREAM, audit="1", misses="3").execute(context)
    assert context["outlet_events"][grace_misses(STREAM)].extra == {"audit": "1", "misses": 3}


def test_what_is_behind_an_error_is_shown_with_it_transient_ones_may_be_retried_and_others_pass() -> None:
    with pytest.raises(AirflowFailException) as failure, airflow_failures():
        raise Terminal("broken") from ZeroDivisionError()
    assert isinstance(failure.value.__cause__, Terminal)
    with pytest.raises(AirflowException) as passing, airflow_failures():
        raise Transient("busy")
    assert not isinstance(passing.value, AirflowFailException)
    with pytest.raises(ZeroDivisionError), airflow_failures():
        raise ZeroDivisionError
