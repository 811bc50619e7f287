"""What a schema registry has under the subjects of sinks, and how a schema comes there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, Literal

from recount.codec.writer_schemas import registry_client, registry_failure
from recount.core.registry_errors import VARIABLE, RegistryRefused, RegistryUnreachable, SchemaRefused

Kind = Literal["AVRO", "PROTOBUF"]
_NO_NAME = re.compile(r"[^A-Za-z0-9_]")
_NOT_FOUND = 404
_REFUSALS = frozenset({409, 422})


def latest_schema(topic: str) -> str | None:
    """The newest schema of the values of ``topic``, as it was registered; None where there is none.

    Raises ``SchemaRefused`` where the subject is of another kind than Protobuf, else what ``avro_schema`` raises.
    """
    client, subject = registry_client(os.environ.get(VARIABLE, "")), subject_of(topic)

    def ask() -> Any:
        client.clear_latest_caches()
        return client.get_latest_version(subject).schema

    found = _answer(ask, f"asked for {subject}")
    if found is not None and found.schema_type != "PROTOBUF":
        raise SchemaRefused(f"{subject}: there is a schema of {found.schema_type}")
    return None if found is None else str(found.schema_str)


def schema_id(topic: str, schema: str, kind: Kind) -> int:
    """The id of ``schema`` for the values of ``topic``; it is registered unless it is there.

    Raises ``SchemaRefused`` where the subject's rule of compatibility forbids it, else what ``avro_schema`` raises.
    """
    client, subject = registry_client(os.environ.get(VARIABLE, "")), subject_of(topic)
    from confluent_kafka.schema_registry import Schema

    wanted = Schema(schema, kind)
    found = _answer(lambda: client.lookup_schema(subject, wanted).schema_id, f"looking up {subject}")
    if found is None:
        found = _answer(lambda: client.register_schema(subject, wanted), f"registering {subject}")
    if found is None:
        raise RegistryRefused(f"status {_NOT_FOUND} when registering {subject}")
    return int(found)


def subject_of(topic: str) -> str:
    """Under which the registry has the schemas of the values of ``topic``."""
    return f"{topic}-value"


def type_name(topic: str) -> str:
    """A name that records of Avro and messages of Protobuf can have, made of that of ``topic``."""
    name = _NO_NAME.sub("_", topic)
    return f"_{name}" if name[:1].isdigit() else name


def _answer(ask: Callable[[], Any], when: str) -> Any:
    """What the registry answers; None where it has no such."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        return ask()
    except SchemaRegistryError as error:
        if error.http_status_code == _NOT_FOUND:
            return None
        if error.http_status_code in _REFUSALS:
            raise SchemaRefused(f"{when}: {error.error_message}") from error
        raise registry_failure(error, when) from error
    except Exception as error:  # as with the schema of a writer
        raise RegistryUnreachable(f"{type(error).__name__} when {when}") from error
