"""A lie about the result of a stream, told where its readers look, and taken back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from deltalake import DeltaTable

from recount.core.nodes import WINDOW_START
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.play.last_records import CLOSING
from recount.play.shop_held import rows_of


@dataclass(frozen=True, kw_only=True)
class ShopLie:
    """That the count ``field`` of the result of ``key`` in the window from ``start_ms`` on is one more than it is."""

    stream: str
    table: str
    path: str
    field: str
    key_field: str
    key: str
    start_ms: int

    @classmethod
    def about(cls, tables: Tables, topology: Topology, field: str) -> Self:
        """A lie about the newest result of the only sink of ``topology``."""
        [written] = topology.written
        rows = [row for row in rows_of(tables, topology, written) if CLOSING not in row[written.key]]
        newest: Any = max(rows, key=lambda row: (row[WINDOW_START], row[written.key]))
        return cls(
            stream=topology.name,
            table=written.table,
            path=tables.output(written.table),
            field=field,
            key_field=written.key,
            key=newest[written.key],
            start_ms=newest[WINDOW_START],
        )

    @property
    def place(self) -> str:
        """Where an audit must see it."""
        return f"table outputs/{self.table}"

    def tell(self) -> None:
        """Write it to the table of results, as somebody who may write there could."""
        self._add("+ 1")

    def take_back(self) -> None:
        """Repair the row."""
        self._add("- 1")

    def _add(self, change: str) -> None:
        where = f'"{self.key_field}" = \'{self.key}\' AND "{WINDOW_START}" = {self.start_ms}'
        done = DeltaTable(self.path).update(updates={self.field: f'"{self.field}" {change}'}, predicate=where)
        assert done["num_updated_rows"] == 1, where
