"""The names by which DAGs, assets and pages find each other."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset

from recount.core.registry import Declarations

PAGES = "/recount"
"""Where the plugin's pages are, below Airflow's own address."""
CONTROL, TOPICS, MAINTENANCE = "stream_control", "topics", "maintenance"
"""The DAGs that there are once."""


def stream_page(stream: str) -> str:
    return f"{PAGES}/streams/{stream}"


def report_page(path: str) -> str:
    """The page of a file below the reports folder."""
    return f"{PAGES}/reports/{path}"


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
