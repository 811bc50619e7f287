"""One DAG per topology: a person accepts open findings of its audits, by name and with a reason.

Started by hand. An open finding keeps every audit at violation until it is repaired or accepted.
"""

import os

from airflow.sdk import DAG, Param

from recount.airflow.acceptance import AcceptanceOperator, AcceptOperator, OpenFindingsOperator
from recount.airflow.naming import domain_of, findings_dag, labels
from recount.airflow.notices import PersonAwaited, notifiers
from recount.core.registry import DEFAULT_MODULES, declared

DECLARATIONS = declared(os.environ.get("RECOUNT_TOPOLOGIES", DEFAULT_MODULES))

for name in DECLARATIONS.topologies:
    with DAG(
        dag_id=findings_dag(name),
        description=f"Lets a person accept open findings of {name}",
        schedule=None,
        max_active_runs=1,
        default_args={"owner": domain_of(DECLARATIONS, name), "on_failure_callback": notifiers()},
        **labels(DECLARATIONS, name, "findings"),
        params={"findings": Param("", type="string", description="Ids, separated by commas; empty: all that are open")},
        doc_md=__doc__,
    ):
        listed = OpenFindingsOperator(task_id="open_findings", stream=name)
        approval = AcceptanceOperator(
            task_id="approval",
            subject=f"Accept these findings of {name} as they are?",
            body="{{ ti.xcom_pull(task_ids='open_findings', key='told') }}",
            notifiers=[PersonAwaited()],
            params={"reason": Param("", type="string", title="Reason", description="Why the differences may stay")},
        )
        accept = AcceptOperator(task_id="accept", stream=name)
        listed >> approval >> accept
