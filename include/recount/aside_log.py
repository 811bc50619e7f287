"""The orders to set records aside: the table ``set-aside/<stream>``, which the command alone writes; without Spark."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from recount.core.aside_order import AsideOrder
from recount.core.errors import Terminal
from recount.core.tables import Tables

_LOG = logging.getLogger(__name__)
_SCHEMA = pa.schema([("place", pa.string()), ("document", pa.string())])


class AsideLog:
    """The orders of ``stream`` below ``root``. Who may write to the table can forge one: audits name such orders."""

    def __init__(self, root: str, stream: str) -> None:
        self._path = Tables(root).set_aside(stream)
        self.stream = stream

    def texts(self) -> list[str]:
        """Every row as it lies there."""
        if not DeltaTable.is_deltatable(self._path):
            return []
        return [str(text) for text in DeltaTable(self._path).to_pyarrow_table().column("document").to_pylist()]

    def append(self, order: AsideOrder) -> None:
        """Add an order."""
        rows = pa.table({"place": [str(order.place)], "document": [order.to_json()]}, schema=_SCHEMA)
        write_deltalake(self._path, rows, mode="append")

    def orders(self, version: int) -> list[AsideOrder]:
        """The orders of ``version`` of the stream, oldest first; what is none is passed over with a warning."""
        found = []
        for text in self.texts():
            try:
                one = AsideOrder.from_json(text)
            except Terminal as fault:
                _LOG.warning("ignored a row of the table set-aside/%s: %s", self.stream, fault)
                continue
            if one.holds and one.stream == self.stream and one.version == version:
                found.append(one)
        return sorted(found, key=lambda one: one.at_ms)

    def offsets(self, version: int) -> Mapping[tuple[str, int], frozenset[int]]:
        """The offsets that a driver of ``version`` sets aside, by topic and partition."""
        found: dict[tuple[str, int], frozenset[int]] = {}
        for one in self.orders(version):
            place = one.topic, one.partition
            found[place] = found.get(place, frozenset()) | {one.offset}
        return found
