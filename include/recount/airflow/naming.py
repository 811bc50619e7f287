"""The names by which DAGs, assets and pages find each other."""

from __future__ import annotations

from airflow.sdk import Asset

PAGES = "/recount"
"""Where the plugin's pages are, below Airflow's own address."""


def stream_page(stream: str) -> str:
    return f"{PAGES}/streams/{stream}"


def report_page(path: str) -> str:
    """The page of a file below the reports folder."""
    return f"{PAGES}/reports/{path}"


def stream_dag(stream: str) -> str:
    return f"stream__{stream}"


def audit_dag(stream: str) -> str:
    return f"audit__{stream}"


def backfill_dag(stream: str) -> str:
    return f"backfill__{stream}"


def findings_dag(stream: str) -> str:
    return f"findings__{stream}"


def grace_misses(stream: str) -> Asset:
    """An event of this asset says: an audit found results that late records would change. Its extra names the audit."""
    return Asset(name=f"grace-misses-{stream}", uri=f"recount://grace-misses/{stream}", group="recount")
