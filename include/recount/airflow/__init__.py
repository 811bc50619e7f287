"""Airflow's side of Recount. Whatever is imported of it, Kafka's security may be in an Airflow connection then."""

from __future__ import annotations

from collections.abc import Mapping

from recount.extras import require_extra
from recount.kafka.security_place import read_connections_by

require_extra("airflow")


def _keys_of(connection: str) -> Mapping[str, str]:
    """Imported when it is asked for only: DAGs are parsed without it."""
    from recount.airflow.kafka_connection import keys_of

    return keys_of(connection)


read_connections_by(_keys_of)
