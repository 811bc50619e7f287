"""Protobuf values to Arrow columns: the meaning of ``rules.protobuf_values``, for many values at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from recount.core.schema import RecordSchema
from recount.recompute.fetched_schemas import fetched_file
from recount.recompute.registry_parsing import RegistryParser
from recount.recompute.rules.protobuf_values import WriterFile


class ProtobufParser(RegistryParser):
    """Parses the values of one topic, by the schemas that ``schema_of`` gives; see ``WriterFile``."""

    def __init__(
        self,
        schema: RecordSchema,
        wanted: Sequence[str],
        schema_of: Callable[[int], str] = fetched_file,
        *,
        of_sink: bool = False,
    ) -> None:
        super().__init__(schema, wanted)
        self._schema_of, self._of_sink = schema_of, of_sink

    def _writer(self, number: int) -> WriterFile:
        return WriterFile(number, self._schema_of(number), self._schema, of_sink=self._of_sink)
