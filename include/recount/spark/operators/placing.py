"""The records of one batch on their way into panes: one after the other, as they happen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl

from recount.core.own_columns import REVISION
from recount.core.windows import Windows
from recount.spark.columns import STREAM_TIME, TIMESTAMP
from recount.spark.operators.panes import Pane, pane_of
from recount.spark.operators.placed import Placed, Window
from recount.spark.operators.rows import JUDGED, OFFSET, ORDER, PARTITION, TOPIC

NUMBER = "number"
"""The column that numbers kept records as they arrive."""
PLACE = (NUMBER, TOPIC, PARTITION, OFFSET, TIMESTAMP, STREAM_TIME, JUDGED, ORDER, REVISION)
_IN_PARTITION = pl.col(OFFSET).is_not_null() & pl.col(STREAM_TIME).is_null()
PLACED = (
    pl.col(TIMESTAMP),
    pl.col(ORDER),
    pl.col(NUMBER),
    pl.when(_IN_PARTITION).then(TOPIC).alias(TOPIC),
    pl.when(_IN_PARTITION).then(PARTITION).alias(PARTITION),
    pl.col(JUDGED),
    pl.col(REVISION),
)
"""The fields of a ``Placed`` from the columns ``PLACE``."""


class Step(NamedTuple):
    """A window of a key that changed, with the numbers of its ``members``, or was withdrawn, without any.

    ``order`` is that of the row that caused it.
    """

    key: Any
    window: Window
    order: str
    members: Sequence[int] = ()


@dataclass
class Placing:
    """What a batch does to the ``panes``, which hold what was accepted before.

    ``lists_members``: steps say what was in their window at that time; of a window that changes often this is much.
    """

    windows: Windows
    panes: dict[Any, Pane]
    lists_members: bool
    steps: list[Step] = field(default_factory=list)
    missed: list[tuple[int, int, int]] = field(default_factory=list)
    """A late record's number, and the start and end of the window that it missed."""
    late: set[int] = field(default_factory=set)
    counted: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    """Records that need not be kept: late for all windows, or replaced."""

    def add(self, key: Any, record: Placed) -> None:
        """Place a record."""
        pane = self.panes.setdefault(key, pane_of(self.windows))
        placement = pane.add(record)
        if placement.accepted:
            self.counted.add(record.number)
        else:
            self.late.add(record.number)
            self.gone.add(record.number)
        self.missed += [(record.number, *window) for window in placement.late]
        self.steps += [Step(key, window, record.order) for window in placement.withdrawn]
        self._change(key, placement.changed, record.order)

    def replace(self, record: Placed) -> None:
        """Take the earlier revisions of ``record`` out, wherever they were placed."""
        for key, pane in self.panes.items():
            held = pane.records()
            kept = [one for one in held if one.order != record.order or one.revision >= record.revision]
            if len(kept) < len(held):
                self.gone |= {one.number for one in held} - {one.number for one in kept}
                before, self.panes[key] = pane.contents(), pane_of(self.windows, kept)
                self._change(key, _differing(before, self.panes[key].contents()), record.order)

    def _change(self, key: Any, windows: Iterable[Window], order: str) -> None:
        for window in windows:
            members = [one.number for one in self.panes[key].members(window)] if self.lists_members else []
            self.steps.append(Step(key, window, order, members))


def _differing(before: Mapping[Window, Sequence[Placed]], after: Mapping[Window, Sequence[Placed]]) -> list[Window]:
    windows = sorted(before.keys() | after.keys())
    return [window for window in windows if list(before.get(window, ())) != list(after.get(window, ()))]
