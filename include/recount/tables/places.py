"""The place of each Delta table below the data root, its one writer, and how long its rows are kept.

| folder | writer | rows |
| --- | --- | --- |
| ``declarations/<stream>`` | stream, reset, upgrade | by which declaration the stream goes, and went before |
| ``streams/<stream>/state`` | stream | rows of operators, many together, by batch; commits carry the proof |
| ``streams/<stream>/ledger`` | stream | one row per batch: the proofs that were moved out of the state's commits |
| ``streams/<stream>/late`` | stream | the late ledger: one row per late (record, window) |
| ``streams/<stream>/rejected`` | stream | one row per dead-lettered record |
| ``outputs/<table>`` | stream | what the sink emitted, with revision |
| ``corrections/<table>`` | backfill | corrections, with higher revisions |
| ``archive/<topic>`` | archive | the raw log |
| ``audits/<stream>/<name>`` | audit | verdicts, differences, seeds |
| ``erasures/<stream>`` | ``recount erase``, which removes from all of the above | which key was erased, by its hash |
| ``set-aside/<stream>`` | ``recount set-aside`` | which record the stream goes on without, by whom, and why |
| ``acceptances/<stream>`` | ``recount findings accept``, also in Airflow | who accepted which finding, and why |

Time is counted from when the stream had passed a row: a result of event time t can go ``retention`` after the batch
whose frontier was first beyond t, by the recorded times of batches. So a stream that reads ten years of history today
keeps all of it for as long as one that reads what happens now. Released rows are older than that and were judged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import msgspec

from recount.declare.columns import RESULT_TIME
from recount.declare.operators.joins import StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import (
    WINDOW_END,
    WINDOW_START,
    Filter,
    Node,
    Source,
    WindowedAggregate,
    WithFields,
)
from recount.declare.operators.stateless import Peek, Repartition, Select, Through
from recount.declare.operators.tables import Suppress, TableAggregate, TableFilter, ToTable
from recount.declare.topology import Written
from recount.tables.ledger import BatchProof

Ageing = Literal["window", "record", "table"]
AGE_COLUMN: Mapping[Ageing, str] = {"window": WINDOW_END, "record": RESULT_TIME}
"""The time of a row, of those that no later one replaces."""


@dataclass(frozen=True)
class Tables:
    """Paths of the tables below ``root``, a folder or URI without a trailing slash."""

    root: str

    def declarations(self, stream: str) -> str:
        """The declarations of a stream in the order in which they came into force; it outlives a reset."""
        return f"{self.root}/declarations/{stream}"

    def state(self, stream: str) -> str:
        """Partial aggregates, whose commits carry the newest part of the batch ledger."""
        return f"{self.root}/streams/{stream}/state"

    def ledger(self, stream: str) -> str:
        """The older part of the batch ledger."""
        return f"{self.root}/streams/{stream}/ledger"

    def late(self, stream: str) -> str:
        """Late (record, window) pairs."""
        return f"{self.root}/streams/{stream}/late"

    def rejected(self, stream: str) -> str:
        """Dead-lettered records."""
        return f"{self.root}/streams/{stream}/rejected"

    def output(self, table: str) -> str:
        """The table of rows that the stream emitted to a sink."""
        return f"{self.root}/outputs/{table}"

    def corrections(self, table: str) -> str:
        return f"{self.root}/corrections/{table}"

    def archive(self, topic: str) -> str:
        """The raw log of a topic."""
        return f"{self.root}/archive/{topic}"

    def audit(self, stream: str, name: str) -> str:
        return f"{self.root}/audits/{stream}/{name}"

    def erasures(self, stream: str) -> str:
        """Which keys were erased from what a stream, or an archive, keeps."""
        return f"{self.root}/erasures/{stream}"

    def set_aside(self, stream: str) -> str:
        """Which records a stream goes on without."""
        return f"{self.root}/set-aside/{stream}"

    def acceptances(self, stream: str) -> str:
        """Who accepted which finding of a stream."""
        return f"{self.root}/acceptances/{stream}"


@dataclass(frozen=True, kw_only=True)
class Released:
    """Rows that the stream may remove: with event times before ``before_ms``, written up to the batch ``cut``.

    ``offsets`` are, by topic and partition, those up to which rejected records may go.
    """

    before_ms: int
    cut: tuple[int, int]
    offsets: Mapping[str, Mapping[int, int]]

    @classmethod
    def of(cls, old: BatchProof | None, cut: BatchProof) -> Self | None:
        """Rows that the stream had passed after the batch ``old``, of those judged up to ``cut``; None: nothing."""
        if old is None or old.frontier_ms is None:
            return None
        offsets: dict[str, dict[int, int]] = {}
        for part in old.partitions:
            offsets.setdefault(part.topic, {})[part.partition] = part.end
        return cls(before_ms=old.frontier_ms, cut=cut.order, offsets=offsets)

    @classmethod
    def from_document(cls, document: Mapping[str, Any] | None) -> Self | None:
        """From a JSON document that ``dataclasses.asdict`` made; None of None."""
        return None if document is None else msgspec.convert(document, cls, str_keys=True)


def farthest(*found: Released | None) -> Released | None:
    """The one of ``found`` that reaches farthest; None where there is none."""
    return max((one for one in found if one is not None), key=lambda one: one.before_ms, default=None)


def ageing(written: Written) -> Ageing | None:
    """How the rows of a sink get old: by the end of their window, the time of their record, or a later row.

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
