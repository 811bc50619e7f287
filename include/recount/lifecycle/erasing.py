"""The erasure of one key from one stream and its audits; a run that was killed is completed by the next.

1. ``begun`` is recorded: from then on neither driver nor audit nor backfill begins until it is done.
2. Rows go from the tables of the stream and of its audits, then from the snapshot. Removing them twice does nothing.
3. Tombstones go to compacted topics; a run that finds them there writes none, and one that finds anything else refuses:
   the audit after the erasure reads these topics from behind the tombstones.
4. The newest audit's row of ``runs`` gets the checksums of what is left: all tables are as they will be by now.
5. Files and commits that hold the key are removed.
6. ``done`` is recorded, with the SHA-256 of what the next audit goes on from.

The stream's lease is held all the while, and no certificate can be issued. All of it happens behind the last batch,
which an audit has proved.
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from deltalake import DeltaTable

from recount.audit.carry.delta_frames import purge
from recount.audit.carry.erased_keys import ErasedKeys, run_sha256
from recount.audit.carry.snapshots import snapshot_sha256
from recount.audit.carry.store import CORRECTIONS, SNAPSHOTS, AuditStore, Run
from recount.audit.certificate.issuing import certificates_of, locked
from recount.audit.certificate.signing import signed_record, signer_in, trusted_in
from recount.audit.compare.committed import CommittedRecord, read_committed
from recount.audit.cut.auditable import published_offsets
from recount.audit.cut.audited_ledger import Ledger
from recount.audit.cut.in_force import InForce
from recount.audit.cut.kept_log import decided, decided_if_any
from recount.audit.findings.finding_register import certificates_in_force, read_register
from recount.audit.integrity.strangers import LeftForBackfills, corrections_kept
from recount.audit.integrity.table_checksums import TableChecksums, corrections_of
from recount.declare.output import encode_key
from recount.declare.registry import Stream
from recount.declare.topology import Topology
from recount.engine.commit.delta_table import AppendOnlyTable, LedgerTable
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failing, patiently
from recount.kafka.positions import published_backfills
from recount.lifecycle.held_rows import HeldKey, objection_to
from recount.lifecycle.reset import is_there, require_no_driver, standstill
from recount.runtime.errors import RecountError, Terminal
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms
from recount.tables.batch_proofs import RUNS
from recount.tables.decisions import DeclarationLog, ErasureLog, not_finished
from recount.tables.places import Tables
from recount.tables.signed_orders import Erasure, key_sha256, new_salt

ERASURE_HEADER = "recount-erasure"
_PATIENCE_S = 60.0
Step = Literal["begun", "tables", "audits", "snapshot", "tombstones", "runs", "files", "done"]


def unobserved(step: Step) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Order:
    """Who wants which ``key`` to be forgotten, and why."""

    key: str
    by: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class KeyErasure(ABC):
    """The erasure that ``order`` asks for, from the stream or archive ``declared``.

    ``observer`` is called when a step is done.
    """

    settings: Settings
    declared: Stream
    order: Order
    observer: Callable[[Step], None] = unobserved

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """How many rows of the key there are, by table; tables without any are left out."""

    @abstractmethod
    def _hindrances(self) -> Iterator[str]: ...

    @abstractmethod
    def _behind(self) -> Mapping[str, Any]:
        """The fields of its record that say behind which batch, and audit, the key is erased."""

    @abstractmethod
    def _complete(self, begun: Erasure) -> Erasure: ...

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def objection(self) -> str | None:
        """Why no key can ever be erased from it; None where one can."""
        return objection_to(self.declared) if isinstance(self.declared, Topology) else None

    @property
    def is_begun(self) -> bool:
        """Whether an erasure of this key was begun and is not done."""
        left = self._unfinished
        return left is not None and left.is_of(self.order.key)

    def hindrances(self) -> list[str]:
        """Everything that hinders it now, each with what to do; nothing where a killed run is to be completed."""
        left, objection = self._unfinished, self.objection
        if left is not None:
            return [] if left.is_of(self.order.key) else [str(not_finished(left))]
        if objection is not None:
            return [objection]
        try:
            require_no_driver(Connection.of(self.settings), self.declared)
            keys = self.settings.keys
            unsigned = trusted_in(keys).keys and signer_in(keys) is None
            refused = [f"there is no signing.pem in {keys}: audits would take the record for a forged one"]
            return [*(refused if unsigned else ()), *self._hindrances()]
        except RecountError as refusal:
            return [str(refusal)]

    def run(self) -> Erasure:
        """Erase, or complete what a killed run has begun; raises ``Terminal`` where something stands in the way."""
        with self._alone():
            found = self.hindrances()
            if found:
                raise Terminal.of("nothing-erasable-now", given="; ".join(found), name=self.name)
            begun = self._unfinished or self._record(self._begun())
            self.observer("begun")
            done = self._record(replace(self._complete(begun), state="done"))
            self.observer("done")
            return done

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with standstill(Connection.of(self.settings), self.declared):
            yield

    def _begun(self) -> Erasure:
        salt, at_ms = new_salt(), clock_ms()
        return Erasure(
            erasure=f"{self.name}-{at_ms}",
            stream=self.name,
            state="begun",
            version=DeclarationLog(self.settings.data, self.name).version(),
            at_ms=at_ms,
            by=self.order.by,
            reason=self.order.reason,
            salt=salt,
            key_sha256=key_sha256(salt, self.order.key),
            counts=self.counts(),
            **self._behind(),
        )

    def _record(self, erasure: Erasure) -> Erasure:
        """Append ``erasure``, signed where there is a key; returns it as it is stored."""
        signed = signed_record(erasure, signer_in(self.settings.keys))
        ErasureLog(self.settings.data, self.name).append(signed)
        return signed

    @property
    def _unfinished(self) -> Erasure | None:
        return ErasedKeys.of(self.settings, self.name).unfinished

    @property
    def _tables(self) -> Tables:
        return Tables(self.settings.data)


@dataclass(frozen=True, kw_only=True)
class StreamErasure(KeyErasure):
    declared: Topology

    @property
    def held(self) -> HeldKey:
        return self._held(AuditStore(self._tables, self.name).furthest())

    def _held(self, run: Run | None) -> HeldKey:
        audit = None if run is None else run.audit
        return HeldKey(tables=self._tables, topology=self.declared, audit=audit, key=self.order.key)

    def counts(self) -> dict[str, int]:
        """How many rows of the key there are, by table; tables without any are left out."""
        return self.held.counts()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        folder = certificates_of(self.settings.reports, self.name)
        folder.mkdir(parents=True, exist_ok=True)
        with super()._alone(), locked(folder):
            yield

    def _behind(self) -> Mapping[str, Any]:
        proof, run = Ledger.newest(self._tables, self.name), AuditStore(self._tables, self.name).furthest()
        assert proof is not None, "there is a hindrance"
        assert run is not None, "there is a hindrance"
        offsets: dict[str, dict[str, int]] = {}
        for part in proof.partitions:
            offsets.setdefault(part.topic, {})[str(part.partition)] = part.end
        return {
            "generation": proof.generation,
            "batch": proof.batch,
            "audit": run.audit,
            "offsets": offsets,
            "backfills": published_backfills(Connection.of(self.settings), self.declared),
            "snapshot_before": self._snapshot_sha256(run),
        }

    def _complete(self, begun: Erasure) -> Erasure:
        store = AuditStore(self._tables, self.name)
        run = next(run for run in store.runs() if run.audit == begun.audit)
        held = self._held(run)
        holdings = list(held.holdings())
        steps: tuple[Step, Step] = ("tables", "audits")
        for step in steps:
            for one in holdings:
                if one.name.startswith("audits/") == (step == "audits"):
                    one.remove()
            self.observer(step)
        # after the state: it says which ids are the key's
        if handed_on := held.handed_on:
            handed_on.remove(self.order.key)
        self.observer("snapshot")
        ends = publish_tombstones(Connection.of(self.settings), self.declared, run, begun, self.order.key)
        self.observer("tombstones")
        document = self._noted(store, run, ends)
        self.observer("runs")
        paths = {one.path for one in holdings} | {self._tables.audit(self.name, name) for name in (SNAPSHOTS, RUNS)}
        for path in sorted(paths - {self._tables.state(self.name)}):
            if DeltaTable.is_deltatable(path):
                purge(path)
        purge_state(self._tables, self.name)
        self.observer("files")
        return replace(begun, snapshot_after=self._snapshot_sha256(run), run_sha256=run_sha256(document))

    def _snapshot_sha256(self, run: Run) -> str:
        return snapshot_sha256(self._tables, self.name, run.audit)

    def _hindrances(self) -> Iterator[str]:
        stream, tables, connection = self.name, self._tables, Connection.of(self.settings)
        audit_it = f"run `recount audit --stream {stream}`"
        InForce.of(self.declared, self.settings.data)
        former = f"{tables.root}/former/{stream}"
        if is_there(former):
            yield f"resets have kept tables aside, which are not looked through: remove {former}"
        proof, run = Ledger.newest(tables, stream), AuditStore(tables, stream).furthest()
        if proof is None or run is None:
            yield f"no audit of {stream} is complete: {audit_it}"
            return
        reached = published_offsets(connection, self.declared)
        if any(proof.ends.get(place, -1) < offset for place, offset in reached.items()):
            yield f"Kafka has a batch of {stream} that its tables lack: start it, stop it, then {audit_it}"
        if run.order != proof.order:
            yield f"the last batch, {proof.generation}/{proof.batch}, is not audited: {audit_it}"
            return
        yield from self._unproved(run, audit_it)
        yield from self._held(run).hindrances()

    def _unproved(self, run: Run, audit_it: str) -> Iterator[str]:
        """Findings and gaps of the newest audit, which judged the last batch."""
        stream, tables, connection = self.name, self._tables, Connection.of(self.settings)
        is_open = any(one.state == "open" for one in read_register(self.settings, stream).values())
        if run.outcome != "match" or is_open:
            yield f"findings are open: repair or accept them (`recount findings --stream {stream}`), then {audit_it}"
        certificates = certificates_in_force(self.settings, stream)
        newest: Mapping[str, Any] = max(certificates, key=lambda one: int(one["sequence"]), default={})
        if newest.get("audit") != run.audit:
            yield f"the newest certificate is not that of the audit {run.audit}: {audit_it}"
        done = published_backfills(connection, self.declared)
        if any(corrections_of(tables, node.table, done)[1] for node in self.declared.written):
            yield f"a backfill is not published: run `recount backfill --stream {stream}`, then {audit_it}"
        for table, sums in run.tables.items():
            if not sums.hold(tables, table, run.order, done):
                yield f"rows of {table} are others than the audit {run.audit} judged: {audit_it}"
        erased = ErasedKeys.of(self.settings, stream)
        if LeftForBackfills(settings=self.settings, stream=stream, erased=erased).is_altered(run):
            yield f"audits/{stream}/{CORRECTIONS} has other rows than the audit {run.audit} left: {audit_it}"
        handed_on, told = self._held(run).handed_on, erased.snapshot_of(run.audit, newest.get("snapshot"))
        if handed_on is None or told != self._snapshot_sha256(run):
            yield f"the snapshot of the audit {run.audit} is not what its certificate says: {audit_it}"
        else:
            handed_on.count(self.order.key)  # raises where rows of a key cannot be found
        for topic in compacted(self.declared):
            if records_since(connection, run, topic):
                yield f"{topic} has records since the audit {run.audit}: {audit_it}"

    def _noted(self, store: AuditStore, run: Run, ends: Mapping[str, Mapping[int, int]]) -> dict[str, Any]:
        """Put the checksums of the tables as they are now, and where topics ``ends`` now, into the row of ``run``.

        Returns that row. Rows of older audits, from which none goes on any more, lose the key only.
        """
        for other in store.runs():
            document = store.document_of(other.audit)
            changed = self._without_key(document)
            if changed != document:
                store.put_document(changed)
        run = next(one for one in store.runs() if one.audit == run.audit)
        document, tables = store.document_of(run.audit), self._tables
        sums = {
            name: asdict(TableChecksums.of(tables, name, run.order, one.backfills, one.kept, one.unsettled))
            for name, one in run.tables.items()
        }
        document |= {"tables": sums, "read_to": {**document["read_to"], **json.loads(json.dumps(ends))}}
        if run.built_on:
            document["built_on"] = [asdict(corrections_kept(store, run.audit))]
        store.put_document(document)
        return store.document_of(run.audit)

    def _without_key(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The row ``document`` of ``runs`` without the rows of the key that an audit has found wrong."""
        tables = {}
        for name, one in document.get("tables", {}).items():
            unsettled = one.get("unsettled")
            rows = [row for row in unsettled["rows"] if row[0] != self.order.key] if unsettled else []
            tables[name] = {**one, "unsettled": {**unsettled, "rows": rows}} if unsettled else one
        return {**document, "tables": tables} if tables else dict(document)


def purge_state(tables: Tables, stream: str) -> None:
    """Purge the state table of ``stream``, whose proofs are moved to the table ``ledger`` before its commits go."""
    path = tables.state(stream)
    if not DeltaTable.is_deltatable(path):
        return
    ledger = LedgerTable(tables.ledger(stream), AppendOnlyTable(path=path, schema={}, carries_proofs=True))
    ledger.table.create()

    def move(version: int) -> None:
        moved = ledger.move()
        if moved < version:
            raise Terminal.of("proofs-not-moved", given=f"moved up to version {moved}", version=version)

    purge(path, move)


def compacted(topology: Topology) -> list[str]:
    return [node.topic.name for node in topology.written if "compact" in node.topic.cleanup_policy]


def records_since(connection: Connection, run: Run, topic: str) -> list[CommittedRecord]:
    """The records of a sink's ``topic`` that ``run`` had not read."""
    seen = run.read_to.get(topic, {})
    ends = decided_if_any(connection, topic)
    since = {partition: (seen.get(partition, 0), end) for partition, (_, end) in ends.items()}
    return list(read_committed(connection, topic, since))


def publish_tombstones(
    connection: Connection, topology: Topology, run: Run, erasure: Erasure, key: str
) -> dict[str, dict[int, int]]:
    """Write what is not there yet, in one transaction, where the key had rows; returns where the topics end then.

    Raises ``Terminal`` where anybody else has written to one of them since ``run``, the newest audit.
    """
    held = {name.partition("/")[2] for name in erasure.counts if name.startswith(("outputs/", "corrections/"))}
    of_held = {node.topic.name for node in topology.written if node.table in held}
    topics = [topic for topic in compacted(topology) if topic in of_held]
    missing = []
    for topic in topics:
        found = records_since(connection, run, topic)
        for one in found:
            is_mine = one.value is None and one.key == encode_key(key)
            if not is_mine or one.header(ERASURE_HEADER) != erasure.erasure:
                raise Terminal.of(
                    "tombstones-overwritten",
                    given=f"{topic}-{one.partition}@{one.offset}",
                    topic=topic,
                    audit=run.audit,
                    name=topology.name,
                )
        if not found:
            missing.append(topic)
    _write(connection, topology.name, missing, erasure.erasure, key)
    return {topic: {partition: span.end for partition, span in decided(connection, topic).items()} for topic in topics}


def _write(connection: Connection, stream: str, topics: Sequence[str], erasure: str, key: str) -> None:
    if not topics:
        return
    named = connection.own(f"recount.{stream}.erasure")
    producer = connection.producer({"transactional.id": named, "linger.ms": 0})
    headers: list[tuple[str, str | bytes | None]] = [(ERASURE_HEADER, erasure.encode())]
    with failing(f"publishing the tombstones of {erasure}"):
        producer.init_transactions(REQUEST_TIMEOUT_S)
        producer.begin_transaction()
        for topic in topics:
            producer.produce(topic, key=encode_key(key), value=None, headers=headers)
        patiently(lambda: producer.commit_transaction(REQUEST_TIMEOUT_S), time.monotonic() + _PATIENCE_S)
