"""Values of a schema registry and headers of records to Arrow columns, by the recompute's own rules.

Schemas come by plain HTTP: the recompute proves the stream, so it does not use the stream's client.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from http.client import HTTPException
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from recount.declare.operators.nodes import Source
from recount.declare.schema import RecordSchema
from recount.recompute.parsing import Parsed
from recount.recompute.rules.value_rules import Bad, header_fields, headers_named
from recount.recompute.spark_columns import spark_type
from recount.runtime.errors import VARIABLE, RegistryRefused, RegistryUnreachable
from recount.runtime.installation import require_extra
from recount.runtime.protobuf_files import FILE, Files

_MOST_S = 15
_IDS = range(2**31)
"""No registry has others: to some of them the path of such an id is none."""
_PASSES = frozenset({408, 429})


def fetched_schema(number: int) -> str:
    """The text of the Avro schema ``number``; raises ``Bad`` where the registry has no such."""
    return _avro(os.environ.get(VARIABLE, ""), number)


def fetched_files(number: int) -> Files:
    """The Protobuf file ``number`` and those that it refers to; raises ``Bad`` where the registry has no such."""
    return _protobuf(os.environ.get(VARIABLE, ""), number)


@lru_cache(maxsize=4096)
def _avro(registry: str, number: int) -> str:
    found = _schema(registry, number)
    if found.get("schemaType", "AVRO") != "AVRO" or found.get("references"):
        raise Bad("schema", f"schema {number} is no Avro that stands alone")
    return str(found["schema"])


@lru_cache(maxsize=4096)
def _protobuf(registry: str, number: int) -> Files:
    found = _schema(registry, number)
    if found.get("schemaType") != "PROTOBUF":
        raise Bad("schema", f"schema {number} is no Protobuf")
    files: dict[str, str] = {}
    asked = deque([found])
    while asked:
        for one in asked.popleft().get("references") or ():
            if one["name"] not in files:
                told = _answered(
                    registry, f"subjects/{quote(one['subject'], safe='')}/versions/{one['version']}", number
                )
                files[one["name"]] = str(told["schema"])
                asked.append(told)
    return (*files.items(), (FILE, str(found["schema"])))


def _schema(registry: str, number: int) -> dict[str, Any]:
    if number not in _IDS:
        raise Bad("schema", f"no registry has a schema {number}")
    return _answered(registry, f"schemas/ids/{number}", number)


def _answered(registry: str, path: str, number: int) -> dict[str, Any]:
    """The registry's answer, for the schema ``number``, which can be one that it refers to."""
    if not registry.startswith(("http://", "https://")):
        raise RegistryRefused(f"no {VARIABLE}")
    asked = f"{registry.rstrip('/')}/{path}"
    try:
        with urlopen(Request(asked, headers={"Accept": "application/json"}), timeout=_MOST_S) as answer:  # noqa: S310 - checked above
            found = json.load(answer)
    except HTTPError as error:
        raise _of_status(error, number) from error
    except (OSError, HTTPException, ValueError) as error:
        raise RegistryUnreachable(f"{type(error).__name__} for schema {number}") from error
    if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
        raise RegistryRefused(f"the answer for schema {number} has no schema")
    return found


def _of_status(error: HTTPError, number: int) -> Exception:
    try:
        said: Any = json.load(error)
        code = said.get("error_code") if isinstance(said, dict) else None
    except (OSError, ValueError):
        code = None
    if error.code == 404 and isinstance(code, int) and code // 100 == 404:
        return Bad("schema", f"no schema {number} in the registry")
    told = f"HTTP {error.code} for schema {number}"
    return RegistryUnreachable(told) if error.code >= 500 or error.code in _PASSES else RegistryRefused(told)


class Writer(Protocol):
    """A schema of the registry, beside what is declared."""

    def fields_of(self, value: bytes) -> dict[str, Any]:
        """The declared fields of a value without the head that names its schema; raises ``Bad``."""


class RegistryParser(ABC):
    """Parses the values of one topic; ``wanted`` limits what is returned, never what is checked.

    ``schema_of`` gives the registry's schemas by their ids; None: as they were fetched. Needs the extra ``registry``.
    """

    _fetched: Callable[[int], Any]

    def __init__(
        self,
        schema: RecordSchema,
        wanted: Sequence[str],
        schema_of: Callable[[int], Any] | None = None,
        *,
        of_sink: bool = False,
    ) -> None:
        self._schema, self._wanted, self._of_sink = schema, wanted, of_sink
        self._schema_of = schema_of or self._fetched
        self._writers: dict[int, Writer | Bad] = {}
        require_extra("registry")

    @abstractmethod
    def _writer(self, number: int) -> Writer:
        """The one with the id ``number``; raises ``Bad``."""

    def parsed(self, values: Sequence[bytes | None]) -> Parsed:
        """All of ``values``; one that is None is no bad one."""
        cells: dict[str, list[Any]] = {name: [None] * len(values) for name in self._wanted}
        bad = {}
        for index, value in enumerate(values):
            if value is None:
                continue
            try:
                fields = self.fields_of(value)
            except Bad as fault:
                bad[index] = fault.reason, fault.detail
                continue
            for name, column in cells.items():
                column[index] = fields[name]
        kinds = {name: to_arrow_type(spark_type(self._schema.fields[name])) for name in self._wanted}
        return Parsed({name: pa.array(column, kinds[name]) for name, column in cells.items()}, bad)

    def fields_of(self, value: bytes) -> dict[str, Any]:
        """All declared fields of ``value``; raises ``Bad``."""
        head, rest = value[:5], value[5:]
        if len(head) < 5 or head[0] != 0:
            raise Bad("undecodable", f"a value that begins with no id of a schema: {head!r}")
        number = int.from_bytes(head[1:], "big")
        if number not in self._writers:
            try:
                self._writers[number] = self._writer(number)
            except Bad as fault:
                self._writers[number] = fault
        writer = self._writers[number]
        if isinstance(writer, Bad):
            raise writer
        return writer.fields_of(rest)


class AvroParser(RegistryParser):
    """Parser of Avro values; see ``WriterSchema``."""

    _fetched = staticmethod(fetched_schema)

    def _writer(self, number: int) -> Writer:
        from recount.recompute.rules.avro_rules import WriterSchema

        return WriterSchema(number, self._schema_of(number), self._schema, of_sink=self._of_sink)


class ProtobufParser(RegistryParser):
    """Parser of Protobuf values; see ``WriterFile``."""

    _fetched = staticmethod(fetched_files)

    def _writer(self, number: int) -> Writer:
        from recount.recompute.rules.protobuf_rules import WriterFile

        return WriterFile(number, self._schema_of(number), self._schema, of_sink=self._of_sink)


def is_with_headers(source: Source) -> bool:
    """Whether fields of ``source`` are headers of its records."""
    declared = source.topic.value
    return isinstance(declared, RecordSchema) and bool(headers_named(declared))


class HeaderParser:
    """Reads the headers of one topic; ``wanted`` limits what is returned, never what is checked."""

    def __init__(self, schema: RecordSchema, wanted: Sequence[str]) -> None:
        self._schema = schema
        self._wanted = [name for name in headers_named(schema) if name in wanted]

    def added(self, parsed: Parsed, records: pa.RecordBatch) -> Parsed:
        """``parsed``, the values of ``records``, with their headers; what is wrong with a value counts first."""
        cells: dict[str, list[Any]] = {name: [None] * records.num_rows for name in self._wanted}
        bad = dict(parsed.bad)
        is_null = records.column("value").is_null().to_pylist()
        for index, headers in enumerate(records.column("headers").to_pylist()):
            if is_null[index]:
                continue
            try:
                found = header_fields(headers or (), self._schema)
            except Bad as fault:
                bad.setdefault(index, (fault.reason, fault.detail))
                continue
            for name, column in cells.items():
                column[index] = found[name]
        kinds = {name: to_arrow_type(spark_type(self._schema.fields[name])) for name in self._wanted}
        more = {name: pa.array(column, kinds[name]) for name, column in cells.items()}
        return Parsed({**parsed.columns, **more}, bad)
