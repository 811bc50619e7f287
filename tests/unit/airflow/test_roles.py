"""The roles of Recount: what FAB itself allows them, and that they are made with these permissions and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.providers.fab.auth_manager.fab_auth_manager import FabAuthManager
from airflow.providers.fab.auth_manager.models import Role, User, metadata
from airflow.providers.fab.auth_manager.security_manager.override import FabAirflowSecurityManagerOverride
from airflow.providers.fab.www.security_appless import ApplessAirflowSecurityManager
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from recount.airflow.dag_factory import KINDS, recount_dags
from recount.airflow.links import CONTROL, MAINTENANCE, TOPICS
from recount.airflow.roles import FAB, ROLES, bring_in_step, dag_ids, require_fab
from recount.declare.registry import declared
from recount.runtime.errors import Terminal, Transient

MODULES = "topologies"
STREAM = "revenue-by-region"
VIEWER, OPERATOR, AUDITOR = (role.name for role in ROLES)
PERMISSIONS = {role.name: role.permissions(declared(MODULES)) for role in ROLES}
BEFORE = frozenset({("can_read", "DAGs"), ("can_delete", "DAGs")})


def user(role: str) -> User:
    """As FAB asks a user for permissions."""
    return cast("User", SimpleNamespace(perms=PERMISSIONS[role]))


def may(role: str, method: ResourceMethod, dag: str, entity: DagAccessEntity | None = None) -> bool:
    return FabAuthManager().is_authorized_dag(
        method=method, access_entity=entity, details=DagDetails(id=dag), user=user(role)
    )


@pytest.mark.parametrize(
    ("dag", "allowed"),
    [
        (CONTROL, {OPERATOR}),
        (f"stream__{STREAM}", {OPERATOR}),
        (TOPICS, {OPERATOR}),
        (MAINTENANCE, {OPERATOR}),
        (f"audit__{STREAM}", {OPERATOR, AUDITOR}),
        (f"backfill__{STREAM}", {AUDITOR}),
        (f"findings__{STREAM}", {AUDITOR}),
        ("a-dag-of-others", set()),
    ],
)
def test_a_role_starts_pauses_and_marks_the_dags_of_its_kinds_only(dag: str, allowed: set[str]) -> None:
    assert {role for role in PERMISSIONS if may(role, "POST", dag, DagAccessEntity.RUN)} == allowed
    assert {role for role in PERMISSIONS if may(role, "PUT", dag)} == allowed
    assert {role for role in PERMISSIONS if may(role, "PUT", dag, DagAccessEntity.TASK_INSTANCE)} == allowed


@pytest.mark.parametrize("dag", [f"backfill__{STREAM}", f"findings__{STREAM}"])
def test_only_an_auditor_answers_what_waits_for_a_person(dag: str) -> None:
    assert {role for role in PERMISSIONS if may(role, "PUT", dag, DagAccessEntity.HITL_DETAIL)} == {AUDITOR}
    assert all(may(role, "GET", dag, DagAccessEntity.HITL_DETAIL) for role in PERMISSIONS)


def test_everybody_with_a_role_sees_dags_and_pages_and_nobody_deletes_or_sees_connections() -> None:
    manager = FabAuthManager()
    seen = (None, DagAccessEntity.RUN, DagAccessEntity.TASK_INSTANCE, DagAccessEntity.TASK_LOGS)
    for role in PERMISSIONS:
        assert all(may(role, "GET", f"stream__{STREAM}", entity) for entity in seen)
        assert manager.is_authorized_view(access_view=AccessView.PLUGINS, user=user(role))
        assert not any(may(role, "DELETE", dag) for ids in dag_ids(declared(MODULES)).values() for dag in ids)
        assert not manager.is_authorized_asset(method="POST", user=user(role))
        assert not manager.is_authorized_connection(method="GET", user=user(role))
        assert not manager.is_authorized_variable(method="GET", user=user(role))
        assert not manager.is_authorized_configuration(method="GET", user=user(role))


def test_the_dags_of_a_kind_are_those_that_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", MODULES)
    known = dag_ids(declared(MODULES))
    for kind in KINDS:
        namespace: dict[str, Any] = {"__file__": str(tmp_path / "recount.py")}
        recount_dags(namespace, MODULES, only=[kind])
        assert namespace.keys() - {"__file__"} == set(known[kind]), kind
    assert known["nights"]


@pytest.fixture
def manager() -> Iterator[FabAirflowSecurityManagerOverride]:
    """FAB's own, on a database in memory."""
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    with Session(engine) as session:
        yield ApplessAirflowSecurityManager(session=session)
    engine.dispose()


def kept(manager: FabAirflowSecurityManagerOverride, name: str) -> set[tuple[str, str]]:
    role = manager.find_role(name)
    assert role is not None
    return {(one.action.name, one.resource.name) for one in role.permissions}


def test_what_a_role_must_not_have_is_taken_from_it_and_other_roles_keep_theirs(
    manager: FabAirflowSecurityManagerOverride,
) -> None:
    for name in (VIEWER, "of-others"):
        bring_in_step(manager, name, BEFORE)
    wanted = PERMISSIONS[VIEWER]
    assert bring_in_step(manager, VIEWER, wanted) == f"{len(wanted) - 1} added, 1 removed"
    assert kept(manager, VIEWER) == wanted
    assert kept(manager, "of-others") == BEFORE


class Refusing(ApplessAirflowSecurityManager):
    """A database that does not take one permission; FAB logs that, and goes on."""

    def add_permission_to_role(self, role: Role, permission: Any) -> None:
        if permission.resource.name != "Plugins":
            super().add_permission_to_role(role, permission)


def test_a_permission_that_the_database_has_not_taken_is_told(manager: FabAirflowSecurityManagerOverride) -> None:
    with pytest.raises(Transient) as raised:
        bring_in_step(Refusing(session=cast("Session", manager.session)), VIEWER, PERMISSIONS[VIEWER])
    assert raised.value.given == "1 permissions missing, 0 too many"


@pytest.mark.parametrize("configured", [None, "no.such.AuthManager"])
def test_another_auth_manager_is_refused_with_what_to_set(
    monkeypatch: pytest.MonkeyPatch, configured: str | None
) -> None:
    if configured:
        monkeypatch.setenv("AIRFLOW__CORE__AUTH_MANAGER", configured)
    with pytest.raises(Terminal) as raised:
        require_fab()
    assert raised.value.expected == FAB
    assert "AIRFLOW__CORE__AUTH_MANAGER" in raised.value.remedy
