"""DAGs of a topology's audits: ``audit__``, ``night__``, ``findings__`` and ``backfill__``."""

import inspect
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, cast

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Param, TaskGroup, task

from recount.airflow.approvals import AcceptanceOperator, AcceptOperator, BackfillOperator, OpenFindingsOperator
from recount.airflow.audits import AuditOperator, PanelsOperator, VerdictOperator, audit_params, follow
from recount.airflow.dag_factory.dag_plan import DagPlan
from recount.airflow.links import audit_dag, backfill_dag, findings_dag, grace_misses, labels, night_dag, nightly
from recount.airflow.nights import LEFT_OUT, REFUSED, GroupAuditOperator
from recount.airflow.notices import PersonAwaited
from recount.declare.registry import is_audited

_RETRIES: dict[str, Any] = {"retries": 2, "retry_delay": timedelta(seconds=30)}
_AUDIT = "{{ params.audit }}"


def audit_dags(plan: DagPlan) -> Iterator[DAG]:
    for name in plan.declarations.audited:
        if plan.needs(audit_dag(name)):
            yield _judged(plan, name)


def _judged(plan: DagPlan, name: str) -> DAG:
    """One DAG per topology: is each output there exactly once?

    Every night, unless the stream is in a group: then `night__GROUP` audits it, and leaves it out while this DAG is
    paused. By hand at any time: `through` = now judges everything there is; a time (ISO 8601) re-audits as of then.
    """
    is_alone = plan.declarations.group_of(name) is None
    settings = plan.settings_of(name)
    with DAG(
        dag_id=audit_dag(name),
        description=f"Proves the outputs of {name} from the raw log",
        schedule=nightly(name, settings.audit_schedule) if is_alone else None,
        catchup=False,
        is_paused_upon_creation=None if is_alone else False,
        max_active_runs=1,
        default_args=plan.default_args(name),
        deadline=plan.deadline(name),
        **labels(plan.declarations, name, "audit"),
        params=audit_params(),
        doc_md=inspect.getdoc(_judged),
    ) as dag:
        audit = AuditOperator(
            task_id="audit",
            stream=name,
            application=plan.job("audit"),
            spark_resources=settings.audit,
            retries=2,
            retry_delay=timedelta(seconds=30),
            pool=plan.pool(name),
        )
        follow(audit)
        audit >> PanelsOperator(task_id="panels", streams=[name], trigger_rule="all_done")
    return dag


def night_dags(plan: DagPlan) -> Iterator[DAG]:
    for group in plan.declarations.groups.values():
        streams = [stream.name for stream in group.streams if is_audited(stream)]
        if streams and plan.needs(night_dag(group.name)):
            yield _night(plan, group.name, streams)


def _night(plan: DagPlan, group: str, streams: Sequence[str]) -> DAG:
    """One DAG per group of streams: every night one Spark application audits all of them, and each has a task group.

    A stream whose DAG `audit__STREAM` is paused is left out, and so is one that has never run. By hand, `through` = now
    judges everything there is; the DAG of a stream audits it alone.
    """
    settings = plan.settings_of(group)
    with DAG(
        dag_id=night_dag(group),
        dag_display_name=f"{group}: night",
        description=f"Proves the outputs of the group {group} from the raw log",
        schedule=nightly(group, settings.audit_schedule),
        catchup=False,
        max_active_runs=1,
        default_args=plan.default_args(group, owner=group),
        deadline=plan.deadline(group),
        tags=["recount", "night", f"group:{group}"],
        params=audit_params(),
        doc_md=inspect.getdoc(_night),
    ) as dag:
        audit = GroupAuditOperator(
            task_id="audit",
            group=group,
            streams=streams,
            application=plan.job("audit"),
            spark_resources=settings.audit,
            retries=2,
            retry_delay=timedelta(seconds=30),
            pool=plan.pool(group),
        )
        found = "{{ ti.xcom_pull(task_ids='audit', key='%s') }}"
        for stream in streams:
            with TaskGroup(stream):
                verdict = VerdictOperator(
                    task_id="verdict",
                    stream=stream,
                    audit=found % stream,
                    left_out=found % (LEFT_OUT + stream),
                    refused=found % (REFUSED + stream),
                    trigger_rule="all_done",
                )
                follow(verdict)
            audit >> verdict
        audit >> PanelsOperator(task_id="panels", streams=streams, trigger_rule="all_done")
    return dag


def findings_dags(plan: DagPlan) -> Iterator[DAG]:
    for name in plan.declarations.audited:
        if plan.needs(findings_dag(name)):
            yield _accepted(plan, name)


def _accepted(plan: DagPlan, name: str) -> DAG:
    """One DAG per topology: a person accepts open findings of its audits, by name and with a reason.

    Started by hand. An open finding keeps every audit at violation until it is repaired or accepted.
    """
    with DAG(
        dag_id=findings_dag(name),
        description=f"Lets a person accept open findings of {name}",
        schedule=None,
        max_active_runs=1,
        default_args=plan.default_args(name),
        **labels(plan.declarations, name, "findings"),
        params={"findings": Param("", type="string", description="Ids, separated by commas; empty: all that are open")},
        doc_md=inspect.getdoc(_accepted),
    ) as dag:
        listed = OpenFindingsOperator(task_id="open_findings", stream=name)
        approval = AcceptanceOperator(
            task_id="approval",
            subject=f"Accept these findings of {name} as they are?",
            body="{{ ti.xcom_pull(task_ids='open_findings', key='told') }}",
            notifiers=[PersonAwaited(plan.settings_of(name).notifiers)],
            params={"reason": Param("", type="string", title="Reason", description="Why the differences may stay")},
            **plan.approvers(name),
        )
        accept = AcceptOperator(task_id="accept", stream=name)
        listed >> approval >> accept
    return dag


def backfill_dags(plan: DagPlan) -> Iterator[DAG]:
    for name in plan.declarations.audited:
        if plan.needs(backfill_dag(name)):
            yield _corrected(plan, name)


def how(params: Any, ti: Any) -> list[str]:
    """To the approval, straight to the repair, or to nothing: after a dry run, and where nothing is to do."""
    to_do = sum(ti.xcom_pull(task_ids="dry_run", key=key) for key in ("changes", "unpublished"))
    if params["dry_run"] or not to_do:
        return []
    return ["approval"] if params["approve"] == "human" else ["repair"]


def _corrected(plan: DagPlan, name: str) -> DAG:
    """Corrects the windows that late records would change, after a person has approved it.

    Started by the asset event of an audit, or by hand. Whichever audit started it, it takes the open misses of all
    audits, so that none is lost while an approval waits.
    """
    settings = plan.settings_of(name)
    with DAG(
        dag_id=backfill_dag(name),
        description=f"Corrects what late records change in {name}",
        schedule=[grace_misses(name)],
        catchup=False,
        max_active_runs=1,
        default_args=plan.default_args(name),
        **labels(plan.declarations, name, "backfill"),
        params={
            "audit": Param("", type="string", description="Only what this audit found; empty: all that is open"),
            "approve": Param(settings.approve, type="string", enum=["human", "automatic"], description="Who approves"),
            "dry_run": Param(False, type="boolean", description="Only show what would change"),
        },
        doc_md=inspect.getdoc(_corrected),
    ) as dag:
        job, size = plan.job("backfill"), settings.audit
        dry_run = BackfillOperator(
            task_id="dry_run",
            stream=name,
            audit=_AUDIT,
            application=job,
            spark_resources=size,
            only_show=True,
            **_RETRIES,
        )
        approval = _approval(plan, name)
        repair = BackfillOperator(
            task_id="repair",
            stream=name,
            audit=_AUDIT,
            application=job,
            spark_resources=size,
            trigger_rule="none_failed_min_one_success",
            **_RETRIES,
        )
        audit_again = TriggerDagRunOperator(
            task_id="audit_again",
            trigger_dag_id=audit_dag(name),
            conf={"through": "now", "announce": False},
            wait_for_completion=True,
            deferrable=True,
            poke_interval=5,
        )
        branch = cast("Any", task.branch(how))()
        dry_run >> branch >> [approval, repair]
        approval >> repair >> audit_again
    return dag


def _approval(plan: DagPlan, name: str) -> ApprovalOperator:
    return ApprovalOperator(
        task_id="approval",
        subject=f"Publish corrections of {name}?",
        body=(
            "Results that would change: {{ ti.xcom_pull(task_ids='dry_run', key='changes') }}, as of audit "
            "{{ ti.xcom_pull(task_ids='dry_run', key='as_of') }}. The log of the task dry_run shows every change. "
            "The repair takes all misses that are open when it runs, those of later audits too."
        ),
        notifiers=[PersonAwaited(plan.settings_of(name).notifiers)],
        **plan.approvers(name),
        **_RETRIES,
    )
