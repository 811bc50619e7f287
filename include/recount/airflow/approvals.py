"""Tasks around an approval: a backfill shows what would change and repairs it, a person accepts findings.

What is open is listed first; who accepted what, and why, is written down.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from recount.airflow.lineage import StreamLineage
from recount.airflow.links import StreamTask
from recount.airflow.notices import airflow_failures
from recount.airflow.submission import JobOperator
from recount.audit.audit_session import JAVA_FOR_FEW
from recount.audit.certificate.certificate_files import summary_file
from recount.audit.certificate.summary import LONGEST, place_of, printable, sides_in_words
from recount.certificate.finding import Difference
from recount.runtime.settings import Settings

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage


class BackfillOperator(JobOperator):
    """Corrects all open grace misses, or only those that ``audit`` (templated) found; with ``only_show`` only says how.

    Idempotent: each miss is corrected once, however often the task runs. A dry run pushes the XComs ``changes``
    (results that would change), ``unpublished`` (backfills of repairs that were killed), ``as_of`` (the newest audit).
    """

    template_fields = ("audit",)

    def __init__(self, *, stream: str, audit: str, only_show: bool = False, **kwargs: Any) -> None:
        super().__init__(java_options=JAVA_FOR_FEW, **kwargs)
        self.stream = stream
        self.audit = audit
        self.only_show = only_show

    def execute(self, context: Context) -> None:
        with airflow_failures():
            settings = Settings.from_environment(os.environ)
            failure = self.submission(settings, f"recount backfill {self.stream}", *self._arguments()).run()
        if failure:
            raise AirflowException(f"the backfill failed, see the log above: {failure}")
        if self.only_show:
            summary = json.loads(summary_file(settings, self.stream).read_text(encoding="utf-8"))
            context["ti"].xcom_push(key="changes", value=summary["changes"])
            context["ti"].xcom_push(key="unpublished", value=summary["unpublished"])
            context["ti"].xcom_push(key="as_of", value=summary["audit"])

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        return StreamLineage.of(self.stream).corrected(only_shown=self.only_show)

    def _arguments(self) -> list[str]:
        narrowed = ["--audit", self.audit] if self.audit else []
        return ["--stream", self.stream, *narrowed, *(["--dry-run"] if self.only_show else [])]


class OpenFindingsOperator(StreamTask):
    """Pushes the XComs ``findings`` (ids) and ``told`` (Markdown); skipped when nothing is open.

    The parameter ``findings`` names ids, each of which must be open; without it all open ones are asked about.
    """

    def execute(self, context: Context) -> None:
        from recount.audit.findings.finding_register import read_register

        with airflow_failures():
            known = read_register(Settings.from_environment(os.environ), self.stream)
        found = {one.id: one for one in known.values() if one.state == "open"}
        wanted = [one.strip() for one in str(context["params"]["findings"]).split(",") if one.strip()] or list(found)
        strange = [one for one in wanted if one not in found]
        if strange:
            raise AirflowFailException(f"not open: {', '.join(strange)}; open are: {', '.join(found) or 'none'}")
        if not wanted:
            raise AirflowSkipException("no finding is open")
        told = [_told(one, found[one].difference) for one in wanted]
        self.log.info("open findings of %s:\n%s", self.stream, "\n".join(told))
        context["ti"].xcom_push(key="findings", value=wanted)
        context["ti"].xcom_push(key="told", value="\n".join(told))


class AcceptanceOperator(ApprovalOperator):
    """Asks a person, who must give a reason, the parameter ``reason`` of the task, to approve."""

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        approved = self.APPROVE in (event.get("chosen_options") or ())
        if approved and not str((event.get("params_input") or {}).get("reason") or "").strip():
            raise AirflowFailException("approved without a reason: clear this task and approve it with one")
        return super().execute_complete(context, event)


class AcceptOperator(StreamTask):
    """Accepts what the task ``open_findings`` listed, in the name of the user who answered the task ``approval``."""

    def execute(self, context: Context) -> None:
        from recount.audit.findings.acceptances import accept_all

        listed = context["ti"].xcom_pull(task_ids="open_findings", key="findings")
        answer = context["ti"].xcom_pull(task_ids="approval")
        user = answer["responded_by_user"] or {}
        with airflow_failures():
            accepted = accept_all(
                Settings.from_environment(os.environ),
                self.stream,
                list(listed),
                by=str(user.get("name") or user.get("id") or ""),
                reason=str(answer["params_input"].get("reason") or ""),
            )
        for one in accepted:
            self.log.info("finding %s accepted: %s", one.id, one.difference)


def _told(name: str, one: Difference) -> str:
    place = _code(f"{one.place}{place_of(asdict(one))}")
    expected, actual = map(_code, sides_in_words(one.expected, one.actual))
    return f"- `{name}` **{one.verdict}** {one.kind}, {place}: expected {expected}, actual {actual}; {one.cause}"


def _code(text: str | None) -> str:
    """``text`` as code in one line: what a writer to a topic has chosen adds no Markdown, and so no line of its own."""
    return f"`{printable(text)[:LONGEST].replace('`', chr(39))}`"
