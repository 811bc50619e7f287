"""DAGs, operators, trigger and pages for Airflow."""

from recount.extras import require_extra

require_extra("airflow")
