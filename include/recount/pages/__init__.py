"""The pages in Airflow, without Airflow."""

from recount.runtime.installation import require_extra

require_extra("airflow")
