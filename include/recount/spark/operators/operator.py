"""What every operator of a stream does: take a batch's rows from its inputs, and say what leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import polars as pl

from recount.spark.operators.clock import Batch, Clock
from recount.spark.operators.keyed_rows import KeyedRows
from recount.spark.operators.rows import ENTRY, META, OFFSET
from recount.spark.operators.set_aside import RAISED_SCHEMA
from recount.spark.stage import LATE_SCHEMA

Fate = Literal["counted", "late", "deduplicated", "null_value", "null_key", "filtered", "waiting"]
FATES: tuple[Fate, ...] = ("counted", "late", "deduplicated", "null_value", "null_key", "filtered", "waiting")
"""Where operators differ about a record, the first of these holds; one that no operator took up was filtered."""

FATE = "fate"
FATE_TYPE = pl.Enum(FATES)
FATE_SCHEMA: dict[str, pl.DataType] = {**{name: META[name] for name in ENTRY}, FATE: FATE_TYPE}


@dataclass
class Output:
    """What an operator makes of a batch: the rows that leave, late records (``LATE_SCHEMA``), and fates of records.

    ``asked`` says of a lookup how many rows asked for one of the table, and how many of these found none.
    ``raised`` are the records for which its function raised (``RAISED_SCHEMA``).
    """

    rows: pl.DataFrame
    late: list[pl.DataFrame] = field(default_factory=list)
    fates: list[pl.DataFrame] = field(default_factory=list)
    asked: tuple[int, int] | None = None
    raised: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=RAISED_SCHEMA))

    def note(self, rows: pl.DataFrame, fate: Fate) -> None:
        """Say what became of the records behind ``rows``; derived rows have none."""
        entered = rows.filter(pl.col(OFFSET).is_not_null())
        if not entered.is_empty():
            self.fates.append(entered.select(*ENTRY, pl.lit(fate, FATE_TYPE).alias(FATE)))

    def ledger(self, late: pl.DataFrame) -> None:
        """Enter ``late`` rows, which have the columns of ``LATE_SCHEMA``, in the late ledger."""
        if not late.is_empty():
            self.late.append(late.select(list(LATE_SCHEMA)))


class Operator(Protocol):
    """An operator at work."""

    @property
    def states(self) -> Mapping[str, KeyedRows]:
        """All that survives a batch, by name."""

    @property
    def clocks(self) -> Mapping[str, Clock]:
        """The clocks that the operator advances, by name."""

    def process(self, batch: Batch, inputs: Sequence[pl.DataFrame]) -> Output:
        """Take the rows of each input port and let go what is due; advance every clock once."""
