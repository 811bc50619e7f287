"""The DAGs that audit, of streams and of groups by night."""

from recount.airflow import recount_dags

recount_dags(globals(), only=["audits", "nights"])
