"""The DAGs of a project, made from its declarations: ``recount_dags(globals(), "my_project.topologies")``."""

from recount.airflow.dags.making import KINDS, Kind, recount_dags
from recount.core.resources import Resources
from recount.core.run_settings import RunSettings

__all__ = ["KINDS", "Kind", "Resources", "RunSettings", "recount_dags"]
