"""Partial aggregates of a single aggregation: what the records of one interval of a log add to each window.

They are mergeable: those of several intervals, merged, are those of all their records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from recount.declare.columns import IS_LATE, RECORDS
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import named
from recount.recompute.frames.duck_frames import Frame, frame_of, once
from recount.recompute.operators import log_windows
from recount.recompute.operators.log_rows import OFFSET, PARTITION
from recount.recompute.operators.recomputed import Recomputed
from recount.recompute.single_flow import Flow

FIRST, LAST, BATCH = "first", "last", "batch"
_FROM, _BEYOND, _IN, _OF = "__from", "__beyond", "__in", "__of_"
_SPAN = pa.schema([(_IN, pa.int32()), (_FROM, pa.int64()), (_BEYOND, pa.int64()), (BATCH, pa.int64())])
Span = tuple[int, int, int, int]
"""Partition, first offset, the one after the last, and a number of the batch that read them."""


@dataclass(frozen=True, kw_only=True)
class WindowPartials:
    """Partials of the interval that was ``recomputed`` of the topology of ``flow``."""

    flow: Flow
    recomputed: Recomputed

    @property
    def partials(self) -> Frame:
        """Per key, window and ``recount_is_late``, see ``log_windows.partials``.

        What is on time makes the expected result (fidelity), both together the complete one (unlimited grace).
        """
        return self._of(self.recomputed.came(self.flow.aggregate), log_windows.IS_LATE).renamed(
            {log_windows.IS_LATE: IS_LATE}
        )

    def by_batch(self, groups: pa.Table, spans: Iterable[Span]) -> tuple[Frame, Frame]:
        """The share of each batch of ``spans`` in the ``groups``, on time: partials with ``BATCH``, and their offsets.

        ``groups`` has the columns of ``Flow.group``. Offsets by batch and partition: ``recount_records``, how many,
        ``FIRST`` and ``LAST``.
        """
        came = self.recomputed.came(self.flow.aggregate)
        wanted = groups.rename_columns([_OF + str(at) for at in range(groups.num_columns)])
        known = frame_of(came.database, [wanted], wanted.schema)
        columns = [named(self.flow.key), F.col(log_windows.START), F.col(log_windows.END)]
        same = [column == F.col(_OF + str(at)) for at, column in enumerate(columns)]
        on_time = came.where(~F.col(log_windows.IS_LATE)).join(known, same[0] & same[1] & same[2], "left_semi")
        rows = [dict(zip(_SPAN.names, span, strict=True)) for span in spans]
        batches = frame_of(came.database, [pa.Table.from_pylist(rows, _SPAN)], _SPAN)
        inside = (F.col(PARTITION) == F.col(_IN)) & (F.col(OFFSET) >= F.col(_FROM)) & (F.col(OFFSET) < F.col(_BEYOND))
        numbered = once(on_time.join(batches, inside))
        group = [
            named(self.flow.key),
            F.col(log_windows.START).alias(WINDOW_START),
            F.col(log_windows.END).alias(WINDOW_END),
        ]
        offsets = numbered.group_by(*group, BATCH, PARTITION).agg(
            F.count_of(F.lit(1)).alias(RECORDS), F.smallest(OFFSET).alias(FIRST), F.largest(OFFSET).alias(LAST)
        )
        return self._of(numbered, BATCH), offsets

    def _of(self, placed: Frame, *further: str) -> Frame:
        return log_windows.partials(self.flow.aggregate, placed, *further)
