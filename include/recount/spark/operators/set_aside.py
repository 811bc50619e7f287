"""Records that an operator could not process: for which a function of the topology raised, or an expression has a value
that its type cannot hold. Which they are, and what their dead letters say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from recount.core.event_time import is_held_back
from recount.core.nodes import Node
from recount.core.user_functions import failed, is_of_the_record, message_of, reason_of
from recount.spark.operators.rows import ENTRY, META, OFFSET, place_of

RAISED_SCHEMA: dict[str, pl.DataType] = {
    **{name: META[name] for name in ENTRY},
    "reason": pl.String(),
    "detail": pl.String(),
}


@dataclass
class SetAside:
    """The records of a batch for which a function or an expression of ``node`` raised.

    Below an operator that holds records back there are none: what a row is made of was read by an earlier batch.
    """

    node: Node
    found: list[tuple[Any, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._is_below_a_hold = is_held_back(self.node)

    def add(self, about: Mapping[str, Any], error: Exception) -> None:
        """The function raised for the row with the ``META`` in ``about``; raises where that is no record at hand."""
        if about[OFFSET] is None or self._is_below_a_hold or not is_of_the_record(error):
            raise failed(self.node, place_of(about, self.node.inputs[0].key), error) from error
        place = (about[name] for name in ENTRY)
        self.found.append((*place, reason_of(self.node, error), message_of(error)))

    @property
    def rows(self) -> pl.DataFrame:
        """All of them (``RAISED_SCHEMA``)."""
        return pl.DataFrame(self.found, RAISED_SCHEMA, orient="row")


def one_of_each(raised: pl.DataFrame) -> pl.DataFrame:
    """One row for each record of ``raised``: of several the first by reason, however they were called."""
    return raised.sort("reason", "detail").unique(ENTRY, keep="first", maintain_order=True)
