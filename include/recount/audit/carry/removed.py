"""Parts of a stream's tables and topics that its declared retention may have removed; no audit looks for them.

Rows go only when an audit has released them (``tables.places``). Until the stream has removed them they are there
still: both is right, so a comparison leaves them out on either side.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any

import polars as pl

from recount.audit.carry.store import Run
from recount.audit.cut.audited_ledger import Ledger, Order
from recount.audit.cut.in_force import within
from recount.certificate.document import Certificate
from recount.declare.columns import STREAM_TIME
from recount.declare.topics import UNLIMITED_RETENTION_MS
from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.kafka.offsets import log_ranges, partitions_of, retention_ms_of
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_frames import Frame
from recount.tables.batch_proofs import Proofs
from recount.tables.ledger import BatchProof
from recount.tables.places import Released, Tables, farthest

_PLACE = ["topic", "partition", "offset"]


def released_so_far(runs: Sequence[Run], before: str | None = None) -> Released | None:
    """Return what ``runs``, all audits of the stream, have released until now, or until the audit ``before`` began."""
    until = next((number for number, run in enumerate(runs) if run.audit == before), len(runs))
    return farthest(*(run.released for run in runs[:until]))


def released_by(
    tables: Tables, topology: Topology, ledger: Ledger, certificates: Sequence[Certificate], *, is_clean: bool
) -> Released | None:
    """Return the release after an audit of ``ledger``: that of ``certificates`` before, where it found anything."""
    before = farthest(*(Released.from_document(one.get("released")) for one in certificates))
    if topology.retention_ms is None or not is_clean:
        return before
    proofs = Proofs(state=tables.state(topology.name), moved_to=tables.ledger(topology.name))
    now_ms = time.time_ns() // 1_000_000
    until_ms = min(ledger.proofs[-1].batch_timestamp_ms, now_ms) - topology.retention_ms
    old = proofs.last_before(until_ms, now_ms)
    return farthest(before, None if old is None else _certified(old.proof, until_ms, ledger, certificates))


def _certified(old: BatchProof, until_ms: int, ledger: Ledger, certificates: Sequence[Certificate]) -> Released | None:
    """Return what the stream had passed after the batch ``old``, recorded by ``until_ms``, as far as it was judged.

    A batch before those of ``ledger`` is not judged again. So it releases no more than any matching audit had judged
    whose cut was no earlier, or was recorded later: whatever somebody has written into its proof.
    """
    found = Released.of(old, ledger.proofs[-1])
    later = [
        one
        for one in certificates
        if one["outcome"] == "match" and (_cut(one) >= old.order or one["cut"]["batch_timestamp_ms"] > until_ms)
    ]
    if found is None or later:
        return found and within(found, min(later, key=lambda one: (one["cut"]["frontier_ms"] or 0, _cut(one))))
    return found if old in ledger.proofs else None


def _cut(certificate: Certificate) -> Order:
    return certificate["cut"]["generation"], certificate["cut"]["batch"]


def kept_late(released: Released | None, of: Any = pl) -> Any:
    """Whether a line of the late ledger must be there, as a column ``of`` Polars or (``functions``) of an engine."""
    return _since(STREAM_TIME, released, of)


def _since(column: str, released: Released | None, of: Any) -> Any:
    if released is None:
        return of.lit(True)
    return of.coalesce(of.col(column) >= of.lit(released.before_ms), of.lit(True))


def kept_rejected(released: Released | None, of: Any = pl) -> Any:
    """Whether a rejected record must be in the table of them, as ``kept_late`` is."""
    gone = [
        (of.col("topic") == topic) & (of.col("partition") == partition) & (of.col("offset") < end)
        for topic, parts in (released.offsets if released else {}).items()
        for partition, end in parts.items()
    ]
    return reduce(and_, (~one for one in gone), of.lit(True))


def letters_gone(connection: Connection, ledger: Ledger, topic: str, dead_letters: str) -> Mapping[int, int]:
    """Up to which offset of each partition of ``topic`` letters about records may have left ``dead_letters``.

    A letter has the time at which its batch was published. Nothing has left while the topic begins at offset 0.
    """
    retention_ms = retention_ms_of(connection, dead_letters)
    begins = log_ranges(connection, partitions_of(connection, dead_letters)).values()
    if retention_ms == UNLIMITED_RETENTION_MS or all(span.start == 0 for span in begins):
        return {}
    until_ms = time.time_ns() // 1_000_000 - retention_ms
    old = [proof for proof in ledger.proofs if proof.batch_timestamp_ms < until_ms]
    return {part.partition: part.end for proof in old[-1:] for part in proof.partitions if part.topic == topic}


def letters_due(bad: Frame, letters: Frame, gone: Mapping[int, int]) -> Frame:
    """The ``bad`` records whose letter must be there, or is."""
    if not gone:
        return bad
    until = F.coalesce(*(F.when(F.col("partition") == p, F.lit(end)) for p, end in gone.items()), F.lit(0))
    absent = bad.where(F.col("offset") < until).join(letters.select(*_PLACE), _PLACE, "left_anti")
    return bad.join(absent.select(*_PLACE), _PLACE, "left_anti")
