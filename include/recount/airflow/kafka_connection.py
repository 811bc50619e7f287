"""The security of Kafka in an Airflow connection, and how a driver gets it, which cannot read one.

User and password are the connection's login and password; every other key of the setting, by its name, is a key of the
connection's extra. The kind of the connection does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from airflow.sdk import Connection as AirflowConnection
from airflow.sdk.exceptions import AirflowNotFoundException

from recount.core.errors import Terminal
from recount.core.settings import Role, Settings
from recount.kafka.security_keys import PASSWORD, USERNAME, InvalidSecurity, security_from
from recount.kafka.security_place import AIRFLOW, VARIABLE, keys_at
from recount.secret_file import write_secret


def keys_of(connection: str) -> dict[str, str]:
    """The keys of the Airflow connection of that name; raises ``InvalidSecurity`` where there is none."""
    place = f"{AIRFLOW}{connection}"
    try:
        found = AirflowConnection.get(connection)
    except AirflowNotFoundException:
        raise InvalidSecurity(place, ["there is no such connection in Airflow"]) from None
    extra = found.extra_dejson
    if not all(isinstance(value, str) for value in extra.values()):
        raise InvalidSecurity(place, ["the extra is not a JSON object of texts"])
    return {USERNAME: found.login or "", PASSWORD: found.password or "", **extra}


def with_security(settings: Settings, role: Role) -> tuple[Settings, Mapping[str, str]]:
    """``settings`` for a driver in ``role``, and what of them its environment must say.

    What is in an Airflow connection is written to a file below ``settings.run`` that only this user can read.
    """
    settings = settings.acting_as(role)
    place = settings.kafka_security
    if not place:
        return settings, {}
    if place.startswith(AIRFLOW):
        keys = {name: value for name, value in keys_at(place).items() if value}
        security_from(keys, place)
        folder = Path(settings.run) / "kafka-security"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_secret(folder / f"{role}.json", json.dumps(keys))
        settings = replace(settings, kafka_security=str(folder / f"{role}.json"))
    return settings, {VARIABLE: settings.kafka_security}


def require_mounted(settings: Settings) -> None:
    """Raise ``Terminal`` where a driver on another machine would look for a file that is on this one only."""
    if Path(settings.kafka_security).parent == Path(settings.run) / "kafka-security":
        raise Terminal(
            "a driver on the cluster cannot read an Airflow connection",
            given=settings.kafka_security,
            expected=f"{VARIABLE} that names a file or folder which the driver's container mounts",
            remedy="keep the security in a secret of the cluster, mount it in the driver, and name its path",
        )
