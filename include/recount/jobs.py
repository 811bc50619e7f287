"""The jobs that the files of a project's ``spark_jobs`` run: ``stream_job``, ``audit_job``, ``backfill_job``.

A project has copies of these files, so that they import from here stays as it is. A job is imported when it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recount.audit.audit_commands import audit_job as audit_job
    from recount.backfill.backfill_commands import backfill_job as backfill_job
    from recount.engine.driver.stream_command import stream_job as stream_job

_JOBS = {
    "audit_job": "recount.audit.audit_commands",
    "backfill_job": "recount.backfill.backfill_commands",
    "stream_job": "recount.engine.driver.stream_command",
}


def __getattr__(name: str) -> Any:
    if name not in _JOBS:
        raise AttributeError(f"module 'recount.jobs' has no name {name!r}; it has: {', '.join(_JOBS)}")
    return getattr(import_module(_JOBS[name]), name)
