"""Schemas of the registry: those of sinks' subjects, with registration, and those of writers by id.

Writers' schemas are kept while the process lives.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from recount.runtime.errors import VARIABLE, RegistryRefused, RegistryUnreachable, SchemaRefused
from recount.runtime.installation import require_extra
from recount.runtime.protobuf_files import FILE, Files

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient


_AVRO, _PROTOBUF = "AVRO", "PROTOBUF"
_LARGEST_ID = 2**31 - 1
"""Of the wire format. Registries answer larger ones as they do paths that they do not know."""
_TIMEOUT_S = 10
_RETRIES, _PAUSE_MS = 3, 200
"""The driver tries a batch again that has got no schema, so the client need not be patient."""
Kind = Literal["AVRO", "PROTOBUF"]
_NO_NAME = re.compile(r"[^A-Za-z0-9_]")
_NOT_FOUND = 404
_REFUSALS = frozenset({409, 422})


class UnknownSchema(Exception):
    """The registry has no schema of this id, or one that is of no use; the text says which."""


def avro_schema(schema_id: int) -> str:
    """The Avro schema with the id, as JSON.

    Raises ``UnknownSchema``, ``RegistryUnreachable`` or ``RegistryRefused``. What the registry has never changes; that
    it has no such id may, so this is asked again.
    """
    [(_, text)] = _fetched(os.environ.get(VARIABLE, ""), schema_id, _AVRO)
    return text


def protobuf_files(schema_id: int) -> Files:
    """The Protobuf file with the id and those that it refers to, as registered; raises what ``avro_schema`` does."""
    return _fetched(os.environ.get(VARIABLE, ""), schema_id, _PROTOBUF)


@lru_cache(maxsize=4096)
def _fetched(address: str, schema_id: int, kind: str) -> Files:
    if schema_id > _LARGEST_ID:
        raise UnknownSchema(f"no registry has a schema {schema_id}")
    client = registry_client(address)
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        found = client.get_schema(schema_id)
        files = _with_references(client, found) if kind == _PROTOBUF else ((FILE, str(found.schema_str)),)
    except SchemaRegistryError as error:
        code = error.error_code
        if error.http_status_code == 404 and isinstance(code, int) and 40400 <= code < 40500:
            raise UnknownSchema(f"the registry has no schema {schema_id}") from error
        raise registry_failure(error, f"asked for schema {schema_id}") from error
    except Exception as error:  # the transport has errors of its own, none of which says anything about the record
        raise RegistryUnreachable(f"{type(error).__name__} when asked for schema {schema_id}") from error
    if found.schema_type != kind:
        raise UnknownSchema(f"schema {schema_id} is not {kind} but {found.schema_type}")
    if found.references and kind == _AVRO:
        raise UnknownSchema(f"schema {schema_id} refers to other subjects")
    return files


def _with_references(client: SchemaRegistryClient, schema: Any) -> Files:
    """``schema`` behind all that it refers to."""
    found: dict[str, str] = {}

    def add(references: Any) -> None:
        for one in references or ():
            if one.name not in found:
                found[one.name] = ""  # so that a circle ends
                referred = client.get_version(one.subject, one.version).schema
                add(referred.references)
                found[one.name] = str(referred.schema_str)

    add(schema.references)
    return (*found.items(), (FILE, str(schema.schema_str)))


def registry_failure(error: Any, when: str) -> RegistryUnreachable | RegistryRefused:
    """The meaning of the client's ``error``, except one that there is no such schema."""
    status = error.http_status_code
    said = f"status {status}, code {error.error_code} when {when}"
    return RegistryUnreachable(said) if status in (408, 429) or status >= 500 else RegistryRefused(said)


def registry_client(address: str) -> SchemaRegistryClient:
    """The client of this process; raises ``RegistryRefused`` without an address."""
    return _client(address, os.getpid())


@lru_cache(maxsize=4)
def _client(address: str, _process: int) -> SchemaRegistryClient:
    """Not shared with the process that has forked this one."""
    if not address:
        raise RegistryRefused(f"no {VARIABLE}")
    require_extra("registry")
    from confluent_kafka.schema_registry import SchemaRegistryClient

    settings = {"timeout": _TIMEOUT_S, "max.retries": _RETRIES, "retries.wait.ms": _PAUSE_MS}
    return SchemaRegistryClient({"url": address, **settings})


def latest_files(topic: str) -> Files | None:
    """The newest file of the values of ``topic`` and those that it refers to; None where there is none.

    Raises ``SchemaRefused`` where the subject is of another kind than Protobuf, else what ``avro_schema`` raises.
    """
    client, subject = registry_client(os.environ.get(VARIABLE, "")), subject_of(topic)

    def ask() -> Any:
        client.clear_latest_caches()
        found = client.get_latest_version(subject).schema
        return found, _with_references(client, found)

    found = _answer(ask, f"asked for {subject}")
    if found is not None and found[0].schema_type != _PROTOBUF:
        raise SchemaRefused(f"{subject}: there is a schema of {found[0].schema_type}")
    return None if found is None else found[1]


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
    """The answer of the registry; None where it has no such object."""
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
