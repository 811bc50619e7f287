"""The one place where our errors become Airflow's: Terminal fails the task at once, Transient is retried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from recount.core.errors import Terminal, Transient


@contextmanager
def airflow_failures() -> Iterator[None]:
    """Everything a task does goes in here."""
    try:
        yield
    except Terminal as error:
        raise AirflowFailException(str(error)) from error
    except Transient as error:
        raise AirflowException(str(error)) from error
