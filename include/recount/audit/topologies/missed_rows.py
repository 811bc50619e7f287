"""What an audit keeps of its misses for a backfill: the complete rows of each, as values and not as the stream's state.

A row is JSON with all its fields, from which ``recount.backfill`` makes the very bytes that the stream would have
written. No row at all: readers must see none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from recount.audit.completeness import COMPLETENESS, MISSED
from recount.audit.topologies.claims import IDENTITY
from recount.audit.topologies.corrections import COMPLETE_TEXT, GONE_MS
from recount.audit.topologies.identity import Identity, closing_windows
from recount.audit.topologies.judge import SINK
from recount.core.nodes import WINDOW_END
from recount.recompute.graph.recomputed import Recomputed
from recount.recompute.rules.closing import overdue_ms

IS_OPEN = "is_open"


def missed_rows(judged: DataFrame, identities: Sequence[Identity], truth: Recomputed) -> DataFrame:
    """The missed rows of ``judged``: sink, identity, ``COMPLETE_TEXT``, ``GONE_MS``, and whether each ``IS_OPEN``."""
    missed = judged.where(F.col(COMPLETENESS) == MISSED)
    is_open = reduce(
        lambda rest, one: F.when(F.col(SINK) == one.written.topic.name, _may_go_on(one, truth)).otherwise(rest),
        identities,
        F.lit(True),
    )
    return missed.select(SINK, *IDENTITY, COMPLETE_TEXT, GONE_MS, is_open.alias(IS_OPEN))


def _may_go_on(identity: Identity, truth: Recomputed) -> Column:
    """Whether the stream can still write a row of this identity, or holds one back."""
    if not identity.is_latest:
        return F.lit(False)
    made_by = closing_windows(identity)
    if made_by is None:
        return F.lit(True)
    node, windows = made_by
    is_open = F.lit(False)
    if node.emission.kind != "final":
        is_open = overdue_ms(windows, F.col(WINDOW_END), F.lit(truth.frontier_ms(node))) < 0
    if identity.suppression is not None:
        held = F.col("expected_at_ms") > F.lit(truth.held_after_ms[identity.suppression])
        is_open |= F.coalesce(held, F.lit(False))
    return is_open
