"""How long the rows of a stream's tables are kept, and what of them an audit has released.

Time is counted from when the stream had passed a row: a result of event time t can go ``retention`` after the batch
whose frontier was first beyond t, by the recorded times of batches. So a stream that reads ten years of history today
keeps all of it for as long as one that reads what happens now. What is released is older than that and was judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from recount.core.changelogs import Suppress, TableAggregate, TableFilter, ToTable
from recount.core.joins import StreamTableJoin, TableTableJoin
from recount.core.ledger import BatchProof
from recount.core.nodes import WINDOW_END, WINDOW_START, Filter, Node, Source, WindowedAggregate, WithFields
from recount.core.own_columns import RESULT_TIME
from recount.core.stateless import Peek, Repartition, Select, Through
from recount.core.topology import Written

Ageing = Literal["window", "record", "table"]
AGE_COLUMN: Mapping[Ageing, str] = {"window": WINDOW_END, "record": RESULT_TIME}
"""The time of a row, of those that no later one replaces."""


@dataclass(frozen=True, kw_only=True)
class Released:
    """What the stream may remove: rows of event times before ``before_ms``, written up to the batch ``cut``.

    ``offsets`` are, by topic and partition, those up to which rejected records may go.
    """

    before_ms: int
    cut: tuple[int, int]
    offsets: Mapping[str, Mapping[int, int]]

    @classmethod
    def of(cls, old: BatchProof | None, cut: BatchProof) -> Self | None:
        """What the stream had passed after the batch ``old``, of what was judged up to ``cut``; None: nothing."""
        if old is None or old.frontier_ms is None:
            return None
        offsets: dict[str, dict[int, int]] = {}
        for part in old.partitions:
            offsets.setdefault(part.topic, {})[part.partition] = part.end
        return cls(before_ms=old.frontier_ms, cut=cut.order, offsets=offsets)

    @classmethod
    def from_document(cls, document: Mapping[str, Any] | None) -> Self | None:
        """What ``dataclasses.asdict`` made a JSON document of; None of None."""
        if document is None:
            return None
        offsets = {
            topic: {int(partition): end for partition, end in parts.items()}
            for topic, parts in document["offsets"].items()
        }
        generation, batch = document["cut"]
        return cls(before_ms=document["before_ms"], cut=(generation, batch), offsets=offsets)


def farthest(*found: Released | None) -> Released | None:
    """The one of ``found`` that reaches farthest; None where there is none."""
    return max((one for one in found if one is not None), key=lambda one: one.before_ms, default=None)


def ageing(written: Written) -> Ageing | None:
    """By what the rows of a sink get old: the end of their window, the time of their record, or a later row.

    The last row of a table stands until another replaces it, however long ago it was written; those before it get old.
    None: by nothing, for it is not known which row replaces which.
    """
    if {WINDOW_START, WINDOW_END} <= written.fields.keys():
        return "window"
    if _is_of_records(written.input) or _is_filtered(written.input):
        return "record"
    return "table" if _is_table(written.input) else None


def _is_of_records(node: Node) -> bool:
    match node:
        case Source():
            return True
        case WindowedAggregate() | TableAggregate() | TableTableJoin() | ToTable():
            return False
        case StreamTableJoin(left=left):
            return _is_of_records(left)
    return all(_is_of_records(above) for above in node.inputs)


def _is_table(node: Node) -> bool:
    while isinstance(node, Peek | Repartition | Through | TableFilter | Suppress):
        node = node.input
    if isinstance(node, WindowedAggregate):
        return not node.has_bounds
    return isinstance(node, ToTable | TableAggregate | TableTableJoin)


def _is_filtered(node: Node) -> bool:
    """Whether it is some of the updates that records made in a total of all time: none of them replaces another."""
    is_filtered = False
    while isinstance(node, Peek | Repartition | Through | WithFields | Select | Filter):
        is_filtered |= isinstance(node, Filter)
        node = node.input
    is_total = isinstance(node, WindowedAggregate) and not node.has_bounds and node.emission.kind == "each record"
    return is_total and is_filtered
