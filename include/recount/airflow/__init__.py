"""Airflow's side of Recount. DAG files import ``recount_dags`` and ``audited`` from here.

Whatever is imported of it, Kafka's security may be in an Airflow connection then.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from recount.kafka.security import read_connections_by
from recount.runtime.installation import require_extra

if TYPE_CHECKING:
    from recount.airflow.dag_factory import recount_dags as recount_dags
    from recount.airflow.links import audited as audited

_OF_DAG_FILES = {"recount_dags": "recount.airflow.dag_factory", "audited": "recount.airflow.links"}

require_extra("airflow")


def __getattr__(name: str) -> Any:
    """Load what DAG files import when they do: the operators and pages need neither."""
    if name not in _OF_DAG_FILES:
        raise AttributeError(f"module 'recount.airflow' has no attribute {name!r}")
    return getattr(import_module(_OF_DAG_FILES[name]), name)


def _keys_of(connection: str) -> Mapping[str, str]:
    """Imported when it is asked for only: DAGs are parsed without it."""
    from recount.airflow.submission import keys_of

    return keys_of(connection)


read_connections_by(_keys_of)
