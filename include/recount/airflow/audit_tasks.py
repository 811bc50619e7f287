"""The tasks that follow the verdict on a stream, the same in the DAG of a stream and in the night of a group."""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import Param

from recount.airflow.audits import ExpectationsOperator, GraceMissesOperator, LimitsOperator
from recount.airflow.verdicts import JudgedStream


def audit_params() -> dict[str, Param]:
    """What a run by hand may be told."""
    return {
        "through": Param("", type="string", description="Judge what was recorded before: a time, or now"),
        "source": Param("auto", type="string", enum=["auto", "kafka", "archive"], description="Where the log is read"),
        "announce": Param(True, type="boolean", description="Let grace misses start the backfill"),
    }


def follow(verdict: JudgedStream) -> None:
    """Put expectations, limits and grace misses after ``verdict``, in the DAG and task group at hand.

    What late records would change is announced after a violation too; ``proved`` makes the run fail all the same,
    and is skipped where the stream was left out.
    """
    stream = verdict.stream
    found = f"{{{{ ti.xcom_pull(task_ids='{verdict.task_id}', key='%s') }}}}"
    expectations = ExpectationsOperator(
        task_id="expectations", stream=stream, audit=found % "audit", trigger_rule="all_done"
    )
    announce = GraceMissesOperator(
        task_id="grace_misses",
        stream=stream,
        audit=found % "audit",
        misses=found % "grace_misses",
        trigger_rule="all_done",
    )
    limits = LimitsOperator(task_id="limits", stream=stream, warnings=found % "warnings", trigger_rule="all_done")
    proved = EmptyOperator(task_id="proved", trigger_rule="none_failed_min_one_success")
    verdict >> expectations >> announce >> proved
    verdict >> [announce, limits, proved]
    [expectations, limits] >> proved
