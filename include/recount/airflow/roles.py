"""``recount roles``: the roles of Recount in Airflow, as permissions of the auth manager FAB (docs/security.md).

FAB allows an action on a DAG where the role may edit that DAG, ``DAG:<id>``, and may act on such things at all, as on
"DAG Runs". So each role that runs anything has the actions, and the DAGs of some kinds to which they are limited.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from recount.airflow.links import (
    CONTROL,
    MAINTENANCE,
    TOPICS,
    audit_dag,
    backfill_dag,
    findings_dag,
    night_dag,
    stream_dag,
)
from recount.declare.registry import DEFAULT_MODULES, Declarations, declared, is_audited
from recount.runtime.console import print_whole
from recount.runtime.errors import Terminal, Transient
from recount.runtime.installation import require_extra

if TYPE_CHECKING:
    from airflow.providers.fab.auth_manager.models import Role
    from airflow.providers.fab.auth_manager.security_manager.override import FabAirflowSecurityManagerOverride

    from recount.airflow.dag_factory.dag_plan import Kind


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
FAB = "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"
"""The auth manager that has roles, as ``AIRFLOW__CORE__AUTH_MANAGER`` names it."""
Wanted = Mapping[str, frozenset[Permission]]


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


def roles(
    apply_roles: Annotated[
        bool, typer.Option("--apply", help="Make the roles in Airflow, with these permissions and no others.")
    ] = False,
) -> None:
    """Print the permissions of each role for the declared streams; with --apply, give the roles exactly these."""
    declarations = declared(os.environ.get("RECOUNT_TOPOLOGIES") or DEFAULT_MODULES)
    wanted = {role.name: role.permissions(declarations) for role in ROLES}
    if not apply_roles:
        print_whole(table_of(wanted))
        return
    require_fab()
    with _security_manager() as manager:
        for name, permissions in wanted.items():
            print(f"{name}: {bring_in_step(manager, name, permissions)}")


def table_of(wanted: Wanted) -> Table:
    table = Table("resource", *wanted)
    for resource in sorted({resource for permissions in wanted.values() for _, resource in permissions}):
        table.add_row(resource, *(_actions(permissions, resource) for permissions in wanted.values()))
    return table


def _actions(permissions: Iterable[Permission], resource: str) -> str:
    return " ".join(sorted(action.removeprefix("can_") for action, about in permissions if about == resource))


def require_fab() -> None:
    """Raise ``Terminal`` where Airflow has another auth manager, ``MissingExtra`` where FAB is not installed."""
    from airflow.configuration import conf
    from airflow.exceptions import AirflowConfigException

    configured = conf.get("core", "auth_manager")
    if configured == FAB:
        require_extra("fab")
    from airflow.api_fastapi.app import get_auth_manager_cls

    try:
        classes = {f"{one.__module__}.{one.__qualname__}" for one in get_auth_manager_cls().__mro__}
    except AirflowConfigException:
        classes = set()
    if FAB not in classes:
        raise Terminal.of("auth-manager-without-roles", given=configured, expected=FAB, fab=FAB)


def bring_in_step(manager: FabAirflowSecurityManagerOverride, name: str, wanted: frozenset[Permission]) -> str:
    """Let the role ``name`` have the permissions ``wanted`` and no others; says what was changed.

    Raises ``Transient`` where the database has not taken them all: FAB logs that, and goes on.
    """
    is_new = manager.find_role(name) is None
    role = manager.add_role(name)
    before = _permissions(role)
    for action, resource in sorted(wanted - before):
        manager.add_permission_to_role(role, manager.create_permission(action, resource))
    for one in [one for one in role.permissions if (one.action.name, one.resource.name) not in wanted]:
        manager.remove_permission_from_role(role, one)
    manager.session.refresh(role)
    if (after := _permissions(role)) != wanted:
        raise Transient.of(
            "role-not-in-step",
            given=f"{len(wanted - after)} permissions missing, {len(after - wanted)} too many",
            name=name,
        )
    if is_new:
        return f"made, {len(wanted)} permissions"
    return "unchanged" if before == wanted else f"{len(wanted - before)} added, {len(before - wanted)} removed"


def _permissions(role: Role) -> frozenset[Permission]:
    return frozenset((one.action.name, one.resource.name) for one in role.permissions)


@contextmanager
def _security_manager() -> Iterator[FabAirflowSecurityManagerOverride]:
    """FAB's own, on Airflow's database, as the commands ``airflow roles`` have it."""
    from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder
    from airflow.providers_manager import ProvidersManager
    from airflow.utils.db import check_migrations
    from sqlalchemy.exc import SQLAlchemyError

    ProvidersManager().initialize_providers_configuration()
    for name in ("airflow.providers.fab", "alembic"):  # a line for each permission
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        check_migrations(1)
        with get_application_builder() as builder:
            yield builder.sm
    except TimeoutError as error:
        raise Terminal.of("airflow-not-migrated", given=str(error)) from error
    except SQLAlchemyError as error:
        raise Transient.of("airflow-database-silent", given=str(error)) from error
