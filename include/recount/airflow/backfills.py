"""A backfill as tasks: what would change, and then the repair."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException

from recount.airflow.lineage import StreamLineage
from recount.airflow.notices import airflow_failures
from recount.airflow.submission import JobOperator
from recount.audit.audit_session import JAVA_FOR_FEW
from recount.audit.certificate.certificate_files import summary_file
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
