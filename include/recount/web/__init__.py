"""The pages in Airflow, without Airflow."""

from recount.extras import require_extra

require_extra("airflow")
