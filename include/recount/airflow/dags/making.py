"""The one line of a dags folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, MutableMapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from airflow.sdk import DAG, get_parsing_context

from recount.airflow.dags.dag_plan import DagPlan, of_file
from recount.core.errors import Terminal, require
from recount.core.registry import DEFAULT_MODULES, declared
from recount.core.run_settings import RunSettings, by_name

Kind = Literal["streams", "audits", "nights", "backfills", "findings", "topics", "maintenance"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MODULES = "RECOUNT_TOPOLOGIES"
_MADE_BY: MappingProxyType[Kind, str] = MappingProxyType(
    {
        "streams": "stream_dags",
        "audits": "audit_dags",
        "nights": "night_dags",
        "backfills": "backfill_dags",
        "findings": "findings_dags",
        "topics": "topics_dag",
        "maintenance": "maintenance_dag",
    }
)
"""A module of this package, and its function. It is imported when its kind is made: a file is parsed every minute, and
what an operator imports can take as long as all the rest."""


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
        require(
            kind in KINDS, "only", given=kind, expected=f"some of {', '.join(KINDS)}", remedy="leave it out for all"
        )
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
    name = _MADE_BY[kind]
    made: Iterator[DAG] = getattr(import_module(f"{__package__}.{name}"), name)(plan)
    return made


def _agreed(modules: str | None) -> str:
    known = os.environ.get(MODULES) or DEFAULT_MODULES
    if modules is None or modules == known:
        return known
    raise Terminal(
        f"recount_dags and {MODULES} name different modules",
        given=f"{modules} in the call, {os.environ.get(MODULES) or 'nothing'} in the environment",
        expected="the same modules: drivers, audits and pages take them from the environment",
        remedy=f"set {MODULES}={modules} for every process of Airflow",
    )
