"""Who is told when something is wrong: the notifiers that the setting ``RECOUNT_NOTIFIERS`` names, for all DAGs.

The setting is a place ``module:name``; there is an Airflow notifier (``airflow.sdk.BaseNotifier``), or several of them.
"""

from __future__ import annotations

import logging
import os
from asyncio import to_thread
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, cast

from airflow.sdk import BaseNotifier, Context

from recount.core.errors import Terminal

SETTING = "RECOUNT_NOTIFIERS"
Notifier = Callable[[Context], Any]

_LOG = logging.getLogger(__name__)


def notifiers(of_stream: str | None = None) -> list[Notifier]:
    """Those at the place ``of_stream``, or else of this installation; none where none is set.

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
    """Of an operator that asks a person: tells every notifier (of a stream) what waits for an answer."""

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
    return Terminal(
        f"{SETTING}, or RunSettings.notifiers, names no notifier",
        given=f"{place}: {why}",
        expected="module:name of an airflow.sdk.BaseNotifier, or of a list of them",
        remedy="put the module where Airflow finds its plugins and DAGs, and set alerts:notifiers, say",
    )
