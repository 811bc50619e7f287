"""What an audit warns of though nothing differs: more records lost to dead letters and lateness than is declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recount.audit.ledger import Ledger
from recount.core.aside_order import AsideOrder
from recount.core.ledger import BatchProof
from recount.core.limits import Health
from recount.core.verdict import PartitionAccount

_MOST_BATCHES = 20


def warnings_of(limits: Health, parts: Sequence[PartitionAccount], proofs: Sequence[BatchProof]) -> list[str]:
    """The shares beyond ``limits``: of all that was judged, by the audit's own account, then of single batches.

    The first batches only: of so many more, the last sentence says how many.
    """
    dead_letters, late = sum(part.dead_lettered for part in parts), sum(part.late for part in parts)
    found = limits.excesses(sum(part.records for part in parts), dead_letters, late)
    of_batches = [
        sentence
        for proof in proofs
        for sentence in limits.excesses_of_batch(f"batch {proof.generation}/{proof.batch}", *_counts(proof))
    ]
    more = len(of_batches) - _MOST_BATCHES
    return [*found, *of_batches[:_MOST_BATCHES], *([f"{more} more of single batches"] if more > 0 else [])]


@dataclass(frozen=True, kw_only=True)
class LookupShare:
    """Of the ``records`` that looked up a row of a table, ``misses`` found none, for a ``cause`` if that is known."""

    lookup: str
    records: int
    misses: int
    cause: str | None = None


def warnings_of_lookups(limits: Health, lookups: Sequence[LookupShare]) -> list[str]:
    """The lookups in which more records than ``limits`` allow find no row."""
    return [text for one in lookups for text in limits.excess_of_lookup(one.lookup, one.records, one.misses, one.cause)]


def unsigned_orders(orders: Sequence[AsideOrder], ledger: Ledger) -> list[str]:
    """The records that batches of ``ledger`` have set aside by ``orders`` that nobody has signed."""
    return [
        f"{one.place} was set aside by {one.by}: {one.because}; nobody has signed the order"
        for one in orders
        if one.signature is None and _is_in(one, ledger.ranges.get(one.topic, {}).get(one.partition, (0, 0)))
    ]


def _is_in(order: AsideOrder, span: tuple[int, int]) -> bool:
    return span[0] <= order.offset < span[1]


def _counts(proof: BatchProof) -> tuple[int, int, int]:
    parts = proof.partitions
    return sum(p.records for p in parts), sum(p.dead_lettered for p in parts), sum(p.late for p in parts)
