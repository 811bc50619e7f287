"""What an audit found about one stream, as the outcome of a task: red for a violation, an asset event for a match."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from recount.airflow.lineage import StreamLineage
from recount.airflow.links import CertificateLink, DataDocsLink
from recount.airflow.naming import audited, findings_dag
from recount.audit.told_findings import violation_in_words
from recount.core.certificate import Certificate
from recount.core.settings import Settings

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage


def certificate_of(settings: Settings, stream: str, audit: str) -> Path:
    """Where the certificate of ``audit`` lies once it is issued."""
    return Path(settings.reports) / "certificates" / stream / f"{audit}.json"


class JudgedStream(BaseOperator):
    """A task that knows the certificate of its stream.

    XComs ``audit`` (its id), ``outcome``, ``differences`` and ``grace_misses`` (counts) and ``warnings`` (what is
    beyond a declared limit) are there for later tasks, also after a violation.
    """

    operator_extra_links = (CertificateLink(), DataDocsLink())

    def __init__(self, *, stream: str, **kwargs: Any) -> None:
        super().__init__(outlets=[audited(stream)], **kwargs)
        self.stream = stream
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
    """What ``audit``, which another task has run, found about one stream.

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
