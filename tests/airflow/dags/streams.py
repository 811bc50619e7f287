"""The DAGs of a project. Those that roles are tried on do no work: rights depend on their ids alone."""

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param
from airflow.sdk.definitions._internal.contextmanager import DagContext

from recount.airflow import recount_dags
from recount.airflow.approvals import AcceptanceOperator
from recount.airflow.links import audit_dag, backfill_dag, findings_dag, stream_dag

TRIED = "high-value-orders"

recount_dags(globals())
DagContext.autoregistered_dags.clear()  # only what is in globals() counts, where some are replaced now
for dag_id in (stream_dag(TRIED), audit_dag(TRIED)):
    with DAG(dag_id, schedule=None, is_paused_upon_creation=False) as globals()[dag_id]:
        EmptyOperator(task_id="run")
with DAG(backfill_dag(TRIED), schedule=None, is_paused_upon_creation=False) as globals()[backfill_dag(TRIED)]:
    ApprovalOperator(task_id="approval", subject="Publish corrections?")
with DAG(findings_dag(TRIED), schedule=None, is_paused_upon_creation=False) as globals()[findings_dag(TRIED)]:
    AcceptanceOperator(task_id="approval", subject="Accept?", params={"reason": Param("", type="string")})
