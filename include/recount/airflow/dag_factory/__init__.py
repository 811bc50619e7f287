"""The DAGs of a project, made from its declarations: ``recount_dags(globals(), "my_project.topologies")``."""

from recount.airflow.dag_factory.dag_plan import KINDS, Kind, recount_dags
from recount.declare.limits import Resources
from recount.declare.run_settings import RunSettings

__all__ = ["KINDS", "Kind", "Resources", "RunSettings", "recount_dags"]
