"""Who may do what in Airflow: the roles of Recount, as permissions of the auth manager FAB (docs/security.md).

FAB allows an action on a DAG where the role may edit that DAG, ``DAG:<id>``, and may act on such things at all, as on
"DAG Runs". So each role that runs anything has the actions, and the DAGs of some kinds to which they are limited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from recount.airflow.naming import (
    CONTROL,
    MAINTENANCE,
    TOPICS,
    audit_dag,
    backfill_dag,
    findings_dag,
    night_dag,
    stream_dag,
)
from recount.core.registry import Declarations, is_audited

if TYPE_CHECKING:
    from recount.airflow.dags.making import Kind

Permission = tuple[str, str]
"""An action of FAB and the resource that it is about: ``("can_read", "DAG Runs")``."""
READ, EDIT, CREATE, MENU = "can_read", "can_edit", "can_create", "menu_access"
_SEEN = (
    *("DAGs", "DAG Code", "DAG Dependencies", "DAG Runs", "DAG Versions", "DAG Warnings"),
    *("Task Instances", "Task Logs", "XComs", "HITL Detail", "Assets", "Asset Aliases"),
    *("Cluster Activity", "ImportError", "Jobs", "Pools", "Plugins", "Website"),
)
_IN_THE_MENU = ("Browse", "DAGs", "Assets", "HITL Detail", "Docs", "Documentation")
_OWN = ("My Password", "My Profile")
_SEES: frozenset[Permission] = frozenset(
    {*product([READ], _SEEN), *product([MENU], _IN_THE_MENU), *product([READ, EDIT], _OWN)}
)
_RUNS: frozenset[Permission] = frozenset({(CREATE, "DAG Runs"), (EDIT, "DAG Runs"), (EDIT, "Task Instances")})
_APPROVES: frozenset[Permission] = frozenset({(EDIT, "HITL Detail"), (READ, "Audit Logs"), (MENU, "Audit Logs")})


@dataclass(frozen=True, kw_only=True)
class AirflowRole:
    """A role: ``does`` says what it is for, ``runs`` are the kinds of DAGs that it may start, pause, mark and clear.

    ``more`` is allowed beside what everybody with a role sees.
    """

    name: str
    does: str
    runs: Sequence[Kind] = ()
    more: frozenset[Permission] = frozenset()

    def permissions(self, declarations: Declarations) -> frozenset[Permission]:
        """All that FAB must allow for the declared streams, and nothing else."""
        dags = dag_ids(declarations)
        mine = {(EDIT, f"DAG:{dag}") for kind in self.runs for dag in dags[kind]}
        return _SEES | self.more | mine


ROLES = (
    AirflowRole(name="recount-viewer", does="sees the DAGs and the pages"),
    AirflowRole(
        name="recount-operator",
        does="also starts and stops streams, audits, topics and maintenance",
        runs=("streams", "audits", "nights", "topics", "maintenance"),
        more=_RUNS,
    ),
    AirflowRole(
        name="recount-auditor",
        does="also starts audits and backfills, approves backfills, accepts findings",
        runs=("audits", "nights", "backfills", "findings"),
        more=_RUNS | _APPROVES,
    ),
)


def dag_ids(declarations: Declarations) -> Mapping[Kind, Sequence[str]]:
    """The ids of the DAGs of each kind."""
    audited = declarations.audited
    groups = declarations.groups.values()
    return {
        "streams": [CONTROL, *map(stream_dag, declarations.streams)],
        "audits": [*map(audit_dag, audited)],
        "nights": [night_dag(one.name) for one in groups if any(map(is_audited, one.streams))],
        "backfills": [*map(backfill_dag, audited)],
        "findings": [*map(findings_dag, audited)],
        "topics": [TOPICS],
        "maintenance": [MAINTENANCE],
    }
