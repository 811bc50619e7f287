"""The DAGs that correct what late records change, and in which a person accepts findings."""

from recount.airflow import recount_dags

recount_dags(globals(), only=["backfills", "findings"])
