"""Buttons on a task's page that lead to the pages of the plugin."""

from __future__ import annotations

from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.types import TaskInstanceKey

from recount.airflow.naming import PAGES, report_page, stream_page


class StreamLink(BaseOperatorLink):
    """The status of the stream that the operator's ``stream`` names."""

    name = "Stream status"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return stream_page(operator.stream)  # type: ignore[attr-defined]


class CertificateLink(BaseOperatorLink):
    """The certificate whose path below the reports folder the operator keeps in ``certificate``."""

    name = "Certificate"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        path = getattr(operator, "certificate", "")
        return report_page(path) if path else f"{PAGES}/"


class DataDocsLink(BaseOperatorLink):
    """The Data Docs of all expectations."""

    name = "Data Docs"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return f"{PAGES}/data-docs"
