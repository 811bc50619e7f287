"""Windows that tasks begin: what leaves them of rows that are on time in any case is one row a key and window."""

from collections.abc import Set
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from recount.declare.operators.nodes import WINDOW_END, Node, WindowedAggregate
from recount.declare.topology import Topology
from recount.declare.windows import TimeWindows
from recount.engine.operators.accumulators import Accumulators
from recount.engine.operators.batch_rows import LOG_ORDER, OFFSET, ORDER, REACHED, rows_schema
from recount.engine.operators.set_aside import Ranges
from recount.engine.operators.windowed_state import BOUNDS, LATEST, result_schema, with_windows
from recount.engine.stage.polars_expressions import field_column


@dataclass(frozen=True)
class Reduction:
    """The accumulators (``schema``) that a task makes of rows on their way to ``node``."""

    node: WindowedAggregate

    @cached_property
    def schema(self) -> dict[str, pl.DataType]:
        """The columns that leave a task: key, window, largest event time, accumulators."""
        return result_schema(self._key, rows_schema(self.node.input.fields), self._accumulators)

    def begun(self, rows: pl.DataFrame, stood_ms: int | None) -> tuple[pl.DataFrame, pl.Series]:
        """The accumulators of the ``rows`` of one partition that are on time in any case, and which of them these are.

        The stream time of ``node`` is that of the partition at most: ``stood_ms`` before these rows. Other rows have
        no key, are beyond the range of an expression, or may be late for a window.
        """
        windows = self.node.windows
        assert isinstance(windows, TimeWindows)
        passed = pl.max_horizontal(REACHED, pl.lit(stood_ms, pl.Int64)) - windows.closes_ms(0)
        taken = self._plain(rows)
        placed = with_windows(rows.filter(taken), windows)
        doubtful = placed.filter(pl.col(WINDOW_END) <= passed)[OFFSET].implode()
        if len(doubtful[0]):
            placed = placed.filter(~pl.col(OFFSET).is_in(doubtful))
            taken &= ~rows[OFFSET].is_in(doubtful)
        if any(one.kind in ("first", "last") for one in self.node.aggregates.values()):
            placed = placed.with_columns(LOG_ORDER.alias(ORDER))
        made = self._accumulators.merged(self._accumulators.lifted(placed), [self._key, *BOUNDS], **LATEST)
        return made.select(list(self.schema)), taken

    def _plain(self, rows: pl.DataFrame) -> pl.Series:
        """Whether each of the ``rows`` has a key, and values that expressions can hold."""
        has_key = rows[self._key].is_not_null()
        ranges = Ranges(self.node)
        return has_key & ~ranges.beyond(rows) if ranges.risky else has_key

    @property
    def _key(self) -> str:
        return field_column(self.node.key)

    @cached_property
    def _accumulators(self) -> Accumulators:
        return Accumulators(self.node.aggregates, self.node.input.fields)


def reductions(topology: Topology, done: Set[Node]) -> list[Reduction]:
    """The windows of ``topology`` that tasks can begin, which run the operators ``done``.

    They follow from a record's time, let at most one result go in a batch, and take all rows that leave the tasks on
    the way to them. Functions of users run where their errors keep their type.
    """
    readers = topology.readers()
    return [
        Reduction(node)
        for node in topology.nodes()
        if isinstance(node, WindowedAggregate)
        and isinstance(node.windows, TimeWindows)
        and node.emission.kind in ("final", "each batch")
        and all(one.fold is None for one in node.aggregates.values())
        and node.input in done
        and [reader for reader, _ in readers[node.input] if reader not in done] == [node]
    ]
