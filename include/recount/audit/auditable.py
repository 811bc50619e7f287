"""What would keep audits from judging, found out before Spark is started: that takes longer than to refuse."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from recount.audit.damaged_tables import damage_told
from recount.audit.erased_keys import ErasedKeys
from recount.audit.findings import Interval, Source
from recount.audit.in_force import InForce
from recount.audit.kept import sources_of
from recount.audit.settled import judgeable_offsets, settled_ledger, settled_since
from recount.audit.shape import flow_of
from recount.audit.signing import signer_in
from recount.audit.store import NOTHING, AuditStore, Run
from recount.audit.stretch_log import StretchLog
from recount.audit.topologies.identity import identity_of
from recount.audit.topologies.objections import writes_nothing
from recount.core.errors import RecountError
from recount.core.registry import is_audited
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.kafka.connection import Connection
from recount.kafka.heads import published_head
from recount.log_lines import about

_LOG = logging.getLogger(__name__)
_AT_A_TIME = 8
"""To look is to wait: for brokers, for tables, for a stream that is between its two commits."""


@dataclass(frozen=True, kw_only=True)
class AuditRequest:
    """What the audits of one call have in common; ``audit`` is the name of each."""

    audit: str
    interval: Interval
    source: Source
    from_the_beginning: bool = False


@dataclass(frozen=True, kw_only=True)
class Auditable:
    """Of each stream the ``offsets`` that its audit has to read, or its ``refusals``, the reason why there is none."""

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
    store, in_force = AuditStore(None, tables, topology.name), InForce.of(topology, settings.data)
    store.require_new(request.audit)
    erased = ErasedKeys.of(settings, topology.name)
    erased.require_finished()
    is_single = flow_of(topology) is not None
    if not is_single:
        for node in topology.written:
            identity_of(node)
    reached = judgeable_offsets(connection, tables, topology)
    fingerprint, end_ms = in_force.declared.fingerprint, request.interval.end_ms

    def usable(run: Run) -> bool:
        return erased.admits(run) and (is_single or run.fingerprint == fingerprint)

    seed = NOTHING
    since = None if request.from_the_beginning else settled_since(store.runs(), tables, topology, reached, end_ms)
    if since:
        ledger, cut = since
        seed = store.seed_for(ledger, cut.order, usable)
    if seed.run is None:
        ledger = settled_ledger(tables, topology, reached)
        cut = ledger.up_to(reached).cut_before(end_ms)
        if erased.newest:
            erased.require_judgeable(cut.order)
        if not request.from_the_beginning:
            seed = store.seed_for(ledger, cut.order, usable)
            if seed.run is None and erased.newest:
                seed = store.seed_of(erased.newest.audit)
    sources = sources_of(connection, tables, topology, request.source)
    log = StretchLog(connection=connection, tables=tables, sources=sources)
    if request.from_the_beginning:
        after = in_force.after if is_single else None
        after = erased.newest.order if erased.newest else after
    else:
        same = store.seed_at(ledger, cut.order, usable)
        if is_single and in_force.after == cut.order and same.run:
            seed = same
        reach = log.reach(ledger, seed, cut, same)
        after, cut = reach.seed.order, reach.cut
    stretch = ledger.between(after, cut.order)
    in_force.require_made_by(stretch)
    log.require(stretch)
    return stretch.offsets
