"""Item 1.1: who approves in Airflow is who accepted, and a reason is given, or nothing is accepted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from tests.unit.audit.test_findings_register import FAULT, FAULT_ID, LOST, LOST_ID, STREAM, Nights

from recount.airflow.acceptance import AcceptanceOperator, AcceptOperator, OpenFindingsOperator
from recount.airflow.audits import GraceMissesOperator
from recount.airflow.links import grace_misses
from recount.audit.findings.finding_register import read_register


class Messages:
    """What tasks of one run tell each other."""

    def __init__(self, **answers: Any) -> None:
        self.pushed: dict[str, Any] = dict(answers)

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, task_ids: str, key: str = "") -> Any:
        return self.pushed[key or task_ids]


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    nights = Nights(tmp_path)
    for name, value in nights.settings.to_environment().items():
        monkeypatch.setenv(name, value)
    return nights


def listed(findings: str = "") -> Messages:
    messages = Messages()
    context: Any = {"ti": messages, "params": {"findings": findings}}
    OpenFindingsOperator(task_id="open_findings", stream=STREAM).execute(context)
    return messages


def answered(by: str, reason: str) -> dict[str, Any]:
    user = {"id": "7", "name": by}
    return {"chosen_options": ["Approve"], "params_input": {"reason": reason}, "responded_by_user": user}


def test_what_was_listed_is_accepted_in_the_name_of_the_user_who_approved(nights: Nights) -> None:
    nights.audit("1", [LOST, FAULT], "lost")
    messages = listed(LOST_ID)
    assert LOST_ID in messages.pushed["told"]
    messages.pushed["approval"] = answered("ada", "deleted on request")
    context: Any = {"ti": messages}
    AcceptOperator(task_id="accept", stream=STREAM).execute(context)
    known = read_register(nights.settings, STREAM)
    assert {one.id: one.state for one in known.values()} == {LOST_ID: "accepted", FAULT_ID: "open"}
    taken = known[LOST_ID].acceptance
    assert taken is not None
    assert (taken.by, taken.reason) == ("ada", "deleted on request")


def test_all_open_findings_are_listed_unless_some_are_named_and_a_closed_one_is_refused(nights: Nights) -> None:
    with pytest.raises(AirflowSkipException):
        listed()
    nights.audit("1", [LOST, FAULT], "lost")
    assert set(listed().pushed["findings"]) == {LOST_ID, FAULT_ID}
    nights.audit("2", [], "match")
    with pytest.raises(AirflowFailException):
        listed(LOST_ID)


def test_a_key_adds_no_markdown_to_what_a_person_is_asked(nights: Nights) -> None:
    nights.audit("1", [replace(LOST, key="`](x) ![](http://evil)\n- `id` **repaired**" + "k" * 900_000)], "lost")
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
