"""Folds tried with the records of a batch: one for which a function raises is set aside, and the fold passes it over.

A record is tried after the values of its own partition, key and window that are before it, for these have been read
whatever the batches were. Values of other partitions can come between them later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from recount.core.nodes import WindowedAggregate
from recount.core.revisions import tries_folds
from recount.core.windows import SessionWindows
from recount.spark.operators.accumulator_kinds import ORDINAL
from recount.spark.operators.accumulators import Accumulators
from recount.spark.operators.folds import Trial
from recount.spark.operators.operator import Output
from recount.spark.operators.rows import OFFSET, ORDER, PARTITION, TOPIC
from recount.spark.operators.set_aside import SetAside

_OFFSET_DIGITS = 19
Value = Mapping[str, Any]


@dataclass(frozen=True)
class FoldTrials:
    """The trials of the folds of ``node``."""

    node: WindowedAggregate
    accumulators: Accumulators

    @classmethod
    def of(cls, node: WindowedAggregate, accumulators: Accumulators) -> FoldTrials | None:
        """None where there is nothing to try."""
        return cls(node, accumulators) if tries_folds(node) else None

    def passed(self, known: pl.DataFrame, new: pl.DataFrame, by: Sequence[str], output: Output) -> pl.DataFrame:
        """``new`` lifted rows, less the values for which a fold raises after those ``known`` in the group ``by``.

        The records behind these are set aside in ``output``.
        """
        aside = SetAside(self.node)
        left_out = [self._without(name, known, new, by, aside) for name in self.accumulators.folds]
        output.raised = pl.concat([output.raised, aside.rows])
        return new.with_columns(left_out)

    def _without(
        self, name: str, known: pl.DataFrame, new: pl.DataFrame, by: Sequence[str], aside: SetAside
    ) -> pl.Series:
        fold, column = self.accumulators.folds[name]
        windows = self.node.windows
        gap_ms = windows.gap_ms if isinstance(windows, SessionWindows) else None
        before = _values(known, column, by)
        trials: dict[tuple[Any, ...], Trial] = {}
        raised = []
        for number, group, source, value in _in_order(new, new[column].to_list(), by):
            if (*group, *source) not in trials:
                earlier = _of_partition(before.get(group, ()), *source)
                trials[*group, *source] = Trial.after(fold, gap_ms, earlier)
            try:
                trials[*group, *source].take(value)
            except Exception as error:
                aside.add(new.row(number, named=True), error)
                raised.append(number)
        if not raised:
            return new[column]
        # the values stay in their column: to make one of Python's values takes longer than to try them
        is_left = ~pl.int_range(pl.len()).is_in(raised)
        return new.select(pl.when(is_left).then(column).otherwise(pl.lit([], new.schema[column])))[column]


def _values(known: pl.DataFrame, column: str, by: Sequence[str]) -> dict[tuple[Any, ...], list[Value]]:
    found: dict[tuple[Any, ...], list[Value]] = {}
    for *group, values in known.select(*by, column).iter_rows():
        found.setdefault(tuple(group), []).extend(values)
    return found


def _in_order(
    new: pl.DataFrame, values: Sequence[Sequence[Value]], by: Sequence[str]
) -> list[tuple[int, tuple[Any, ...], tuple[str, int], Value]]:
    """Number, group, topic and partition, and value of the rows that lie in the log, in its order."""
    places = new.select(OFFSET, TOPIC, PARTITION, *by).iter_rows()
    found = [
        (number, tuple(group), (topic, partition), value)
        for number, (offset, topic, partition, *group) in enumerate(places)
        if offset is not None
        for value in values[number]
    ]
    return sorted(found, key=lambda one: _turn(one[3]))


def _of_partition(values: Sequence[Value], topic: str, partition: int) -> list[Value]:
    """Those of records of the partition itself, in log order: not of rows that were derived from one."""
    start = f"{topic}\x00{partition:010d}"
    size = len(start) + _OFFSET_DIGITS
    own = [one for one in values if one[ORDER].startswith(start) and len(one[ORDER]) == size]
    return sorted(own, key=_turn)


def _turn(value: Value) -> tuple[str, int]:
    return value[ORDER], value[ORDINAL]
