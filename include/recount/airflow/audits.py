"""An audit as tasks: judge, check the verdicts with Great Expectations, announce what late records would change.

A verdict is the outcome of a task: red for a violation, an asset event for a match. The tasks that follow it are the
same in the DAG of a stream and in the night of a group.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import BaseOperator, Context, Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from recount.airflow.lineage import StreamLineage
from recount.airflow.links import CertificateLink, DataDocsLink, StreamTask, audited, findings_dag, grace_misses
from recount.airflow.notices import airflow_failures
from recount.airflow.submission import JobOperator, with_security
from recount.audit.audit_session import COLLECTOR
from recount.audit.certificate.certificate_files import EXIT_DISAGREED, EXIT_FAILED, outcome_of
from recount.audit.certificate.summary import violation_in_words
from recount.certificate.document import Certificate
from recount.runtime.errors import RecountError
from recount.runtime.settings import Settings

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

NOW = "now"
"""The value of the parameter ``through`` that audits all there is at this moment."""


def certificate_of(settings: Settings, stream: str, audit: str) -> Path:
    """Return the file of the certificate of ``audit``, which is there once it is issued."""
    return Path(settings.reports) / "certificates" / stream / f"{audit}.json"


class JudgedStream(StreamTask):
    """A task that knows the certificate of its stream.

    XComs ``audit`` (its id), ``outcome``, ``differences`` and ``grace_misses`` (counts) and ``warnings`` (what is
    beyond a declared limit) are there for later tasks, also after a violation.
    """

    operator_extra_links = (CertificateLink(), DataDocsLink())

    def __init__(self, *, stream: str, **kwargs: Any) -> None:
        super().__init__(stream=stream, outlets=[audited(stream)], **kwargs)
        self.certificate = ""
        self.match: bool | None = None

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        return StreamLineage.of(self.stream).audited()

    def get_openlineage_facets_on_complete(self, _: object) -> OperatorLineage[Any, Any]:
        return StreamLineage.of(self.stream).audited(self.certificate, self.match)

    def tell(self, context: Context, issued: Path) -> None:
        """Push what ``issued`` says, and emit ``recount://audited/<stream>``; fails when it is a violation."""
        certificate: Certificate = json.loads(issued.read_text(encoding="utf-8"))
        audit = certificate["audit"]
        self.certificate = f"certificates/{self.stream}/{audit}.html"
        self.match = certificate["outcome"] == "match"
        pushed = {
            "audit": audit,
            "outcome": certificate["outcome"],
            "differences": certificate["differences_found"],
            "grace_misses": certificate["grace_misses_found"],
            "warnings": "; ".join(certificate.get("warnings", [])),
        }
        for key, value in pushed.items():
            context["ti"].xcom_push(key=key, value=value)
        if certificate["outcome"] == "violation":
            raise AirflowFailException(
                f"{violation_in_words(certificate)}\n"
                "next: mend the place, and the next audit calls the finding repaired; or take it as it is, "
                f"with the DAG {findings_dag(self.stream)} or recount findings accept"
            )
        context["outlet_events"][audited(self.stream)].extra = audited_interval(certificate)


class VerdictOperator(JudgedStream):
    """Outcome for one stream of ``audit``, which another task has run.

    ``audit``, ``left_out`` (why the stream was not to be audited) and ``refused`` (why it could not be) are templated;
    empty or None: there is none.
    """

    template_fields = ("audit", "left_out", "refused")

    def __init__(self, *, audit: str, left_out: str, refused: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.audit = audit
        self.left_out = left_out
        self.refused = refused

    def execute(self, context: Context) -> None:
        if self.left_out not in ("", "None"):
            raise AirflowSkipException(f"{self.stream} is left out: {self.left_out}")
        if self.audit in ("", "None"):
            why = "see the log of the audit" if self.refused in ("", "None") else self.refused
            raise AirflowFailException(f"{self.stream} could not be judged: {why}")
        self.tell(context, certificate_of(Settings.from_environment(os.environ), self.stream, self.audit))


def audited_interval(certificate: Certificate) -> dict[str, Any]:
    """The extra of an event of ``recount://audited/<stream>``: what was judged, and the certificate that says so.

    ``through_ms`` is the recorded time of the last batch that was judged; all before it are covered, by this or by an
    earlier audit. ``frontier_ms`` is how far event time had come then.
    """
    cut = certificate["cut"]
    return {
        "audit": certificate["audit"],
        "outcome": certificate["outcome"],
        "interval_ms": certificate["interval_ms"],
        "through_ms": cut["batch_timestamp_ms"],
        "frontier_ms": cut["frontier_ms"],
        "grace_misses": certificate["grace_misses_found"],
        "certificate": f"certificates/{certificate['stream']}/{certificate['audit']}.json",
        "sha256": certificate["sha256"],
    }


class AuditOperator(JudgedStream, JobOperator):
    """Audits the run's data interval and fails, without a retry, when there is a violation.

    Parameters of the run: ``through`` (a time in ISO 8601, ``now``, or empty for the interval's end; a run by hand
    without it means now) and ``source``.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(java_options=COLLECTOR, **kwargs)

    def execute(self, context: Context) -> None:
        audit = _audit_id(context["ti"].id)
        with airflow_failures():
            settings = Settings.from_environment(os.environ)
            submission = self.submission(
                settings,
                f"recount audit {self.stream}",
                *("--stream", self.stream, "--audit", audit, "--expectations"),
                *interval_of(context),
                *source_of(context),
            )
            issued, failure = certificate_of(settings, self.stream, audit), None
            try:
                failure = submission.run()
            except RecountError:
                # the expectations may not have been tried, after the verdict
                if not issued.exists():
                    raise
            if not issued.exists():
                raise AirflowException(f"the audit could not judge, see the log above: {failure or 'it said nothing'}")
        self.tell(context, issued)


class LimitsOperator(StreamTask):
    """Fails when the audit warned: a match says that nothing is lost on the way, not that much arrived whole.

    A task of its own, so that the audit's verdict stays what it is and the grid shows which of both went wrong; its
    failure reaches the notifiers as any other. ``warnings`` is templated. Skipped in the audit after a repair, which
    would repeat what the night's has said.
    """

    template_fields = ("warnings",)
    operator_extra_links = (CertificateLink(),)

    def __init__(self, *, warnings: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.warnings = warnings
        self.certificate = ""

    def execute(self, context: Context) -> None:
        if self.warnings == "None":
            raise AirflowSkipException("the audit could not judge")
        if self.warnings and not _params(context).get("announce", True):
            raise AirflowSkipException(self.warnings)
        if self.warnings:
            raise AirflowFailException(f"{self.stream}: beyond the declared limits: {self.warnings}")


class ProcessOperator(BaseOperator):
    """Runs a module of Recount in a process of its own: an import of what it needs takes seconds."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._process: subprocess.Popen[str] | None = None

    def on_kill(self) -> None:
        if self._process:
            self._process.terminate()

    def run_module(self, module: str, *arguments: str) -> int:
        """Run it to its end in the role of an audit, with its lines in the task's log; returns its exit code."""
        command = [sys.executable, "-m", module, *arguments]
        _, of_kafka = with_security(Settings.from_environment(os.environ), "audit")
        with subprocess.Popen(
            command, env={**os.environ, **of_kafka}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            self._process = process
            for line in process.stdout or ():
                self.log.info(line.rstrip())
        return process.returncode


class ExpectationsOperator(ProcessOperator):
    """Says what the expectations came to that the audit's application put to what it had looked at.

    Where it did not come to that, or the task is tried again, they are put to it in a process of their own: nothing
    that imports Great Expectations is imported here. Fails where an expectation does, and, with other words, where the
    expectations and the audit disagree. ``audit`` is templated.
    """

    template_fields = ("audit",)
    operator_extra_links = (DataDocsLink(),)

    def __init__(self, *, stream: str, audit: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stream = stream
        self.audit = audit

    def execute(self, context: Context) -> None:
        if self.audit in ("", "None"):
            raise AirflowSkipException("the audit could not judge, so there is nothing to look at")
        told = outcome_of(Settings.from_environment(os.environ).reports, self.stream, self.audit)
        exit_code = self._read(told) if told.exists() and context["ti"].try_number == 1 else self._run()
        if exit_code == EXIT_DISAGREED:
            raise AirflowFailException("Great Expectations and the audit disagree: see the log above for what to do")
        if exit_code == EXIT_FAILED:
            raise AirflowFailException("an expectation failed: see the log above and the page Expectations")
        if exit_code:
            raise AirflowFailException(f"the expectations could not be tried: exit code {exit_code}, see the log above")

    def _read(self, told: Path) -> int:
        outcome = json.loads(told.read_text(encoding="utf-8"))
        for line in outcome["lines"]:
            self.log.info(line)
        return int(outcome["exit_code"])

    def _run(self) -> int:
        return self.run_module("recount.audit.expectations.validation", "--stream", self.stream, "--audit", self.audit)


class GraceMissesOperator(StreamTask):
    """Emits the asset event that starts the backfill, also after a violation; skipped when there is no grace miss.

    The event's extra names the audit and the number of results. The parameter ``announce`` false keeps it silent.
    """

    template_fields = ("audit", "misses")

    def __init__(self, *, stream: str, audit: str, misses: str, **kwargs: Any) -> None:
        super().__init__(stream=stream, outlets=[grace_misses(stream)], **kwargs)
        self.audit = audit
        self.misses = misses

    def execute(self, context: Context) -> None:
        if self.audit in ("", "None"):
            raise AirflowSkipException("the audit could not judge, so nothing is known to be missed")
        if not int(self.misses) or not _params(context).get("announce", True):
            raise AirflowSkipException("nothing to announce")
        context["outlet_events"][grace_misses(self.stream)].extra = {"audit": self.audit, "misses": int(self.misses)}


class PanelsOperator(ProcessOperator):
    """Writes what the pages of ``streams`` show of a longer grace and of other engines.

    Skipped in the audit after a repair, which judges no new batch: what the night's has led to stays.
    """

    def __init__(self, *, streams: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.streams = list(streams)

    def execute(self, context: Context) -> None:
        if not _params(context).get("announce", True):
            raise AirflowSkipException("the panels of the night stay")
        exit_code = self.run_module("recount.advise.panels", *self.streams)
        if exit_code:
            raise AirflowException(f"the panels could not be written: exit code {exit_code}, see the log above")


def _audit_id(task_instance: object) -> str:
    """Sorts by time like every audit's id; its tail tells the task instance."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{str(task_instance)[-6:]}"


def interval_of(context: Context) -> list[str]:
    """The job's options for the data interval; no end means all there is."""
    through = str(_params(context).get("through") or "")
    run = context["dag_run"]
    by_hand = run.run_type == "manual"
    if through == NOW or (by_hand and not through):
        return []
    end = through or _iso(run.data_interval_end)
    start = [] if by_hand or run.data_interval_start is None else ["--start", _iso(run.data_interval_start)]
    return [*start, "--end", end]


def source_of(context: Context) -> list[str]:
    return ["--source", str(_params(context).get("source", "auto"))]


def _params(context: Context) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", context["params"])


def _iso(moment: datetime | None) -> str:
    return moment.isoformat() if moment else ""


def audit_params() -> dict[str, Param]:
    return {
        "through": Param("", type="string", description="Judge what was recorded before: a time, or now"),
        "source": Param("auto", type="string", enum=["auto", "kafka", "archive"], description="Where the log is read"),
        "announce": Param(True, type="boolean", description="Let grace misses start the backfill"),
    }


def follow(verdict: JudgedStream) -> None:
    """Put expectations, limits and grace misses after ``verdict``, in the DAG and task group at hand.

    What late records would change is announced after a violation too; ``proved`` makes the run fail all the same,
    and is skipped where the stream was left out.
    """
    stream = verdict.stream
    found = f"{{{{ ti.xcom_pull(task_ids='{verdict.task_id}', key='%s') }}}}"
    expectations = ExpectationsOperator(
        task_id="expectations", stream=stream, audit=found % "audit", trigger_rule="all_done"
    )
    announce = GraceMissesOperator(
        task_id="grace_misses",
        stream=stream,
        audit=found % "audit",
        misses=found % "grace_misses",
        trigger_rule="all_done",
    )
    limits = LimitsOperator(task_id="limits", stream=stream, warnings=found % "warnings", trigger_rule="all_done")
    proved = EmptyOperator(task_id="proved", trigger_rule="none_failed_min_one_success")
    verdict >> expectations >> announce >> proved
    verdict >> [announce, limits, proved]
    [expectations, limits] >> proved
