"""The erasure of one key from one stream and its audits; a run that was killed is completed by the next.

1. ``begun`` is recorded: from then on neither driver nor audit nor backfill begins until it is done.
2. Rows go from the stream's tables, then from the audits', then from the snapshot. Removing them twice does nothing.
3. Tombstones go to compacted topics; a run that finds them there writes none.
4. The newest audit's row of ``runs`` gets the checksums of what is left: all tables are as they will be by now.
5. Files and commits that hold the key are removed.
6. ``done`` is recorded, with the SHA-256 of what the next audit goes on from.

The stream's lease is held all the while, and no certificate can be issued.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import polars as pl
from deltalake import DeltaTable

from recount.audit.audit_shape import flow_of
from recount.audit.carry.delta_frames import purge
from recount.audit.carry.erased_keys import ErasedKeys, run_sha256
from recount.audit.carry.store import CORRECTIONS, SNAPSHOTS, AuditStore, Run
from recount.audit.certificate.issuing import certificates_of, locked
from recount.audit.certificate.signing import signed_record, signer_in
from recount.audit.integrity.altered_lineage import rows_of, seed_sha256
from recount.audit.integrity.table_checksums import KeptRows, LineageChecksums, TableChecksums
from recount.declare.topology import Topology
from recount.engine.commit.delta_table import AppendOnlyTable, LedgerTable
from recount.kafka.connection import Connection
from recount.kafka.positions import published_backfills
from recount.lifecycle.erasure.erased_rows import StateRows, count_in_snapshot, erase_from_snapshots, snapshot_sha256
from recount.lifecycle.erasure.hindrances import Ready, Tombstones, hindrances, newest_audit, ready
from recount.lifecycle.erasure.holdings import all_paths, of_audits, of_stream
from recount.lifecycle.reset import standstill
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.decisions import DeclarationLog, ErasureLog, not_finished
from recount.tables.places import Tables
from recount.tables.signed_orders import Erasure, key_sha256, new_salt

Step = Literal["begun", "tables", "audits", "snapshot", "tombstones", "runs", "files", "done"]
Observer = Callable[[Step], None]
_AT_ONCE = 1_000


def note_anew(
    store: AuditStore,
    tables: Tables,
    topology: Topology,
    run: Run,
    key: str,
    ends: Mapping[str, Mapping[int, int]],
) -> dict[str, Any]:
    """Put the checksums of the tables as they are now, and where topics ``ends`` now, into the row of ``run``.

    Returns that row. Rows of older audits, from which none goes on any more, lose the key only.
    """
    for other in store.runs():
        document = store.document_of(other.audit)
        changed = {**document, **_without_key(document, key)}
        if other.audit == run.audit:
            changed = {**changed, **_now(tables, topology, run, key, ends)}
            if run.built_on:
                of_tables = run.built_on[-1].tables
                kept = None if CORRECTIONS in of_tables else KeptRows.of("window", run.released)
                sums = LineageChecksums.of(run.audit, rows_of(store, run.lineage, of_tables), kept)
                changed = {**changed, "built_on": [asdict(sums)]}
        if changed != document:
            store.put_document(changed)
    return store.document_of(run.audit)


def _now(
    tables: Tables, topology: Topology, run: Run, key: str, ends: Mapping[str, Mapping[int, int]]
) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if run.checksums is not None:
        told["checksums"] = _summed(tables, topology.written[0].table, run, run.checksums, key)
        for found in ends.values():
            told["published_ends"] = {str(partition): end for partition, end in found.items()}
    if run.tables:
        told["tables"] = {name: _summed(tables, name, run, one, key) for name, one in run.tables.items()}
        told["read_to"] = {
            topic: {str(partition): end for partition, end in ends.get(topic, seen).items()}
            for topic, seen in run.read_to.items()
        }
    return told


def _summed(tables: Tables, table: str, run: Run, before: TableChecksums, key: str) -> dict[str, Any]:
    unsettled = before.unsettled
    if unsettled is not None:
        left = [row for row in unsettled.rows if row[0] != key]
        unsettled = type(unsettled)(**{**asdict(unsettled), "rows": left})
    return asdict(TableChecksums.of(tables, table, run.order, before.backfills, before.kept, unsettled))


def _without_key(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The entries of ``document`` that name rows, without those of ``key``."""
    told = {}
    for name, one in document.get("tables", {}).items():
        unsettled = one.get("unsettled")
        if unsettled:
            rows = [row for row in unsettled["rows"] if row[0] != key]
            told[name] = {**one, "unsettled": {**unsettled, "rows": rows}}
    return {"tables": {**document["tables"], **told}} if told else {}


def unobserved(step: Step) -> None:
    """The observer of every day."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """Who wants which ``key`` to be forgotten, and why."""

    key: str
    by: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class StreamErasure:
    """The erasure that ``order`` asks for, from ``topology``. ``observer`` is called when a step is done."""

    settings: Settings
    topology: Topology
    order: Order
    observer: Observer = unobserved

    def counts(self) -> dict[str, int]:
        """How many rows of the key there are, by table; tables without any are left out."""
        holdings = [*of_stream(*self._where), *of_audits(self._tables, self.topology)]
        found = {one.name: one.count(self.order.key) for one in holdings}
        found["rejected"] = count_rejected(self._tables, self.topology.name, self.order.key)
        run = newest_audit(self.settings, self.topology.name)
        found["state"] = found.get("state", 0) + self._state_rows(run).count()
        if run and AuditStore(None, self._tables, self.topology.name).has(SNAPSHOTS, run.audit) and self._is_general:
            found["audits/snapshots"] = count_in_snapshot(self._tables, self.topology.name, run.audit, self.order.key)
        return {name: number for name, number in found.items() if number}

    def hindrances(self) -> list[str]:
        """Hindrances; none where a killed erasure of this key is to be completed."""
        left = self._unfinished()
        if left is None:
            return hindrances(self.settings, self.topology, self.order.key)
        return [] if left.is_of(self.order.key) else [str(not_finished(left))]

    def run(self) -> Erasure:
        """Erase, or complete what a killed run has begun; raises ``Terminal`` where something stands in the way."""
        with self._alone():
            found = self.hindrances()
            if found:
                raise Terminal(
                    f"nothing can be erased from {self.topology.name} now",
                    given="; ".join(found),
                    expected="a stream that stands still, whose newest audit is a match up to its last batch",
                    remedy="do what is said, then run this again",
                )
            begun = self._unfinished() or self._begin(ready(self.settings, self.topology))
            self.observer("begun")
            return self._complete(begun)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        folder = certificates_of(self.settings.reports, self.topology.name)
        folder.mkdir(parents=True, exist_ok=True)
        with standstill(Connection.of(self.settings), self.topology), locked(folder):
            yield

    def _begin(self, at: Ready) -> Erasure:
        offsets: dict[str, dict[str, int]] = {}
        for part in at.proof.partitions:
            offsets.setdefault(part.topic, {})[str(part.partition)] = part.end
        salt, at_ms = new_salt(), time.time_ns() // 1_000_000
        begun = Erasure(
            erasure=f"{self.topology.name}-{at_ms}",
            stream=self.topology.name,
            state="begun",
            version=DeclarationLog(self.settings.data, self.topology.name).version(),
            at_ms=at_ms,
            by=self.order.by,
            reason=self.order.reason,
            generation=at.proof.generation,
            batch=at.proof.batch,
            audit=at.run.audit,
            salt=salt,
            key_sha256=key_sha256(salt, self.order.key),
            offsets=offsets,
            counts=self.counts(),
            backfills=published_backfills(Connection.of(self.settings), self.topology),
            snapshot_before=self._snapshot(at.run),
        )
        return record(self.settings, begun)

    def _complete(self, begun: Erasure) -> Erasure:
        stream, key, tables = self.topology.name, self.order.key, self._tables
        run = self._run_of(begun)
        for one in of_stream(*self._where):
            one.remove(key)
        # before the snapshot loses the key: it says which ids are the key's
        self._state_rows(run).remove()
        remove_rejected(tables, stream, key)
        self.observer("tables")
        for one in of_audits(tables, self.topology):
            one.remove(key)
        self.observer("audits")
        if self._is_general:
            erase_from_snapshots(tables, stream, run.audit, key)
        self.observer("snapshot")
        ends = self._tombstones(begun, run)
        self.observer("tombstones")
        document = note_anew(AuditStore(None, tables, stream), tables, self.topology, run, key, ends)
        self.observer("runs")
        for path in all_paths(*self._where):
            purge(path)
        purge_state(tables, stream)
        self.observer("files")
        done = replace(begun, state="done", snapshot_after=self._snapshot(run), run_sha256=run_sha256(document))
        done = record(self.settings, done)
        self.observer("done")
        return done

    def _tombstones(self, begun: Erasure, run: Run) -> Mapping[str, Mapping[int, int]]:
        tombstones = Tombstones(
            connection=Connection.of(self.settings),
            topology=self.topology,
            run=run,
            erasure=begun.erasure,
            key=self.order.key,
        )
        held = {name for name in begun.counts if begun.counts[name]}
        written = [
            node.topic.name
            for node in self.topology.written
            if held & {f"outputs/{node.table}", f"corrections/{node.table}"}
        ]
        return tombstones.publish(written)

    def _state_rows(self, run: Run | None) -> StateRows:
        audit = None if run is None else run.audit
        return StateRows(tables=self._tables, topology=self.topology, audit=audit, key=self.order.key)

    def _snapshot(self, run: Run) -> str:
        if self._is_general:
            return snapshot_sha256(self._tables, self.topology.name, run.audit)
        return seed_sha256(self._tables, self.topology.name, run.lineage)

    def _run_of(self, begun: Erasure) -> Run:
        return next(
            run for run in AuditStore(None, self._tables, self.topology.name).runs() if run.audit == begun.audit
        )

    def _unfinished(self) -> Erasure | None:
        return ErasedKeys.of(self.settings, self.topology.name).unfinished

    @property
    def _is_general(self) -> bool:
        return flow_of(self.topology) is None

    @property
    def _tables(self) -> Tables:
        return Tables(self.settings.data)

    @property
    def _where(self) -> tuple[Tables, Topology, str]:
        return self._tables, self.topology, self.order.key


def record(settings: Settings, erasure: Erasure) -> Erasure:
    """Append ``erasure`` to the records of its stream, signed where there is a key; returns it as it is stored."""
    signed = signed_record(erasure, signer_in(settings.keys))
    ErasureLog(settings.data, erasure.stream).append(signed)
    return signed


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
            raise Terminal(
                "the proofs of the newest batches are not in the ledger",
                given=f"moved up to version {moved}",
                expected=f"version {version}",
                remedy="run the erasure again",
            )

    purge(path, move)


def count_rejected(tables: Tables, stream: str, key: str) -> int:
    """How many rows tell of ``key``."""
    return len(_naming(tables.rejected(stream), key))


def remove_rejected(tables: Tables, stream: str, key: str) -> None:
    """Delete these rows. A record's place and why it was rejected says nothing of a key, so other rows stay."""
    path = tables.rejected(stream)
    places = _naming(path, key)
    for start in range(0, len(places), _AT_ONCE):
        told = " OR ".join(
            f"(topic = '{topic}' AND partition = {partition} AND offset = {offset})"
            for topic, partition, offset in places[start : start + _AT_ONCE]
        )
        DeltaTable(path).delete(told)


def _naming(path: str, key: str) -> list[tuple[str, int, int]]:
    """The places of records whose detail has ``key`` as a word of its own."""
    if not key or not DeltaTable.is_deltatable(path):
        return []
    rows = pl.scan_delta(path).filter(pl.col("detail").str.contains(key, literal=True))
    found = rows.select("topic", "partition", "offset", "detail").collect().iter_rows()
    return [(topic, partition, offset) for topic, partition, offset, detail in found if named_in(detail, key)]


def named_in(text: str, key: str) -> bool:
    """Whether ``text`` has ``key`` as a word of its own."""
    return re.search(rf"(?<!\w){re.escape(key)}(?!\w)", text) is not None
