"""How many bytes a row of state takes in the driver's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import polars as pl

from recount.core.event_time import topics_of
from recount.core.nodes import WINDOW_START, Node
from recount.core.topology import Topology
from recount.spark.estimates.workload import Workload
from recount.spark.operators.rows import ORDER, TOPIC

_VIEW, _INLINE = 16, 12
_BIT = 0.125
_PLACE_DIGITS = 30
"""A place in ``order``: a topic, a separator, 10 digits of partition and 19 of offset."""
_WINDOW_DIGITS = 39
"""The place of a window's result: a separator, 19 digits of start and of end, the key."""


@dataclass(frozen=True, kw_only=True)
class TextWidths:
    """How long texts are: those of the engine's own columns, and of fields, of which a record has so many."""

    topic: float
    order: float
    field: float

    @classmethod
    def of(cls, node: Node, topology: Topology, given: Workload) -> TextWidths:
        """The widths at ``node``; a record's bytes are shared out among its fields, names and punctuation included."""
        topics = topics_of(node)
        fields = min(len(source.topic.value.fields) for source in topology.sources if source.topic.value)
        field, of_windows = given.record_bytes / fields, any(WINDOW_START in above.fields for above in node.inputs)
        return cls(
            topic=max(map(len, topics)),
            order=_WINDOW_DIGITS + field if of_windows else sum(len(topic) + _PLACE_DIGITS for topic in topics),
            field=field,
        )

    def of_column(self, name: str) -> float:
        """The length of a text in the column ``name``."""
        return {TOPIC: self.topic, ORDER: self.order}.get(name, self.field)


def row_bytes(schema: Mapping[str, pl.DataType], widths: TextWidths, values: float) -> float:
    """The bytes of one row; its lists have ``values`` elements.

    Source: the Arrow columnar format, as Polars keeps it: fixed widths, a bit for a boolean and one for being there, a
    text in a view of 16 bytes and beside it when it is longer than 12, a list as an offset of 8 bytes and its elements.
    """
    return sum(_width(kind, widths.of_column(name), widths, values) + _BIT for name, kind in schema.items())


def list_bytes(schema: Mapping[str, pl.DataType], widths: TextWidths) -> float:
    """The bytes that one more value adds to the lists of a row."""
    return row_bytes(schema, widths, 1) - row_bytes(schema, widths, 0)


def _width(kind: pl.DataType, text: float, widths: TextWidths, values: float) -> float:
    match kind:
        case pl.Boolean():
            return _BIT
        case pl.String():
            return _VIEW + (text if text > _INLINE else 0)
        case pl.List(inner=pl.DataType() as inner):
            return 8 + values * _width(inner, widths.field, widths, 1)
        case pl.Struct(fields=fields):
            return row_bytes({one.name: cast("pl.DataType", one.dtype) for one in fields}, widths, values)
        case pl.Decimal():
            return 16
        case pl.Int32():
            return 4
    return 8
