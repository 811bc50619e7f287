"""The batch ledger as the audit reads it, and the cut: the batch up to which everything is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from deltalake import DeltaTable

from recount.core.errors import Terminal
from recount.core.ledger import BatchProof, PartitionProof
from recount.core.tables import Tables
from recount.proofs import Proofs
from recount.recompute.decoding import Limits
from recount.recompute.log import Ranges

Order = tuple[int, int]


@dataclass(frozen=True)
class Ledger:
    """The proofs of batches of a stream in the order in which they were committed, up to some batch.

    ``stands``: its one batch was judged before, and is named only because no batch came since.
    """

    proofs: tuple[BatchProof, ...]
    stands: bool = False

    @classmethod
    def read(cls, tables: Tables, stream: str, down_to: Order | None = None) -> Ledger:
        """The proofs of ``stream`` from the batch ``down_to`` on (None: all); ``Terminal`` when it has no state table.

        A hundred thousand batches take six seconds and half a gigabyte, so ask for no more than is judged.
        """
        newest_first = [entry.proof for entry in _proofs(tables, stream).newest_first(down_to)]
        return cls(tuple(reversed(newest_first)))

    @classmethod
    def newest(cls, tables: Tables, stream: str) -> BatchProof | None:
        """The last proof of ``stream``, None before the first; ``Terminal`` when it has no state table."""
        return next((entry.proof for entry in _proofs(tables, stream).newest_first()), None)

    def cut_before(self, end_ms: int | None) -> BatchProof:
        """The last batch whose recorded time is before ``end_ms`` (None: the last batch)."""
        for proof in reversed(self.proofs):
            if end_ms is None or proof.batch_timestamp_ms < end_ms:
                return proof
        raise Terminal(
            "no batch to audit",
            given=end_ms,
            expected="a batch recorded before the end of the interval",
            remedy="the stream had not started then: audit a later interval",
        )

    def up_to(self, offsets: Mapping[tuple[str, int], int]) -> Ledger:
        """The batches up to the last that ends no later than ``offsets``, which limit the partitions that they name."""
        within = [
            number
            for number, proof in enumerate(self.proofs)
            if all(part.end <= offsets.get((part.topic, part.partition), part.end) for part in proof.partitions)
        ]
        return Ledger(self.proofs[: within[-1] + 1] if within else ())

    def between(self, after: Order | None, cut: Order) -> Ledger:
        """The proofs after the batch ``after`` (None: from the first) up to and with ``cut``."""
        return Ledger(tuple(p for p in self.proofs if (after is None or p.order > after) and p.order <= cut))

    def standing_at(self, order: Order) -> Ledger:
        """The batch ``order`` as if it had read nothing: what an audit covers that begins and ends behind it."""
        [proof] = (proof for proof in self.proofs if proof.order == order)
        return Ledger((replace(proof, partitions=tuple(map(_read_nothing, proof.partitions))),), stands=True)

    @property
    def ranges(self) -> dict[str, Ranges]:
        """Per topic the offsets that these batches read."""
        spans: dict[str, dict[int, tuple[int, int]]] = {}
        for proof in self.proofs:
            for part in proof.partitions:
                start, end = spans.setdefault(part.topic, {}).get(part.partition, (part.start, part.end))
                spans[part.topic][part.partition] = (min(start, part.start), max(end, part.end))
        return {topic: dict(sorted(found.items())) for topic, found in spans.items()}

    @property
    def offsets(self) -> int:
        """How many offsets these batches read."""
        return sum(end - start for parts in self.ranges.values() for start, end in parts.values())

    def limits(
        self, topic: str, max_future_ms: int, set_aside: Mapping[tuple[str, int], frozenset[int]]
    ) -> Mapping[int, Limits]:
        """The latest event time that was not absurd when an offset of ``topic`` was read; what was ``set_aside``."""
        starts: dict[int, list[int]] = {}
        latest_ms: dict[int, list[int]] = {}
        for proof in self.proofs:
            for part in proof.partitions:
                if part.topic == topic and part.start < part.end:
                    starts.setdefault(part.partition, []).append(part.start)
                    latest_ms.setdefault(part.partition, []).append(proof.batch_timestamp_ms + max_future_ms)
        return {
            p: Limits(starts=starts[p], latest_ms=latest_ms[p], set_aside=set_aside.get((topic, p), frozenset()))
            for p in starts
        }

    @property
    def frontier_ms(self) -> int | None:
        """How far the frontier had come after these batches; it never falls back."""
        return max((p.frontier_ms for p in self.proofs if p.frontier_ms is not None), default=None)


def _read_nothing(part: PartitionProof) -> PartitionProof:
    return PartitionProof(
        topic=part.topic,
        partition=part.partition,
        start=part.end,
        end=part.end,
        stream_time_ms=part.stream_time_ms,
        last_read_ms=part.last_read_ms,
        idle=part.idle,
    )


def _proofs(tables: Tables, stream: str) -> Proofs:
    path = tables.state(stream)
    if not DeltaTable.is_deltatable(path):
        raise Terminal("no batch ledger", given=path, expected="a state table", remedy="run the stream first")
    return Proofs(state=path, moved_to=tables.ledger(stream))
