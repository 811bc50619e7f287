"""Terminal fails at once, Transient is retried, anything else is not our business."""

from __future__ import annotations

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from recount.airflow.notices import airflow_failures
from recount.runtime.errors import InvalidDeclaration, Terminal, Transient


@pytest.mark.parametrize(
    "error", [Terminal("broken"), InvalidDeclaration("field", given=1, expected="2", remedy="correct it")]
)
def test_terminal_errors_fail_without_a_retry(error: Terminal) -> None:
    with pytest.raises(AirflowFailException) as failure, airflow_failures():
        raise error
    assert str(failure.value) == str(error)
    assert failure.value.__cause__ is None, "the same would be shown twice"


def test_what_is_behind_an_error_is_shown_with_it() -> None:
    with pytest.raises(AirflowFailException) as failure, airflow_failures():
        raise Terminal("broken") from ZeroDivisionError()
    assert isinstance(failure.value.__cause__, Terminal)


def test_transient_errors_may_be_retried() -> None:
    with pytest.raises(AirflowException) as failure, airflow_failures():
        raise Transient("busy")
    assert not isinstance(failure.value, AirflowFailException)


def test_other_errors_pass_unchanged() -> None:
    with pytest.raises(ZeroDivisionError), airflow_failures():
        raise ZeroDivisionError
