"""How many rows a second pass between the operators of a stream, as far as its newest batches tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from recount.core.ledger import BatchProof
from recount.core.nodes import Node, SelectKey, Sink, Source, WithFields
from recount.core.stateless import Merge, Peek, Repartition, Select, Through
from recount.core.topology import Topology

MOST_BATCHES, SPAN_MS = 60, 600_000
"""Rates are of so many batches at most, recorded within ten minutes."""
_ONE_TO_ONE = (WithFields, SelectKey, Select, Peek, Repartition, Through)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Rows a second in the batches that were recorded after ``since_ms`` and up to ``until_ms``.

    ``read`` are by topic the records that were processed, not those that were dead-lettered or had no value;
    ``written`` the rows that went to a table and its topic.
    """

    since_ms: int
    until_ms: int
    read: Mapping[str, float]
    written: Mapping[str, float]

    @classmethod
    def of(cls, newest_first: Iterable[BatchProof]) -> Rates | None:
        """Those of the newest batches; None where there are no two, or they were recorded at one time."""
        proofs = _recent(newest_first)
        if len(proofs) < 2:
            return None
        until_ms, since_ms = proofs[0].batch_timestamp_ms, proofs[-1].batch_timestamp_ms
        if since_ms >= until_ms:
            return None
        counted = proofs[:-1]  # what the oldest one read came before the time that is measured
        read: dict[str, float] = {}
        written: dict[str, float] = {}
        for proof in counted:
            for part in proof.partitions:
                processed = part.records - part.dead_lettered - part.null_value
                read[part.topic] = read.get(part.topic, 0) + processed
            for table, rows in proof.emitted.items():
                written[table] = written.get(table, 0) + rows
        seconds = (until_ms - since_ms) / 1_000
        return cls(
            since_ms=since_ms,
            until_ms=until_ms,
            read={topic: rows / seconds for topic, rows in read.items()},
            written={table: rows / seconds for table, rows in written.items()},
        )


def leaving(topology: Topology, rates: Rates) -> dict[Node, float]:
    """By operator the rows that leave it a second, of those operators of which this is known.

    Known are the sources and what a sink writes. From there it is known of all operators that hand each row on as one
    row; what a filter, a window or a join lets through is known only where it is written, or handed on to that.
    """
    found: dict[Node, float] = {}
    nodes = list(topology.nodes())
    for node in nodes:
        if isinstance(node, Source):
            found[node] = rates.read.get(node.topic.name, 0.0)
        elif isinstance(node, Sink | Through):
            found[node.input] = rates.written.get(node.table, 0.0)
    for node in nodes:
        if isinstance(node, _ONE_TO_ONE) and node.input in found:
            found.setdefault(node, found[node.input])
        elif isinstance(node, Merge) and all(one in found for one in node.inputs):
            found.setdefault(node, sum(found[one] for one in node.inputs))
    for node in reversed(nodes):
        if isinstance(node, _ONE_TO_ONE) and node in found:
            found.setdefault(node.input, found[node])
    return found


def _recent(newest_first: Iterable[BatchProof]) -> Sequence[BatchProof]:
    proofs: list[BatchProof] = []
    for proof in islice(newest_first, MOST_BATCHES + 1):
        if len(proofs) > 1 and proofs[0].batch_timestamp_ms - proof.batch_timestamp_ms > SPAN_MS:
            break
        proofs.append(proof)
    return proofs
