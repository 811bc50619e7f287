"""The night of a group of streams, audited in one Spark application."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from recount.airflow.audits import certificate_of, interval_of, source_of
from recount.airflow.lineage import StreamLineage
from recount.airflow.links import audit_dag
from recount.airflow.notices import airflow_failures
from recount.airflow.submission import JobOperator, Submission
from recount.audit.audit_session import JAVA_FOR_FEW
from recount.runtime.errors import RecountError
from recount.runtime.settings import Settings
from recount.tables.places import Tables

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage


LEFT_OUT = "left out: "
"""Begins the key of the XCom that says why a stream was not audited."""
REFUSED = "refused: "
"""Begins the key of the XCom that says why a stream could not be judged, where no retry can help."""


class GroupAuditOperator(JobOperator):
    """Audits the run's data interval of all ``streams``, and leaves it to a task of each to say what was found.

    The XCom named like a stream is its audit, where there is a certificate; ``LEFT_OUT`` and the name is the key of the
    reason why it was not to be audited: its DAG ``audit__<stream>`` is paused, or it has never run. A try audits what
    those before, of this run, have not judged, or all again where they have judged everything. ``REFUSED`` and the name
    is the key of the reason why no retry can help a stream; where that holds for all that were not judged, there is no
    other try. ``java_options`` are for the driver's JVM: streams that share a driver have few records.
    """

    def __init__(self, *, group: str, streams: Sequence[str], java_options: str = JAVA_FOR_FEW, **kwargs: Any) -> None:
        super().__init__(java_options=java_options, **kwargs)
        self.group = group
        self.streams = list(streams)

    def execute(self, context: Context) -> None:
        with airflow_failures():
            settings = Settings.from_environment(os.environ)
            due = [stream for stream in self.streams if not self._is_left_out(context, settings, stream)]
            if not due:
                return
            audit, unjudged = _to_be_judged(settings, due, _name_of(context))
            submission = self.submission(
                settings,
                f"recount audit {self.group}",
                *(word for stream in unjudged for word in ("--stream", stream)),
                *("--audit", audit, "--expectations"),
                *interval_of(context),
                *source_of(context),
            )
            failure = _run(submission, settings, unjudged, audit)
        judged = [stream for stream in due if certificate_of(settings, stream, audit).exists()]
        for stream in judged:
            context["ti"].xcom_push(key=stream, value=audit)
        missing, refused = sorted(set(due) - set(judged)), submission.refused
        for stream in missing:
            if stream in refused:
                context["ti"].xcom_push(key=REFUSED + stream, value=refused[stream])
        hopeless = all(stream in refused for stream in missing)
        if missing and hopeless and not judged:
            raise AirflowFailException("; ".join(f"{stream} is not judged: {refused[stream]}" for stream in missing))
        may_retry = context["ti"].try_number <= context["ti"].max_tries and not hopeless
        if missing and (may_retry or not judged):
            names = ", ".join(missing)
            raise AirflowException(f"not judged: {names}; see the log above: {failure or 'it said nothing'}")

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        return StreamLineage.of(*self.streams).audited()

    def _is_left_out(self, context: Context, settings: Settings, stream: str) -> bool:
        reason = None
        if context["ti"].get_dag(audit_dag(stream)).is_paused:
            reason = f"{audit_dag(stream)} is paused"
        elif not _has_run(settings, stream):
            reason = "it has never run"
        if reason:
            self.log.info("%s is left out: %s", stream, reason)
            context["ti"].xcom_push(key=LEFT_OUT + stream, value=reason)
        return reason is not None


def _run(submission: Submission, settings: Settings, streams: Sequence[str], audit: str) -> str | None:
    try:
        return submission.run()
    except RecountError:
        # after a verdict on each, it is the expectations that were not tried: a task of their own says so
        if not all(certificate_of(settings, stream, audit).exists() for stream in streams):
            raise
        return None


def _to_be_judged(settings: Settings, streams: Sequence[str], name: str) -> tuple[str, list[str]]:
    """An audit's id that goes on from ``name``, and those of ``streams`` that have no certificate of it."""
    for number in count(1):
        audit = f"{name}-{number}"
        missing = [stream for stream in streams if not certificate_of(settings, stream, audit).exists()]
        if missing:
            return audit, missing
    raise AssertionError


def _name_of(context: Context) -> str:
    """Sorts by time like every audit's id, and is the same in every try of a run."""
    run = context["dag_run"]
    return f"{run.run_after:%Y%m%dT%H%M%SZ}-{sha256(f'{run.dag_id} {run.run_id}'.encode()).hexdigest()[:6]}"


def _has_run(settings: Settings, stream: str) -> bool:
    from deltalake import DeltaTable

    tables = Tables(settings.data)
    return any(map(DeltaTable.is_deltatable, (tables.state(stream), tables.declarations(stream))))
