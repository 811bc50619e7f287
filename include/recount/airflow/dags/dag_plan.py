"""What the DAGs of one file are made of: declarations, run settings, jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow.sdk import (  # type: ignore[attr-defined]  # its stub leaves deadlines out
    DAG,
    AsyncCallback,
    DeadlineAlert,
    DeadlineReference,
)

from recount.airflow.naming import domain_of
from recount.airflow.notices import notifiers, tell_of_deadline
from recount.airflow.schedules import DEADLINE, audit_pool
from recount.core.registry import Declarations
from recount.core.run_settings import RunSettings
from recount.shipped import shipped

NOTHING_SET = RunSettings(streams=["all"])


@dataclass(frozen=True, kw_only=True)
class DagPlan:
    """The declarations of ``file``, and how each stream is run.

    ``settings`` are by stream and group. ``wanted`` is the one DAG that a task needs, None: all.
    """

    declarations: Declarations
    settings: Mapping[str, RunSettings]
    file: Path
    wanted: str | None = None

    def needs(self, dag_id: str) -> bool:
        return self.wanted in (None, dag_id)

    def settings_of(self, name: str) -> RunSettings:
        """Those of a stream or group; of a stream without any, those of its group."""
        group = self.declarations.group_of(name)
        default = self.settings.get(group.name, NOTHING_SET) if group else NOTHING_SET
        return self.settings.get(name, default)

    def driver_settings_of(self, stream: str) -> RunSettings:
        """Those of the driver that ``stream`` has: its group's, or its own."""
        group = self.declarations.group_of(stream)
        return self.settings_of(group.name if group else stream)

    def job(self, name: str) -> Path:
        """The job of the project at the file's side, ``spark_jobs/NAME.py``; the one of Recount where it has none."""
        own = self.file.resolve().parent.parent / "spark_jobs" / f"{name}.py"
        return own if own.is_file() else shipped("spark_jobs") / f"{name}.py"

    def pool(self, name: str) -> str:
        """In which audits of a stream or group run."""
        return self.settings_of(name).audit_pool or audit_pool()

    def default_args(self, name: str, owner: str | None = None) -> dict[str, Any]:
        told = notifiers(self.settings_of(name).notifiers)
        return {"owner": owner or domain_of(self.declarations, name), "on_failure_callback": told}

    def deadline(self, name: str) -> DeadlineAlert[Any]:
        """Tells the notifiers of a run that takes too long."""
        place = self.settings_of(name).notifiers
        callback = AsyncCallback(tell_of_deadline, kwargs={"of_stream": place} if place else None)
        return DeadlineAlert(reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=DEADLINE, callback=callback)

    def approvers(self, name: str) -> dict[str, Any]:
        """Who may answer: an option of an operator that asks a person; none where anybody may."""
        ids = self.settings_of(name).approvers
        return {"assigned_users": [{"id": one, "name": one} for one in ids]} if ids else {}


def of_file(dag: DAG, plan: DagPlan) -> DAG:
    """``dag`` as one of the plan's file, which is not the module that made it."""
    dag.fileloc = str(plan.file)
    return dag
