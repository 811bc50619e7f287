"""The batch that an answer is from, how far time had come by then, and whether audits have judged it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

from deltalake import DeltaTable

from recount.declare.topology import Topology
from recount.tables.batch_proofs import RUNS, Proofs, complete_audits, released_by
from recount.tables.ledger import BatchProof
from recount.tables.places import Released, Tables

Order = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class NotReady:
    """Why there is nothing to answer from yet."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The last batch that had been recorded at ``asked_ms``: its rows, and those of all batches before it, count.

    ``at_ms`` is the past time that was asked for, None where it was now. ``newest`` is the last batch of all.
    """

    asked_ms: int
    at_ms: int | None
    proof: BatchProof
    newest: Order

    @classmethod
    def of(cls, tables: Tables, stream: str, at_ms: int | None, now_ms: int) -> Self | NotReady:
        """The newest batch of ``stream``, or the newest that was recorded at ``at_ms`` or before."""
        proofs = Proofs(state=tables.state(stream), moved_to=tables.ledger(stream))
        newest = next(proofs.newest_first(), None)
        if newest is None:
            return NotReady(reason=f"{stream} has not committed a batch yet")
        if at_ms is None:
            return cls(asked_ms=now_ms, at_ms=None, proof=newest.proof, newest=newest.proof.order)
        then = proofs.last_recorded_by(at_ms)
        if then is None:
            return NotReady(reason=f"{stream} had not committed a batch by then")
        return cls(asked_ms=at_ms, at_ms=at_ms, proof=then.proof, newest=newest.proof.order)

    @property
    def order(self) -> Order:
        """Generation and batch."""
        return self.proof.order

    @property
    def document(self) -> Mapping[str, Any]:
        """The moment as part of an answer."""
        recorded_ms = self.proof.batch_timestamp_ms
        return {
            "generation": self.proof.generation,
            "batch": self.proof.batch,
            "recorded_ms": recorded_ms,
            # the clock that recorded the batch may be ahead of this one
            "age_ms": max(0, self.asked_ms - recorded_ms),
            "frontier_ms": self.proof.frontier_ms,
        }


@dataclass(frozen=True, kw_only=True)
class JudgedTo:
    """An audit of a stream; it names the open findings of all nights.

    It judged every row up to the batch ``cut`` and, by table, the corrections of the first ``backfills``.
    """

    audit: str
    outcome: str
    finished_ms: int
    cut: Order
    frontier_ms: int | None
    backfills: Mapping[str, int]

    @classmethod
    def of(cls, audit: Mapping[str, Any], outputs: Sequence[str]) -> Self:
        """From the document of a complete ``audit`` of a stream with the tables ``outputs``."""
        # the audit of a single aggregation keeps one checksum, any other one for each table
        kept = audit.get("tables") or dict.fromkeys(outputs, audit.get("checksums"))
        return cls(
            audit=audit["audit"],
            outcome=audit["outcome"],
            finished_ms=audit["finished_ms"],
            cut=(audit["generation"], audit["batch"]),
            frontier_ms=audit["frontier_ms"],
            backfills={table: (checksums or {}).get("backfills", 0) for table, checksums in kept.items()},
        )

    def document(self, moment: Moment) -> Mapping[str, Any]:
        """The audit as part of an answer from ``moment``."""
        generation, batch = self.cut
        return {
            "audited": moment.order <= self.cut,
            "audit": self.audit,
            "outcome": self.outcome,
            "finished_ms": self.finished_ms,
            "generation": generation,
            "batch": batch,
            "frontier_ms": self.frontier_ms,
        }


@dataclass(frozen=True, kw_only=True)
class Audits:
    """All complete audits of a stream, those that have judged furthest first, and what they have released."""

    all: tuple[JudgedTo, ...] = ()
    released: Released | None = None

    def judged_to(self, newest: Order) -> JudgedTo | None:
        """The audit that has judged furthest, and of those the last one, of a stream whose last batch is ``newest``.

        One that has judged a later batch is younger than the backup from which the stream was restored: the batches
        that there are now it has not seen.
        """
        return next((one for one in self.all if one.cut <= newest), None)

    @classmethod
    def of(cls, tables: Tables, topology: Topology) -> Audits:
        """Audits of ``topology`` now. Their documents are read once: after years of nights they are megabytes."""
        path = tables.audit(topology.name, RUNS)
        if not DeltaTable.is_deltatable(path):
            return cls()
        table, outputs = DeltaTable(path), tuple(written.table for written in topology.written)
        return _audits(tables.root, topology.name, outputs, str(table.metadata().id), table.version())


@lru_cache(maxsize=1_000)
def _audits(root: str, stream: str, outputs: tuple[str, ...], table: str, version: int) -> Audits:  # noqa: ARG001
    found = complete_audits(root, stream)
    judged = [JudgedTo.of(one, outputs) for one in found]
    furthest_first = sorted(judged, key=lambda one: (one.cut, one.finished_ms), reverse=True)
    return Audits(all=tuple(furthest_first), released=released_by(found))
