"""A night beyond its declared limits is red in the grid, though its audit matched."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from recount.airflow.audits import LimitsOperator


def limits(warnings: str) -> LimitsOperator:
    return LimitsOperator(task_id="limits", stream="revenue", warnings=warnings)


def night(**params: Any) -> Any:
    return {"params": params}


def test_a_night_within_its_limits_is_green() -> None:
    limits("").execute(night())


def test_a_night_beyond_a_limit_fails_and_says_by_how_much() -> None:
    with pytest.raises(AirflowFailException, match="200,000 dead letters"):
        limits("200,000 dead letters in 400,000 records").execute(night(announce=True))


def test_the_audit_after_a_repair_does_not_say_it_again() -> None:
    with pytest.raises(AirflowSkipException):
        limits("200,000 dead letters in 400,000 records").execute(night(announce=False))


def test_an_audit_that_could_not_judge_has_no_limits_to_pass() -> None:
    with pytest.raises(AirflowSkipException):
        limits("None").execute(night())
