"""Notifiers for failures of all DAGs, and the one place where our errors become Airflow's.

The setting ``RECOUNT_NOTIFIERS`` is a place ``module:name``; there is an Airflow notifier
(``airflow.sdk.BaseNotifier``), or several of them. ``Terminal`` fails the task at once, ``Transient`` is retried.
"""

import logging
import os
from asyncio import to_thread
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

from airflow.sdk import BaseNotifier, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from recount.runtime.errors import RecountError, Terminal, Transient, says_all

SETTING = "RECOUNT_NOTIFIERS"
Notifier = Callable[[Context], Any]
_LOG = logging.getLogger(__name__)


def notifiers(of_stream: str | None = None) -> list[Notifier]:
    """Return the notifiers at the place ``of_stream``, or else of this installation; none where none is set.

    They are for ``on_failure_callback``. Raises ``Terminal`` when the place names nothing that can be called.
    """
    place = of_stream or os.environ.get(SETTING, "")
    if not place:
        return []
    module, _, name = place.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise _no_notifiers(place, str(error)) from error
    listed = list(found) if isinstance(found, Sequence) else [found]
    if not all(map(callable, listed)):
        raise _no_notifiers(place, f"it is {found!r}")
    return cast("list[Notifier]", listed)


def notify(context: Context, reason: str, of_stream: str | None = None) -> None:
    """Tell every notifier (of the place ``of_stream``) ``reason``.

    Its templates find it as ``exception``, as with a task that failed. A notifier that fails is logged: what it was to
    tell goes on without it.
    """
    told = cast("Context", {**context, "exception": reason})
    for notifier in notifiers(of_stream):
        try:
            notifier(told)
        except Exception:
            _LOG.exception("a notifier failed to tell: %s", reason)


class PersonAwaited(BaseNotifier):
    """Notifier of an operator that asks a person: calls every notifier (of a stream) with what waits for an answer."""

    def __init__(self, of_stream: str | None = None) -> None:
        super().__init__()
        self.of_stream = of_stream

    def notify(self, context: Context) -> None:
        asked: Any = context["task"]
        notify(context, f"{asked.subject} It waits for an answer under Required Actions. {asked.body}", self.of_stream)


async def tell_of_deadline(context: Context, of_stream: str | None = None, **_: object) -> None:
    """Tell every notifier (of a stream) that a run has not ended by its deadline.

    Runs in the triggerer, so that it needs no slot that the run may be waiting for. ``context`` holds what Airflow
    gives: ``dag_run``, as a dictionary, and ``deadline``.
    """
    run = cast("dict[str, Any]", context["dag_run"])
    reason = f"{run['dag_id']}: the run {run['dag_run_id']} has not ended by its deadline"
    await to_thread(notify, context, reason, of_stream)


def _no_notifiers(place: str, why: str) -> Terminal:
    return Terminal.of("no-such-notifiers", given=f"{place}: {why}", setting=SETTING)


@contextmanager
def airflow_failures() -> Iterator[None]:
    try:
        yield
    except Terminal as error:
        raise AirflowFailException(str(error)) from _behind(error)
    except Transient as error:
        raise AirflowException(str(error)) from _behind(error)


def _behind(error: RecountError) -> RecountError | None:
    """Return the error that Airflow shows behind its own; None where the message says all: it would be shown twice."""
    return None if says_all(error) else error
