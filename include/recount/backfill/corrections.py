"""A correction of one row of a sink, when it can be published, and the table of corrections, made without Spark.

A correction replaces all rows of its identity. Where the whole log makes none, it is one deletion.

Spark makes no table with a column called ``net weight``, and appends to one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from deltalake import DeltaTable, Schema
from pyspark.sql import types as T

from recount.audit.compare.identity import Identity, closing_windows
from recount.audit.compare.published import kept_rows
from recount.declare.columns import BATCH, GENERATION, IS_NULL, ORIGIN, RESULT_TIME, REVISION
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.output import encode_value, fields_of, output_record
from recount.declare.topology import Written
from recount.formats.registry_encoders import encoder_of
from recount.kafka.dead_letters import KafkaRecord
from recount.runtime.errors import Terminal

Order = tuple[int, int]
Standing = Literal["ready", "open", "keyed", "compacted"]
"""``ready``: the stream writes no such row again. ``open``: it does until the window has closed. ``keyed``: it may with
every record, as long as it runs. ``compacted``: a record behind the others of its key would be the only one kept."""
REMEDIES: Mapping[Standing, str] = {
    "open": "the stream can still change them: they are corrected by a backfill after their windows have closed",
    "keyed": "the stream goes on with these keys: stop it (DAG stream_control, order stop), audit it, and run the"
    " backfill before it starts again",
    "compacted": "their topic is compacted, and a correction would take the place of newer results of the key: write"
    " them to a topic with cleanup_policy delete",
}


DELETE_THEM = "see who can write to the table, delete these rows there, and run the backfill again"


@dataclass(frozen=True, kw_only=True)
class Correction:
    """The row of ``identity`` with this ``key``, window and ``origin`` is to be what ``complete`` says, in JSON.

    ``revision`` None: what is there has the largest one already, so it is forged. ``now`` is what readers see, in JSON.
    """

    identity: Identity
    key: str | None
    window_start: int | None
    window_end: int | None
    origin: str | None
    complete: str
    gone_ms: int
    is_open: bool
    revision: int | None
    now: str

    @property
    def standing(self) -> Standing:
        """When it can be published."""
        return standing_of(self.identity, is_open=self.is_open)

    def rows(self, cut: Order) -> list[dict[str, Any]]:
        """The rows in the table of corrections, of an audit of the batches up to ``cut``; the deletion of none."""
        kept = kept_rows(self.complete, self.identity.fields) or [(None, self.gone_ms)]
        return [self._row(values, at_ms, cut) for values, at_ms in kept]

    def _row(self, values: Mapping[str, Any] | None, at_ms: int, cut: Order) -> dict[str, Any]:
        fields = self.identity.written.fields
        row = dict.fromkeys(fields) | (self._itself() if values is None else dict(values))
        whence = None if self.origin is None or self.origin.startswith("at ") else self.origin
        generation, batch = cut
        told = {RESULT_TIME: at_ms, REVISION: self.revision, IS_NULL: values is None, ORIGIN: whence}
        return {**row, **told, GENERATION: generation, BATCH: batch}

    def _itself(self) -> dict[str, Any]:
        """Return what a deletion says of the row: whose it is."""
        key, fields = self.identity.written.key, self.identity.written.fields
        is_number = fields[key].kind == "long"
        found: dict[str, Any] = {key: int(self.key) if is_number and self.key is not None else self.key}
        if self.identity.has_bounds:
            found |= {WINDOW_START: self.window_start, WINDOW_END: self.window_end}
        return found


def standing_of(identity: Identity, *, is_open: bool) -> Standing:
    """When a row of ``identity`` can be corrected; ``is_open``: the stream could still write it at the audit's cut."""
    if is_keyed(identity):
        return "keyed"
    if "compact" in identity.written.topic.cleanup_policy:
        return "compacted"
    return "open" if is_open else "ready"


def is_keyed(identity: Identity) -> bool:
    """Whether the stream replaces a row of ``identity`` with no end: tables, totals of all time."""
    return identity.is_latest and closing_windows(identity) is None


def in_order(rows: Sequence[Mapping[str, Any]], written: Written) -> list[Mapping[str, Any]]:
    """Sort as published: deletions first, so that a key that two rows share keeps what it has now; then by time."""
    return sorted(rows, key=lambda row: (not row[IS_NULL], row[RESULT_TIME], str(row[written.key])))


def record_of(row: Mapping[str, Any], written: Written, version: int) -> KafkaRecord:
    """The record of a ``row`` of the table of corrections."""
    record = output_record(
        row,
        key=written.key,
        fields=written.fields,
        timestamp_ms=row[RESULT_TIME],
        revision=row[REVISION],
        origin="backfill",
        is_null=row[IS_NULL],
        source=row[ORIGIN],
        version=version,
        plain=written.topic.plain_field,
        encode=encoder_of(written),
    )
    return KafkaRecord(
        topic=written.topic.name,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp_ms,
    )


def said(rows: Sequence[Mapping[str, Any]], identity: Identity) -> list[tuple[bytes | None, int]]:
    """Return what ``rows`` of one identity say, to be compared: values as they are written, and times."""
    found = [
        (None if row[IS_NULL] else encode_value(fields_of(row, identity.fields)), row[RESULT_TIME]) for row in rows
    ]
    return sorted(found, key=str)


def require_in_turn(found: Sequence[tuple[int, str]], done: int, stream: str) -> None:
    """Raise ``Terminal`` where a backfill of ``found``, by number, does not follow the ``done`` ones on Kafka."""
    for expected, (number, name) in enumerate(found, start=done):
        if number != expected:
            raise Terminal(
                f"the corrections of {stream} have a backfill that does not follow the one before it",
                given=f"number {number}, {name}",
                expected=f"number {expected}",
                remedy=DELETE_THEM,
            )


def make_table(path: str, schema: T.StructType) -> None:
    """Make the table at ``path`` unless it is there; each column can be null, as in every table that Spark makes."""
    if not DeltaTable.is_deltatable(path):
        columns = T.StructType([T.StructField(one.name, one.dataType) for one in schema])
        DeltaTable.create(path, Schema.from_json(json.dumps(columns.jsonValue())))
