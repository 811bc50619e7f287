"""Values of a schema registry to Arrow columns: the meaning of the rules, for many values at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from recount.core.schema import RecordSchema
from recount.recompute.columns import spark_type
from recount.recompute.fetched_schemas import fetched_file, fetched_schema
from recount.recompute.parsing import Parsed
from recount.recompute.rules.avro_values import WriterSchema
from recount.recompute.rules.json_values import Bad
from recount.recompute.rules.protobuf_values import WriterFile


class Writer(Protocol):
    """A schema of the registry, beside what is declared."""

    def fields_of(self, value: bytes) -> dict[str, Any]:
        """The declared fields of a value without the head that names its schema; raises ``Bad``."""


class RegistryParser(ABC):
    """Parses the values of one topic; ``wanted`` limits what is returned, never what is checked.

    ``schema_of`` gives the registry's schemas by their ids; None: as they were fetched.
    """

    _fetched: Callable[[int], str]

    def __init__(
        self,
        schema: RecordSchema,
        wanted: Sequence[str],
        schema_of: Callable[[int], str] | None = None,
        *,
        of_sink: bool = False,
    ) -> None:
        self._schema, self._wanted, self._of_sink = schema, wanted, of_sink
        self._schema_of = schema_of or self._fetched
        self._writers: dict[int, Writer | Bad] = {}

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
    """Of Avro values; see ``WriterSchema``."""

    _fetched = staticmethod(fetched_schema)

    def _writer(self, number: int) -> WriterSchema:
        return WriterSchema(number, self._schema_of(number), self._schema, of_sink=self._of_sink)


class ProtobufParser(RegistryParser):
    """Of Protobuf values; see ``WriterFile``."""

    _fetched = staticmethod(fetched_file)

    def _writer(self, number: int) -> WriterFile:
        return WriterFile(number, self._schema_of(number), self._schema, of_sink=self._of_sink)
