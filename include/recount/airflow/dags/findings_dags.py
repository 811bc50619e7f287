"""One DAG per topology: a person accepts open findings of its audits, by name and with a reason.

Started by hand. An open finding keeps every audit at violation until it is repaired or accepted.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow.sdk import DAG, Param

from recount.airflow.acceptance import AcceptanceOperator, AcceptOperator, OpenFindingsOperator
from recount.airflow.dags.dag_plan import DagPlan
from recount.airflow.naming import findings_dag, labels
from recount.airflow.notices import PersonAwaited


def findings_dags(plan: DagPlan) -> Iterator[DAG]:
    """The DAGs ``findings__NAME``."""
    for name in plan.declarations.audited:
        if plan.needs(findings_dag(name)):
            yield _accepted(plan, name)


def _accepted(plan: DagPlan, name: str) -> DAG:
    with DAG(
        dag_id=findings_dag(name),
        description=f"Lets a person accept open findings of {name}",
        schedule=None,
        max_active_runs=1,
        default_args=plan.default_args(name),
        **labels(plan.declarations, name, "findings"),
        params={"findings": Param("", type="string", description="Ids, separated by commas; empty: all that are open")},
        doc_md=__doc__,
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
