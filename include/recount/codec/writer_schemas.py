"""The schemas by which records were written, by their ids in the schema registry; kept while the process lives."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from recount.core.registry_errors import VARIABLE, RegistryRefused, RegistryUnreachable
from recount.extras import require_extra

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

_AVRO, _PROTOBUF = "AVRO", "PROTOBUF"
_LARGEST_ID = 2**31 - 1
"""Of the wire format. Registries answer larger ones as they do paths that they do not know."""
_TIMEOUT_S = 10
_RETRIES, _PAUSE_MS = 3, 200
"""The driver tries a batch again that has got no schema, so the client need not be patient."""


class UnknownSchema(Exception):
    """The registry has no schema of this id, or one that is of no use; the text says which."""


def avro_schema(schema_id: int) -> str:
    """The Avro schema with the id, as JSON.

    Raises ``UnknownSchema``, ``RegistryUnreachable`` or ``RegistryRefused``. What the registry has never changes; that
    it has no such id may, so this is asked again.
    """
    return _fetched(os.environ.get(VARIABLE, ""), schema_id, _AVRO)


def protobuf_schema(schema_id: int) -> str:
    """The Protobuf file with the id, as it was registered; raises what ``avro_schema`` does."""
    return _fetched(os.environ.get(VARIABLE, ""), schema_id, _PROTOBUF)


@lru_cache(maxsize=4096)
def _fetched(address: str, schema_id: int, kind: str) -> str:
    if schema_id > _LARGEST_ID:
        raise UnknownSchema(f"no registry has a schema {schema_id}")
    client = registry_client(address)
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        found = client.get_schema(schema_id)
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
    return str(found.schema_str)


def registry_failure(error: Any, when: str) -> RegistryUnreachable | RegistryRefused:
    """What the client's ``error`` means, but for one that says that there is no such schema."""
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
