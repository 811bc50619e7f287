"""The Avro schemas of what sinks write, and their ids in the schema registry."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from recount.codec.writer_schemas import registry_client, registry_failure
from recount.core.nodes import KEY
from recount.core.registry_errors import VARIABLE, RegistryUnreachable, SchemaRefused
from recount.core.schema import FieldType

_SIMPLE = {"string": "string", "long": "long", "double": "double", "boolean": "boolean"}
_NO_NAME = re.compile(r"[^A-Za-z0-9_]")


def sink_schema(topic: str, fields: Mapping[str, FieldType]) -> str:
    """The schema of the values of ``topic``, as JSON: a record of ``fields``, each of which can be null.

    So a field can be added and taken away, and readers of the one schema read values of the other. Items of lists can
    be null, for Python functions may return such lists.
    """
    name = _NO_NAME.sub("_", topic)
    kinds = {field: _avro(kind) for field, kind in fields.items() if field != KEY}
    made = [{"name": field, "type": ["null", kind], "default": None} for field, kind in kinds.items()]
    return json.dumps({"type": "record", "name": f"_{name}" if name[:1].isdigit() else name, "fields": made})


def _avro(kind: FieldType) -> Any:
    if kind.element is not None:
        return {"type": "array", "items": ["null", _avro(kind.element)]}
    if kind.kind == "decimal":
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    return _SIMPLE[kind.kind]


def schema_id(topic: str, schema: str) -> int:
    """The id of ``schema`` under the subject ``TOPIC-value``, which is registered unless it is there.

    Raises ``SchemaRefused`` where the subject's rule of compatibility forbids it, else what ``avro_schema`` raises.
    """
    return _id(os.environ.get(VARIABLE, ""), f"{topic}-value", schema)


@lru_cache(maxsize=1024)
def _id(address: str, subject: str, schema: str) -> int:
    client = registry_client(address)
    from confluent_kafka.schema_registry import Schema
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    wanted = Schema(schema, "AVRO")
    try:
        try:
            found = client.lookup_schema(subject, wanted).schema_id
            if found is not None:
                return found
        except SchemaRegistryError as error:
            if error.http_status_code != 404:
                raise
        return int(client.register_schema(subject, wanted))
    except SchemaRegistryError as error:
        if error.http_status_code in (409, 422):
            raise SchemaRefused(f"{subject}: {error.error_message}") from error
        raise registry_failure(error, f"registering {subject}") from error
    except Exception as error:  # as with the schema of a writer
        raise RegistryUnreachable(f"{type(error).__name__} when registering {subject}") from error
