"""Checks before an audit begins: what would hinder it, and from when a live stream can be judged.

They run before Spark is started, which takes longer than to refuse. A live stream can be judged once everything it has
published so far is in its ledger and its tables too.

What the declaration alone says, before it has run for a day, are ``objections``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from recount.audit.carry.erased_keys import ErasedKeys
from recount.audit.carry.store import NOTHING, AuditStore, Run, Seed
from recount.audit.certificate.signing import signer_in
from recount.audit.compare.identity import identity_of
from recount.audit.cut.audited_ledger import Ledger, Order
from recount.audit.cut.in_force import InForce
from recount.audit.cut.kept_log import StretchLog, sources_of
from recount.audit.findings.finding_register import Interval, Source
from recount.audit.integrity.strangers import damage_told
from recount.certificate.finding import finding_id
from recount.declare.registry import is_audited
from recount.declare.topology import Topology, Written
from recount.kafka import positions
from recount.kafka.compacted import published_head
from recount.kafka.connection import Connection
from recount.kafka.offsets import Partition, partitions_of
from recount.kafka.topics_on_cluster import ids_of
from recount.recompute.operators.beginnings import untold
from recount.recompute.operators.log_order import NotRecomputable, require_recomputable
from recount.runtime.errors import RecountError, Terminal, Transient
from recount.runtime.log_lines import about
from recount.runtime.settings import Settings
from recount.tables.decisions import acceptances
from recount.tables.ledger import BatchProof, topics_made_anew
from recount.tables.places import Tables

_PAUSE_S = 1.0
_LOG = logging.getLogger(__name__)
_AT_A_TIME = 8
"""To look is to wait: for brokers, for tables, for a stream that is between its two commits."""


def published_offsets(connection: Connection, topology: Topology) -> dict[tuple[str, int], int]:
    """Up to where the stream has committed its batches to Kafka; partitions without a commit are left out.

    Asked before the ends of its topics are, so that these hold every output of those batches.
    """
    partitions = [found for source in topology.sources for found in partitions_of(connection, source.topic.name)]
    return positions.published_offsets(connection, connection.group(topology.name), partitions)


def judgeable_offsets(connection: Connection, tables: Tables, topology: Topology) -> dict[tuple[str, int], int]:
    """The same, but no further than the ledger where the stream cannot complete the batch after it.

    It does not start before a person has accepted each topic that it reads and that was recreated; to accept one there
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


def covered(
    store: AuditStore,
    tables: Tables,
    topology: Topology,
    erased: ErasedKeys,
    in_force: InForce,
    usable: Callable[[Run], bool],
    reached: Mapping[tuple[str, int], int],
    end_ms: int | None,
    *,
    from_the_beginning: bool,
) -> tuple[Ledger, BatchProof, Seed]:
    """The ledger, the last batch to judge, and the audit at which one begins that judges it.

    That is the newest audit that is ``usable``. The ledger is that since the last cut where this will do.
    """
    since = None if from_the_beginning else settled_since(store.runs(), tables, topology, reached, end_ms)
    if since is not None:
        ledger, cut = since
        seed = store.seed_for(ledger, cut.order, usable)
        if seed.run is not None:
            return ledger, cut, seed
    ledger = settled_ledger(tables, topology, reached)
    cut = ledger.up_to(reached).cut_before(end_ms)
    erased.require_judgeable(cut.order)
    seed = NOTHING if from_the_beginning else store.seed_for(ledger, cut.order, usable)
    return ledger, cut, seed if seed.run else first_seed(store, ledger, cut, erased, in_force, usable)


def first_seed(
    store: AuditStore,
    ledger: Ledger,
    cut: BatchProof,
    erased: ErasedKeys,
    in_force: InForce,
    usable: Callable[[Run], bool],
) -> Seed:
    """The audit behind which none of the batches of ``ledger`` up to ``cut`` can look.

    It is the one that an erasure has left, or the one after which an upgrade brought the declaration ``in_force``;
    ``NOTHING``: one can look at the beginning of the log.
    """
    found, after = [store.seed_of(erased.newest.audit)] if erased.newest else [], in_force.judged_after
    if after is not None and after <= cut.order:
        found.append(store.seed_at(ledger, after, usable))
    return max(found, key=lambda seed: seed.order or (-1, -1), default=NOTHING)


def _holds(proof: BatchProof, published: Mapping[tuple[str, int], int]) -> bool:
    ends = proof.ends
    return all(ends.get(partition, -1) >= offset for partition, offset in published.items())


@dataclass(frozen=True, kw_only=True)
class AuditRequest:
    """Properties that the audits of one call have in common; ``audit`` is the name of each."""

    audit: str
    interval: Interval
    source: Source
    from_the_beginning: bool = False


@dataclass(frozen=True, kw_only=True)
class Auditable:
    """The ``offsets`` that the audit of each stream has to read, or ``refusals``, the reason why there is none."""

    offsets: Mapping[str, int]
    refusals: Mapping[str, Exception]

    @classmethod
    def of(cls, settings: Settings, topologies: Sequence[Topology], request: AuditRequest) -> Auditable:
        """Look at all ``topologies`` at once."""

        def look(topology: Topology) -> int | Exception:
            with about(stream=topology.name, audit=request.audit):
                try:
                    with damage_told(topology.name):
                        return require_auditable(settings, topology, request)
                except Exception as refusal:
                    # whatever it is, the others are audited
                    if not isinstance(refusal, RecountError):
                        _LOG.exception("whether %s can be audited is not known", topology.name)
                    return refusal

        with ThreadPoolExecutor(_AT_A_TIME) as threads:
            found = dict(zip([one.name for one in topologies], threads.map(look, topologies), strict=True))
        return cls(
            offsets={name: one for name, one in found.items() if isinstance(one, int)},
            refusals={name: one for name, one in found.items() if isinstance(one, Exception)},
        )


def require_auditable(settings: Settings, topology: Topology, request: AuditRequest) -> int:
    """How many offsets of the log the audit has to read.

    Raises what the audit itself would raise, where that can be known from the ledger and from Kafka: ``Transient`` when
    the stream is stuck between its two commits, ``Terminal`` when there is nothing to audit, the declaration is another
    one or the log has expired.
    """
    signer_in(settings.keys)
    if not is_audited(topology):
        raise writes_nothing(topology)
    connection, tables = Connection.of(settings), Tables(settings.data)
    published_head(connection, topology.name)
    store, in_force = AuditStore(tables, topology.name), InForce.of(topology, settings.data)
    store.require_new(request.audit)
    erased = ErasedKeys.of(settings, topology.name)
    erased.require_finished()
    for node in topology.written:
        identity_of(node)
    reached = judgeable_offsets(connection, tables, topology)

    def usable(run: Run) -> bool:
        return erased.admits(run) and in_force.goes_on_from(run)

    ledger, cut, seed = covered(
        store,
        tables,
        topology,
        erased,
        in_force,
        usable,
        reached,
        request.interval.end_ms,
        from_the_beginning=request.from_the_beginning,
    )
    sources = sources_of(connection, tables, topology, request.source)
    log = StretchLog(connection=connection, tables=tables, sources=sources)
    if not request.from_the_beginning:
        reach = log.reach(ledger, seed, cut, store.seed_at(ledger, cut.order, usable))
        seed, cut = reach.seed, reach.cut
    stretch = ledger.between(seed.order, cut.order)
    in_force.require_made_by(stretch)
    log.require(stretch)
    return stretch.offsets


def objections(topology: Topology) -> list[RecountError]:
    """Return the errors that an audit of ``topology`` would raise, each once; none where it is judged.

    What depends on the log, such as a batch of another declaration, is not among them.
    """
    if not is_audited(topology):
        return [writes_nothing(topology)]
    found: dict[str, RecountError] = {}
    checks: list[Callable[[], object]] = [partial(require_recomputable, topology)]
    checks += [partial(identity_of, one) for one in topology.written]
    for check in checks:
        try:
            check()
        except NotRecomputable as refusal:
            found.setdefault(str(refusal), refusal)
    return list(found.values())


def writes_nothing(topology: Topology) -> Terminal:
    """Return the error that an audit or a backfill of a topology of actions alone raises."""
    return Terminal(
        f"nothing to audit: {topology.name} writes no records",
        given="actions only",
        expected="a topology with a sink",
        remedy="do not name it, or give it a sink: .to(topic)",
    )


def objection_to_beginning(sink: Written) -> str | None:
    """Why the log and a batch do not tell what is written to ``sink`` after that batch; None where they do."""
    held = untold(sink.input)
    if held is not None:
        return (
            f"{sink}: whether a row of [{held}] left before or after the last batch does not follow from the log:"
            " declare a topology of its own, which may read a topic that this one writes"
        )
    try:
        identity_of(sink)
    except NotRecomputable as reason:
        return str(reason)
    return None
