"""DAGs around audits: who waits for one, a night that leaves streams out, a run that is late."""

from datetime import timedelta
from pathlib import Path
from time import sleep

from airflow.sdk import DAG, AsyncCallback, DeadlineAlert, DeadlineReference, task

from recount.airflow.audits import VerdictOperator
from recount.airflow.links import audit_dag, audit_pool, audited
from recount.airflow.nights import LEFT_OUT, GroupAuditOperator
from recount.airflow.notices import tell_of_deadline

for stream, is_paused in (("quiet", True), ("fresh", False)):
    with DAG(audit_dag(stream), schedule=None, is_paused_upon_creation=is_paused):
        task(lambda: None, task_id="audit")()

with DAG("night", schedule=None):
    audit = GroupAuditOperator(
        task_id="audit", group="g", streams=["quiet", "fresh"], application=Path("none.py"), pool=audit_pool()
    )
    for stream in ("quiet", "fresh"):
        left_out = f"{{{{ ti.xcom_pull(task_ids='audit', key='{LEFT_OUT}{stream}') }}}}"
        audit >> VerdictOperator(task_id=stream, stream=stream, audit="", left_out=left_out, trigger_rule="all_done")

with DAG("judge", schedule=None, params={"audit": ""}):
    VerdictOperator(task_id="verdict", stream="orders", audit="{{ params.audit }}", left_out="")

with DAG("bill", schedule=[audited("orders")]):

    @task
    def bill(triggering_asset_events):  # type: ignore[no-untyped-def]
        [event] = triggering_asset_events[audited("orders")]
        return event.extra["audit"]

    bill()

reference = DeadlineReference.DAGRUN_QUEUED_AT
alert = DeadlineAlert(reference=reference, interval=timedelta(seconds=3), callback=AsyncCallback(tell_of_deadline))
with DAG("slow", schedule=None, deadline=alert):
    task(lambda: sleep(30), task_id="audit")()
