"""The names by which DAGs, assets and pages find each other, and links from a task's page to the plugin's pages."""

import os
from datetime import timedelta
from typing import Any
from zlib import crc32

from airflow.sdk import Asset, BaseOperator, BaseOperatorLink, CronTriggerTimetable
from airflow.sdk.types import TaskInstanceKey

from recount.declare.registry import Declarations

PAGES = "/recount"
"""Where the plugin's pages are, below Airflow's own address."""
CONTROL, TOPICS, MAINTENANCE = "stream_control", "topics", "maintenance"
"""The DAGs that there are once."""


def stream_page(stream: str) -> str:
    return f"{PAGES}/streams/{stream}"


def stream_dag(stream: str) -> str:
    return f"stream__{stream}"


def audit_dag(stream: str) -> str:
    return f"audit__{stream}"


def night_dag(group: str) -> str:
    return f"night__{group}"


def backfill_dag(stream: str) -> str:
    return f"backfill__{stream}"


def findings_dag(stream: str) -> str:
    return f"findings__{stream}"


def grace_misses(stream: str) -> Asset:
    """An event of this asset says: an audit found results that late records would change. Its extra names the audit."""
    return Asset(name=f"grace-misses-{stream}", uri=f"recount://grace-misses/{stream}", group="recount")


def audited(stream: str) -> Asset:
    """An event of this asset says: an audit has judged an interval of the stream, and it is a match."""
    return Asset(name=f"audited-{stream}", uri=f"recount://audited/{stream}", group="recount")


def domain_of(declarations: Declarations, stream: str) -> str:
    """The owner and tag of a stream's DAGs, after the module that declares it: ``topologies.orders`` is ``orders``."""
    return declarations.modules[stream].rpartition(".")[2]


def labels(declarations: Declarations, stream: str, kind: str) -> dict[str, Any]:
    """How the DAG of ``kind`` of a stream is listed: beside the stream's others, and by kind, domain and group."""
    group = declarations.group_of(stream)
    tags = ["recount", kind, domain_of(declarations, stream), *([f"group:{group.name}"] if group else [])]
    return {"dag_display_name": f"{stream}: {kind}", "tags": tags}


class StreamTask(BaseOperator):
    def __init__(self, *, stream: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stream = stream


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
        return f"{PAGES}/reports/{path}" if path else f"{PAGES}/"


class DataDocsLink(BaseOperatorLink):
    name = "Data Docs"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return f"{PAGES}/data-docs"


FIRST_HOUR, MINUTES = 1, 120
"""The nights begin within so many minutes from this hour on, UTC."""


DEADLINE = timedelta(hours=6)
"""The notifiers are called for a run that has not ended so long after it was queued."""


def nightly(name: str, schedule: str | None = None) -> CronTriggerTimetable | None:
    """When ``schedule`` says; without one, every night at a time that ``name`` alone decides; None for "never".

    Without a start date the first run is the next night's: what was before the stream is nobody's audit. After nights
    that were missed, because Airflow was down or the DAG was paused, one run is due at once, for all of them.
    """
    if schedule == "never":
        return None
    minute = crc32(name.encode()) % MINUTES
    cron = schedule or f"{minute % 60} {FIRST_HOUR + minute // 60} * * *"
    # Airflow takes run_immediately=False for a tenth of the interval: a stream that is new in the morning would be
    # audited for the night before
    return CronTriggerTimetable(cron, timezone="UTC", interval=timedelta(days=1), run_immediately=timedelta(0))


def audit_pool() -> str:
    """The pool in which audits run: as many Spark applications at a time as it has slots."""
    return os.environ.get("RECOUNT_AUDIT_POOL") or "default_pool"
