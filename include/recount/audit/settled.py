"""When a live stream can be judged: everything it has published so far is in its ledger and its tables too."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from recount.acceptance_log import acceptances
from recount.audit.ledger import Ledger, Order
from recount.audit.store import Run
from recount.core.errors import Terminal, Transient
from recount.core.finding import finding_id
from recount.core.ledger import BatchProof
from recount.core.tables import Tables
from recount.core.topic_ids import topics_made_anew
from recount.core.topology import Topology
from recount.kafka import positions
from recount.kafka.connection import Connection
from recount.kafka.ids_of_topics import ids_of
from recount.kafka.offsets import Partition, partitions_of

_PAUSE_S = 1.0


def published_offsets(connection: Connection, topology: Topology) -> dict[tuple[str, int], int]:
    """Up to where the stream has committed its batches to Kafka; partitions without a commit are left out.

    Asked before the ends of its topics are, so that these hold every output of those batches.
    """
    partitions = [found for source in topology.sources for found in partitions_of(connection, source.topic.name)]
    return positions.published_offsets(connection, connection.group(topology.name), partitions)


def judgeable_offsets(connection: Connection, tables: Tables, topology: Topology) -> dict[tuple[str, int], int]:
    """The same, but no further than the ledger where the stream cannot complete the batch after it.

    It does not start before a person has accepted each topic that it reads and that was made anew; to accept one there
    must be an audit, which would wait for that batch. Raises ``Terminal`` where Kafka is behind the ledger.
    """
    # in this order: a batch is on Kafka before it is in the ledger
    newest, published = Ledger.newest(tables, topology.name), published_offsets(connection, topology)
    if newest is None:
        return published
    ends = newest.ends
    behind = {place: offset for place, offset in published.items() if offset < ends.get(place, 0)}
    if not behind and _holds(newest, published):
        return published
    read = {source.topic.name for source in topology.sources}
    known = {topic: one for topic, one in newest.topic_ids.items() if topic in read}
    made_anew = topics_made_anew([known, ids_of(connection, known)])
    if not {topic for topic, _ in behind} <= {one.place for one in made_anew}:
        raise _behind(topology, behind, ends)
    findings = {finding_id(topology.name, one) for one in made_anew}
    if _holds(newest, published) or findings <= {one.finding for one in acceptances(tables, topology.name)}:
        return published
    return {place: min(offset, ends[place]) for place, offset in published.items() if place in ends}


def _behind(topology: Topology, behind: Mapping[Partition, int], ends: Mapping[Partition, int]) -> Terminal:
    told = [f"{topic}-{number}@{behind[topic, number]} of {ends[topic, number]}" for topic, number in sorted(behind)]
    return Terminal(
        f"Kafka is behind the tables of {topology.name}: were its group's offsets reset, or the cluster restored?",
        given=f"committed on Kafka, of what the ledger has: {', '.join(told)}",
        expected="the offsets of the batch with which the ledger ends, or of the one after",
        remedy=f"restore the tables of the same time, or `recount reset {topology.name}`",
    )


def settled_ledger(
    tables: Tables,
    topology: Topology,
    published: Mapping[tuple[str, int], int],
    *,
    down_to: Order | None = None,
    patience_s: float = 60.0,
) -> Ledger:
    """The ledger once it holds every batch up to the offsets ``published``, which Kafka has committed.

    Of it the batches from ``down_to`` on (None: all).

    A batch is committed to Kafka first and to Delta then, its proof last of all: what is in the ledger is in every
    table. A driver killed in between leaves the second half to its successor. Raises ``Transient`` when that has not
    come within ``patience_s``.
    """
    deadline = time.monotonic() + patience_s
    while True:
        newest = Ledger.newest(tables, topology.name)
        if newest is not None and _holds(newest, published):
            return Ledger.read(tables, topology.name, down_to)
        if newest is None and not published:
            return Ledger(())
        if time.monotonic() > deadline:
            raise Transient(
                f"stream {topology.name} is in the middle of a batch",
                given=f"committed on Kafka: {published}",
                expected="the same batch in the ledger and in the tables",
                remedy="relaunch the stream so that it completes the batch, then audit again",
            )
        time.sleep(_PAUSE_S)


def settled_since(
    runs: Sequence[Run],
    tables: Tables,
    topology: Topology,
    published: Mapping[tuple[str, int], int],
    end_ms: int | None,
) -> tuple[Ledger, BatchProof] | None:
    """``settled_ledger`` since the last cut of all ``runs``, and of the batches after it the last before ``end_ms``.

    None where there is none: no audit was complete, no batch came since, or the interval ends before.
    """
    last = max((run.order for run in runs), default=None)
    if last is None:
        return None
    ledger = settled_ledger(tables, topology, published, down_to=last)
    for proof in reversed(ledger.up_to(published).proofs):
        if proof.order > last and (end_ms is None or proof.batch_timestamp_ms < end_ms):
            return ledger, proof
    return None


def _holds(proof: BatchProof, published: Mapping[tuple[str, int], int]) -> bool:
    ends = proof.ends
    return all(ends.get(partition, -1) >= offset for partition, offset in published.items())
