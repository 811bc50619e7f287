"""The one line of a dags folder, and what the DAGs of one file are made of: declarations, run settings, jobs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from airflow.sdk import (  # type: ignore[attr-defined]  # its stub leaves deadlines out
    DAG,
    AsyncCallback,
    DeadlineAlert,
    DeadlineReference,
    get_parsing_context,
)

from recount.airflow.links import DEADLINE, audit_pool, domain_of
from recount.airflow.notices import notifiers, tell_of_deadline
from recount.declare.registry import DEFAULT_MODULES, Declarations, declared
from recount.declare.run_settings import RunSettings, by_name
from recount.runtime.errors import Terminal, require
from recount.runtime.installation import shipped

NOTHING_SET = RunSettings(streams=["all"])
Kind = Literal["streams", "audits", "nights", "backfills", "findings", "topics", "maintenance"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MODULES = "RECOUNT_TOPOLOGIES"
_MADE_BY: MappingProxyType[Kind, str] = MappingProxyType(
    {
        "streams": "stream_dags.stream_dags",
        "audits": "audit_dags.audit_dags",
        "nights": "audit_dags.night_dags",
        "backfills": "audit_dags.backfill_dags",
        "findings": "audit_dags.findings_dags",
        "topics": "stream_dags.topics_dag",
        "maintenance": "stream_dags.maintenance_dag",
    }
)
"""A module of this package, and its function. It is imported when its kind is made: a file is parsed every minute, and
what an operator imports can take as long as all the rest."""


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
        """Return the settings of a stream or group; a stream without any has those of its group."""
        group = self.declarations.group_of(name)
        default = self.settings.get(group.name, NOTHING_SET) if group else NOTHING_SET
        return self.settings.get(name, default)

    def driver_settings_of(self, stream: str) -> RunSettings:
        """Return the settings of the driver of ``stream``: its group's, or its own."""
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


def recount_dags(
    namespace: MutableMapping[str, Any],
    modules: str | None = None,
    *,
    settings: Iterable[RunSettings] = (),
    only: Iterable[Kind] = KINDS,
) -> None:
    """Put the DAGs of all that ``modules`` declare (``RECOUNT_TOPOLOGIES`` by default) into ``namespace``.

    ``namespace`` is the ``globals()`` of a file in a dags folder. ``settings`` go before those that the modules declare
    of the same stream or group. A dags folder with many streams may be divided into files with ``only`` some kinds.
    Where a task runs, only its own DAG is made.

    A job is that of the project, ``spark_jobs/NAME.py`` beside the dags folder, or else the one of Recount. Raises
    ``Terminal`` where ``modules`` are not those of the environment, from which drivers, pages and audits take them, and
    ``InvalidDeclaration`` where something declared or set cannot be meant.
    """
    kinds = list(only)
    for kind in kinds:
        require(kind in KINDS, "unknown-kind-of-dag", given=kind, kinds=", ".join(KINDS))
    declarations = declared(_agreed(modules))
    given = by_name(settings, declarations.streams, declarations.groups)
    plan = DagPlan(
        declarations=declarations,
        settings={**declarations.run_settings, **given},
        file=Path(namespace["__file__"]),
        wanted=get_parsing_context().dag_id,
    )
    for kind in kinds:
        for dag in _made(kind, plan):
            namespace[dag.dag_id] = of_file(dag, plan)


def _made(kind: Kind, plan: DagPlan) -> Iterator[DAG]:
    module, _, name = _MADE_BY[kind].partition(".")
    made: Iterator[DAG] = getattr(import_module(f"{__package__}.{module}"), name)(plan)
    return made


def _agreed(modules: str | None) -> str:
    known = os.environ.get(MODULES) or DEFAULT_MODULES
    if modules is None or modules == known:
        return known
    raise Terminal.of(
        "modules-of-dags-differ",
        given=f"{modules} in the call, {os.environ.get(MODULES) or 'nothing'} in the environment",
        variable=MODULES,
        modules=modules,
    )
