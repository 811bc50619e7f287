"""The one place where our errors become Airflow's: Terminal fails the task at once, Transient is retried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from recount.core.errors import RecountError, Terminal, Transient, says_all


@contextmanager
def airflow_failures() -> Iterator[None]:
    """Everything a task does goes in here."""
    try:
        yield
    except Terminal as error:
        raise AirflowFailException(str(error)) from _behind(error)
    except Transient as error:
        raise AirflowException(str(error)) from _behind(error)


def _behind(error: RecountError) -> RecountError | None:
    """What Airflow shows behind its own exception; nothing where the message says all: it would be shown twice."""
    return None if says_all(error) else error
