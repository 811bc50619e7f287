"""Where the security of an installation is kept, by the text of RECOUNT_KAFKA_SECURITY; the text holds no secret."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from recount.core.errors import Terminal
from recount.kafka.security import UNSECURED, Security
from recount.kafka.security_keys import PROTOCOL, InvalidSecurity, security_from
from recount.secret_file import fault_of_mode

VARIABLE = "RECOUNT_KAFKA_SECURITY"
AIRFLOW = "airflow:"
"""Begins the name of an Airflow connection."""

_MOUNTED = {"ssl.ca.location": "ca.crt", "ssl.certificate.location": "tls.crt", "ssl.key.location": "tls.key"}
"""The files of a folder, as Kubernetes mounts a secret of a certificate."""
_connections: list[Callable[[str], Mapping[str, str]]] = []


def read_connections_by(keys_of: Callable[[str], Mapping[str, str]]) -> None:
    """Let ``keys_of`` give the keys of an Airflow connection by its name; the processes of Airflow can."""
    _connections[:] = [keys_of]


def security_of(place: str) -> Security:
    """The security at ``place``: a properties or JSON file, a folder of certificates, an Airflow connection, or none.

    Raises ``InvalidSecurity`` naming every fault.
    """
    if not place:
        return UNSECURED
    return security_from(keys_at(place), place, _folder(place))


def keys_at(place: str) -> Mapping[str, str]:
    """The keys at ``place``, secrets among them, as they are written there."""
    if place.startswith(AIRFLOW):
        return _keys_of_connection(place)
    path = Path(place)
    if path.is_dir():
        return {PROTOCOL: "SSL", **{key: name for key, name in _MOUNTED.items() if (path / name).exists()}}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InvalidSecurity(place, [f"{VARIABLE} names what cannot be read: {why}"]) from None
    if fault := fault_of_mode(path):
        raise InvalidSecurity(place, [fault])
    return _of_json(text, place) if path.suffix == ".json" else _of_properties(text, place)


def _folder(place: str) -> Path:
    """What paths in ``place`` are relative to."""
    path = Path(place)
    return path if path.is_dir() else path.parent


def _keys_of_connection(place: str) -> Mapping[str, str]:
    if not _connections:
        raise Terminal(
            "an Airflow connection is asked for outside of Airflow",
            given=f"{VARIABLE}={place}",
            expected="a file: only the processes of Airflow can read its connections",
            remedy=f"set {VARIABLE} to a properties or JSON file for this process",
        )
    return _connections[0](place.removeprefix(AIRFLOW))


def _of_json(text: str, place: str) -> Mapping[str, str]:
    try:
        found = json.loads(text)
    except ValueError:  # its message has the text, secrets and all
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise InvalidSecurity(place, ["the file is not a JSON object of texts"])
    return found


def _of_properties(text: str, place: str) -> Mapping[str, str]:
    """Lines ``name=value``; a value is taken as it stands, without escapes."""
    found, faults = {}, []
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if not line or line.startswith(("#", "!")):
            continue
        name, is_set, value = line.partition("=")
        if not is_set:
            faults.append(f"line {number} is not name=value")
        elif name.strip() in found:
            faults.append(f"line {number} gives {name.strip()} again")
        found[name.strip()] = value.strip()
    if faults:
        raise InvalidSecurity(place, faults)
    return found
