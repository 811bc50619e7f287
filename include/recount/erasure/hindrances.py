"""What stands in the way of an erasure: it happens behind the last batch of a stream, which an audit has proved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from deltalake import DeltaTable

from recount.audit.altered_lineage import Lineage
from recount.audit.erased_keys import ErasedKeys
from recount.audit.in_force import InForce
from recount.audit.ledger import Ledger
from recount.audit.register import certificates_in_force, read_register
from recount.audit.settled import published_offsets
from recount.audit.shape import flow_of
from recount.audit.signing import signer_in, trusted_in
from recount.audit.store import SNAPSHOTS, AuditStore, Run
from recount.audit.table_checksums import TableChecksums
from recount.core.errors import RecountError
from recount.core.ledger import BatchProof
from recount.core.own_columns import BACKFILL_NUMBER
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.erasure.erasable import objection_to
from recount.erasure.snapshot_rows import frames_without_keys, snapshot_sha256
from recount.erasure.state_rows import StateRows
from recount.erasure.tombstones import strange_since
from recount.kafka.backfill_count import published_backfills
from recount.kafka.connection import Connection
from recount.versions.standstill import require_no_driver


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The stream's last ``proof``, and the newest audit, which judged it."""

    proof: BatchProof
    run: Run


def hindrances(settings: Settings, topology: Topology, key: str) -> list[str]:
    """Everything that hinders the erasure of ``key`` from ``topology`` now, each with what to do."""
    objection = objection_to(topology)
    if objection is not None:
        return [objection]
    try:
        require_no_driver(Connection.of(settings), topology)
        InForce.of(topology, settings.data)
        return list(_hindrances(settings, topology, key))
    except RecountError as refusal:
        return [str(refusal)]


def newest_audit(settings: Settings, stream: str) -> Run | None:
    """The audit that has judged furthest, and of several the last one."""
    return AuditStore(None, Tables(settings.data), stream).furthest()


def ready(settings: Settings, topology: Topology) -> Ready:
    """The batch and the audit behind which a key is erased; there is no hindrance."""
    proof, run = Ledger.newest(Tables(settings.data), topology.name), newest_audit(settings, topology.name)
    assert proof is not None, "there is a hindrance"
    assert run is not None, "there is a hindrance"
    return Ready(proof=proof, run=run)


def signing_hindrance(settings: Settings) -> str | None:
    """Why the record of an erasure could not be believed; None where it can."""
    if trusted_in(settings.keys).keys and signer_in(settings.keys) is None:
        return f"there is no signing.pem in {settings.keys}: audits would take the record for a forged one"
    return None


def _hindrances(settings: Settings, topology: Topology, key: str) -> Iterator[str]:
    stream, tables = topology.name, Tables(settings.data)
    audit_it = f"run `recount audit --stream {stream}`"
    unsigned = signing_hindrance(settings)
    if unsigned:
        yield unsigned
    if _has_former(settings, stream):
        yield f"resets have kept tables aside, which are not looked through: remove {settings.data}/former/{stream}"
    proof, run = Ledger.newest(tables, stream), newest_audit(settings, stream)
    if proof is None or run is None:
        yield f"no audit of {stream} is complete: {audit_it}"
        return
    reached = published_offsets(Connection.of(settings), topology)
    ends = proof.ends
    if any(ends.get(place, -1) < offset for place, offset in reached.items()):
        yield f"Kafka has a batch of {stream} that its tables lack: start it, stop it, then {audit_it}"
    if run.order != proof.order:
        yield f"the last batch, {proof.generation}/{proof.batch}, is not audited: {audit_it}"
        return
    yield from _unproved(settings, topology, run, audit_it)
    yield from StateRows(tables=tables, topology=topology, audit=run.audit, key=key).hindrances()


def _unproved(settings: Settings, topology: Topology, run: Run, audit_it: str) -> Iterator[str]:
    """What the newest audit, which judged the last batch, has found or does not know."""
    stream, tables, connection = topology.name, Tables(settings.data), Connection.of(settings)
    is_open = any(one.state == "open" for one in read_register(settings, stream).values())
    if run.outcome != "match" or is_open:
        yield f"findings are open: repair or accept them (`recount findings --stream {stream}`), then {audit_it}"
    certificates = certificates_in_force(settings, stream)
    newest = max(certificates, key=lambda one: int(one["sequence"]), default=None)
    if newest is None or newest["audit"] != run.audit:
        yield f"the newest certificate is not that of the audit {run.audit}: {audit_it}"
    done = published_backfills(connection, topology)
    if any(has_unpublished(tables.corrections(node.table), done) for node in topology.written):
        yield f"a backfill is not published: run `recount backfill --stream {stream}`, then {audit_it}"
    for table, sums in _checksums(topology, run).items():
        if not sums.hold(tables, table, run.order, done):
            yield f"rows of {table} are others than the audit {run.audit} judged: {audit_it}"
    erased = ErasedKeys.of(settings, stream)
    for one in Lineage(settings=settings, stream=stream, erased=erased).differences(run):
        yield f"{one.place} has other rows than the audit {run.audit} went on from: {audit_it} --from-the-beginning"
    if flow_of(topology) is None:
        told = None if newest is None else erased.snapshot_of(run.audit, newest.get("snapshot"))
        is_there = AuditStore(None, tables, stream).has(SNAPSHOTS, run.audit)
        if not is_there or told != snapshot_sha256(tables, stream, run.audit):
            yield f"the snapshot of the audit {run.audit} is not what its certificate says: {audit_it}"
        elif untold := frames_without_keys(tables, stream, run.audit):
            yield f"the snapshot of the audit {run.audit} does not say of {untold[0]} where keys are: {audit_it}"
    for topic in strange_since(connection, topology, run):
        yield f"{topic} has records since the audit {run.audit}: {audit_it}"


def _checksums(topology: Topology, run: Run) -> dict[str, TableChecksums]:
    flow = flow_of(topology)
    if flow is None:
        return dict(run.tables)
    return {} if run.checksums is None else {flow.sink.table: run.checksums}


def has_unpublished(path: str, done: int) -> bool:
    """Whether a table of corrections has rows that are not of the first ``done`` backfills."""
    if not DeltaTable.is_deltatable(path):
        return False
    is_published = (pl.col(BACKFILL_NUMBER) < done).fill_null(value=False)
    return pl.scan_delta(path).filter(~is_published).head(1).collect().height > 0


def _has_former(settings: Settings, stream: str) -> bool:
    return Path(settings.data.removeprefix("file://"), "former", stream).exists()
