"""Hindrances of an erasure, what it does not reach, and its tombstones in compacted topics of results.

An erasure happens behind the last batch of a stream, which an audit has proved. The audit after it reads compacted
topics from behind the tombstones, and so never meets them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from confluent_kafka import IsolationLevel, KafkaException
from deltalake import DeltaTable

from recount.audit.audit_shape import flow_of
from recount.audit.carry.erased_keys import ErasedKeys
from recount.audit.carry.store import SNAPSHOTS, AuditStore, Run
from recount.audit.certificate.signing import signer_in, trusted_in
from recount.audit.compare.committed import CommittedRecord, read_committed
from recount.audit.cut.auditable import published_offsets
from recount.audit.cut.audited_ledger import Ledger
from recount.audit.cut.in_force import InForce
from recount.audit.cut.kept_log import kept, kept_if_any
from recount.audit.findings.finding_register import certificates_in_force, read_register
from recount.audit.integrity.altered_lineage import Lineage
from recount.audit.integrity.table_checksums import TableChecksums
from recount.declare.columns import BACKFILL_NUMBER
from recount.declare.output import encode_key
from recount.declare.topology import Topology, Written
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failure, patiently
from recount.kafka.offsets import log_ranges, partitions_of
from recount.kafka.positions import published_backfills
from recount.lifecycle.erasure.erased_rows import StateRows, frames_without_keys, operator_states, snapshot_sha256
from recount.lifecycle.erasure.holdings import objection_to
from recount.lifecycle.reset import require_no_driver
from recount.runtime.errors import RecountError, Terminal, Transient
from recount.runtime.settings import Settings
from recount.tables.ledger import BatchProof
from recount.tables.places import Tables

ERASURE_HEADER = "recount-erasure"
_PATIENCE_S = 60.0
_PAUSE_S = 0.1
MAX_FILES = 50


def read_until(topology: Topology, run: Run) -> dict[str, Mapping[int, int]]:
    """The offset up to which ``run`` has read the topic of a sink, by topic and partition."""
    if flow_of(topology) is None:
        return dict(run.read_to)
    return {topology.written[0].topic.name: run.published_ends}


def strange_since(connection: Connection, topology: Topology, run: Run) -> list[str]:
    """The compacted topics to which somebody has written since ``run`` read them."""
    found = []
    for node in _compacted(topology):
        topic = node.topic.name
        seen, ends = read_until(topology, run).get(topic, {}), kept_if_any(connection, topic)
        if any(end > seen.get(partition, 0) for partition, (_, end) in ends.items()):
            found.append(topic)
    return found


@dataclass(frozen=True, kw_only=True)
class Tombstones:
    """Tombstones of the erasure ``erasure`` of ``key`` in ``topology``, whose newest audit is ``run``."""

    connection: Connection
    topology: Topology
    run: Run
    erasure: str
    key: str

    def publish(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """Write what is not there yet to ``topics``, in one transaction; returns where the compacted topics end then.

        Raises ``Terminal`` where anybody else has written to one of them since the audit.
        """
        topics = [topic for topic in topics if topic in {node.topic.name for node in _compacted(self.topology)}]
        missing = [topic for topic in topics if not self._written_to(topic)]
        if missing:
            self._write(missing)
        return {topic: self._ends(topic) for topic in topics}

    def _written_to(self, topic: str) -> bool:
        """Whether the tombstone is there; a run that was killed may have written it."""
        seen = read_until(self.topology, self.run).get(topic, {})
        ends = self._ends(topic)
        since = {partition: (seen.get(partition, 0), end) for partition, end in ends.items()}
        found = list(read_committed(self.connection, topic, since))
        strange = [one for one in found if not self._is_mine(one)]
        if strange:
            raise Terminal(
                f"somebody has written to {topic} since the audit {self.run.audit}",
                given=f"{topic}-{strange[0].partition}@{strange[0].offset}",
                expected="no record but the tombstone of this erasure",
                remedy=f"see who can write to it, then `recount audit --stream {self.topology.name}`",
            )
        return bool(found)

    def _is_mine(self, record: CommittedRecord) -> bool:
        told = record.header(ERASURE_HEADER)
        return record.value is None and record.key == encode_key(self.key) and told == self.erasure

    def _write(self, topics: Iterable[str]) -> None:
        named = self.connection.own(f"recount.{self.topology.name}.erasure")
        producer = self.connection.producer({"transactional.id": named, "linger.ms": 0})
        try:
            producer.init_transactions(REQUEST_TIMEOUT_S)
            producer.begin_transaction()
            for topic in topics:
                headers: list[tuple[str, str | bytes | None]] = [(ERASURE_HEADER, self.erasure.encode())]
                producer.produce(topic, key=encode_key(self.key), value=None, headers=headers)
            patiently(lambda: producer.commit_transaction(REQUEST_TIMEOUT_S), time.monotonic() + _PATIENCE_S)
        except KafkaException as error:
            raise failure(f"publishing the tombstones of {self.erasure}", error) from error

    def _ends(self, topic: str) -> dict[int, int]:
        """Where the partitions of ``topic`` end, once everything in them is decided."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            decided = {partition: span.end for partition, span in kept(self.connection, topic).items()}
            spans = log_ranges(self.connection, partitions_of(self.connection, topic), IsolationLevel.READ_UNCOMMITTED)
            if decided == {partition: span.end for (_, partition), span in spans.items()}:
                return decided
            if time.monotonic() > deadline:
                raise Transient(
                    f"a transaction is open on {topic}",
                    given=decided,
                    expected="all of it to be decided",
                    remedy="run the erasure again",
                )
            time.sleep(_PAUSE_S)


def _compacted(topology: Topology) -> list[Written]:
    return [node for node in topology.written if "compact" in node.topic.cleanup_policy]


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
    """Findings and gaps of the newest audit, which judged the last batch."""
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


def has_in_state(tables: Tables, topology: Topology, key: str) -> bool:
    """Whether the outputs of ``topology`` have rows of ``key``, or the rows of its operators' state name it."""
    for node in topology.written:
        for path in (tables.output(node.table), tables.corrections(node.table)):
            if DeltaTable.is_deltatable(path):
                mine = pl.scan_delta(path).filter(pl.col(node.key).cast(pl.String) == key)
                if mine.head(1).collect().height:
                    return True
    path = tables.state(topology.name)
    if not DeltaTable.is_deltatable(path):
        return False
    rows = pl.scan_delta(path)
    if "row" not in rows.collect_schema().names():
        return False
    told = pl.col("identity").str.contains(json.dumps(key, ensure_ascii=False), literal=True)
    told |= pl.col("row").str.contains(json.dumps(key, ensure_ascii=False), literal=True)
    if key.lstrip("-").isdigit():
        told |= pl.col("identity").str.contains(rf":{key}[,}}]")
    return bool(rows.filter(told).head(1).collect().height)


def under_other_keys(tables: Tables, topology: Topology, key: str) -> Iterator[str]:
    """Where rows of other keys have ``key`` in a text field."""
    yield from _in_outputs(tables, topology, key)
    yield from _in_operators(tables, topology, key)


def _in_operators(tables: Tables, topology: Topology, key: str) -> Iterator[str]:
    path = tables.state(topology.name)
    if not DeltaTable.is_deltatable(path):
        return
    told = json.dumps(key, ensure_ascii=False)
    for one in operator_states(topology, tables.root):
        rows = one.of(pl.scan_delta(path)).filter(pl.col("row").str.contains(told, literal=True))
        found = rows.filter(pl.col("value").ne_missing(pl.lit(key))).select(pl.len()).collect().item()
        if found:
            yield f"the state of [{one.node}]: {found} rows of other keys have it: erase those keys too"


def _in_outputs(tables: Tables, topology: Topology, key: str) -> Iterator[str]:
    for node in topology.written:
        path = tables.output(node.table)
        if not DeltaTable.is_deltatable(path):
            continue
        for name, kind in node.fields.items():
            if kind.kind != "string" or name == node.key or name not in pl.scan_delta(path).collect_schema().names():
                continue
            others = (pl.col(name) == key) & (pl.col(node.key).cast(pl.String) != key)
            found = pl.scan_delta(path).filter(others).select(pl.len()).collect().item()
            if found:
                yield f"outputs/{node.table}: {found} rows of other keys have it in {name}: erase those keys too"


def reports_naming(settings: Settings, key: str) -> list[str]:
    """The files below the reports that hold ``key``: certificates are never rewritten, nor are pages."""
    told = {key.encode(), json.dumps(key)[1:-1].encode(), json.dumps(key, ensure_ascii=False)[1:-1].encode()}
    found = []
    for folder, _, names in os.walk(settings.reports):
        for name in names:
            path = Path(folder, name)
            content = path.read_bytes() if path.is_file() else b""
            if any(one in content for one in told):
                found.append(str(path))
    return sorted(found)
