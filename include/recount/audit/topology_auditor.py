"""One audit of any topology, start to end: cut, recompute, judge every sink, keep what the next one needs."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from recount.audit.audit_session import FEW_OFFSETS
from recount.audit.carry.delta_frames import frame_at
from recount.audit.carry.removed import kept_late, released_by
from recount.audit.carry.snapshots import PASSING, Frames, Snapshots
from recount.audit.carry.store import CORRECTIONS, RECONCILIATION, VERDICTS, AuditStore
from recount.audit.compare.claims import IDENTITY
from recount.audit.compare.conservation import accounts, conservation_differences, totals_by_topic
from recount.audit.compare.correction_claims import Corrections, strange_backfills
from recount.audit.compare.differences import (
    SINK,
    correction_differences,
    output_differences,
    reconciled,
    verdict_counts,
    with_partitions,
)
from recount.audit.compare.fidelity import PLACES
from recount.audit.compare.identity import Identity, identity_of
from recount.audit.compare.judge import Judge
from recount.audit.compare.results import charted
from recount.audit.compare.side_ledgers import Listing
from recount.audit.cut.auditable import judgeable_offsets, settled_ledger
from recount.audit.cut.audited_ledger import Ledger, Repetition, ledger_faults, topic_faults
from recount.audit.cut.in_force import InForce
from recount.audit.cut.kept_log import StretchLog, log_of, sources_of, unread
from recount.audit.cut.scope import (
    CLAIMS_PART,
    COMPLETE_PART,
    CORRECTED_PART,
    LATE_PART,
    TRUTH_PART,
    UNREAD_PART,
    Scope,
    Scoping,
    batch_ends,
    table_ends,
)
from recount.audit.cut.standing import unsettled_rows
from recount.audit.explain.causes import with_batches
from recount.audit.explain.completeness import COMPLETENESS, LookupShare, short_lived
from recount.audit.explain.misses import Beyond, grace_misses, missed_rows, still_late, still_unread, unexplained
from recount.audit.findings.finding_register import Findings, Interval, Source, certificates_in_force
from recount.audit.integrity.evidence import Evidence, Witness
from recount.audit.integrity.strangers import corrections_kept, overfull_batches, strange_rows, written_since
from recount.audit.integrity.table_checksums import KeptRows, TableChecksums, Unsettled
from recount.audit.integrity.table_files import altered_files
from recount.certificate.finding import Difference, GraceMiss, PartitionAccount, Register
from recount.declare.operators.event_time import lookup_name, newer_tables
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin
from recount.declare.operators.processing import Deduplicate
from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.recompute.digests import DigestedLog
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_frames import Frame, once
from recount.recompute.frames.duck_handover import Handover
from recount.recompute.operators.carried import LOOK_BACK_MS, is_incremental
from recount.recompute.operators.frontiers import NONE_DUE, behind
from recount.recompute.operators.recomputed import Recomputed, recomputed
from recount.recompute.raw_log import KafkaLog, Log
from recount.recompute.registry_parsing import is_with_headers
from recount.recompute.rules.time_rules import longest_ms, longest_open_ms
from recount.runtime.settings import Settings
from recount.tables.places import Released, Tables, ageing, farthest

_LOG = logging.getLogger(__name__)


class TopologyAuditor:
    """Audits a stream of any shape that can be recomputed, night by night.

    The range since the last audit's cut is recomputed twice, with lateness and without, each from what that audit
    left in its snapshot. Raises ``NotRecomputable``, with the operator, for what is no function of the log.
    """

    def __init__(self, session: SparkSession, settings: Settings, topology: Topology) -> None:
        self._session = session
        self._settings = settings
        self._topology = topology
        self._tables = Tables(settings.data)
        self._connection = Connection.of(settings)
        self.store = AuditStore(self._tables, topology.name)
        self._snapshots = Snapshots(tables=self._tables, stream=topology.name)
        self._in_force = InForce.of(topology, settings.data)
        self._is_incremental = is_incremental(topology)
        self._identities = [
            replace(identity_of(node), was_added=node.topic.name in self._in_force.added) for node in topology.written
        ]

    def audit(
        self,
        audit: str,
        interval: Interval,
        *,
        source: Source = "auto",
        from_the_beginning: bool = False,
        known: Register | None = None,
        repetition: Repetition | None = None,
    ) -> Findings:
        """Judge everything up to the last batch before the interval's end, or what the audit to be repeated did.

        It goes on where the last audit ended. It begins ``from_the_beginning`` too where there is no snapshot of this
        declaration, where rows that were judged are others now, as long as the whole log is there, and where a
        partition that had been silent brings records that are on time, and older than what the last audit handed on.
        Raises ``Transient`` when the stream is stuck between its two commits, ``Terminal`` when there is nothing to
        audit or the log has expired.
        """
        sources = sources_of(self._connection, self._tables, self._topology, source)
        there = StretchLog(connection=self._connection, tables=self._tables, sources=sources)
        scoping = Scoping(
            settings=self._settings,
            topology=self._topology,
            connection=self._connection,
            store=self.store,
            snapshots=self._snapshots,
            in_force=self._in_force,
            identities=self._identities,
            is_incremental=self._is_incremental,
        )
        scope = scoping.scope(audit, interval, there, repetition, from_the_beginning=from_the_beginning)
        log = DigestedLog(log_of(self._settings, sources))
        there.require(scope.ledger)
        # many records go through files that Spark's tasks reach too
        is_large = scope.ledger.offsets > FEW_OFFSETS
        passing = self._tables.audit(self._topology.name, PASSING) if is_large else None
        handover = Handover.of(self._session, self._settings.audit_memory, passing)
        database = handover.database
        truth = self._recomputed(scope, log, handover, None)
        complete = self._recomputed(scope, log, handover, truth)
        beyond = Beyond.of(truth, complete)
        if beyond.on_time and repetition is None:
            truth.release()
            beyond.require_more_log(from_the_beginning=from_the_beginning)
            _LOG.warning("records on time are older than what is carried, %s: all is judged again", beyond.on_time)
            return self.audit(audit, interval, source=source, from_the_beginning=True, known=known)
        corrections = Corrections(
            database=database,
            tables=self._tables,
            cut=scope.cut,
            backfills=scope.backfills,
            known=scope.known_corrections(database),
        )
        judge = Judge(
            handover=handover,
            connection=self._connection,
            sent=DigestedLog(KafkaLog(options=self._connection.of_spark)),
            tables=self._tables,
            cut=scope.cut,
            published=scope.unseen,
            before=scope.before_judged(database),
            corrections=corrections if scope.done else None,
            released=scope.released,
            charted=charted(self._topology),
        )
        judged = once(judge.judged(list(scope.identities), truth, complete))
        try:
            findings = self._findings(
                scope, interval, source, log, (truth, complete), judge, judged, beyond, known or {}
            )
            if repetition is not None or not self._is_incremental:
                return findings
            kept = self._keep(scope, judge, judged, truth, complete, findings)
            return replace(findings, snapshot_sha256=kept)
        finally:
            truth.release()

    def _findings(
        self,
        scope: Scope,
        interval: Interval,
        source: Source,
        log: DigestedLog,
        sides: tuple[Recomputed, Recomputed],
        judge: Judge,
        judged: Frame,
        beyond: Beyond,
        known: Register,
    ) -> Findings:
        truth, _ = sides
        counts = verdict_counts(judged)
        late = self._late_ledger(scope, truth)
        missed = counts.get(f"{COMPLETENESS} missed")
        known_late, changes = scope.late(late, truth), scope.unread(truth)
        before = self.store.misses(scope.seed.run.audit) if missed and scope.seed.run else []
        misses: list[GraceMiss] = []
        if missed:
            misses = grace_misses(
                judged, known_late, changes, self._topology, sides=sides, identities=scope.identities, before=before
            )
        accounted = self.store.partitions(scope.seed.run.audit) if scope.seed.run else []
        times = {(part.topic, part.partition): part.stream_time_ms for part in accounted}
        totals = totals_by_topic(truth, scope.ledger, times)
        found = {topic: accounts(self._connection, truth, topic, parts) for topic, parts in totals.items()}
        differences = [
            *topic_faults(scope.before, scope.ledger.proofs, scope.topic_ids),
            *scope.short,
            *([] if scope.ledger.stands else ledger_faults(scope.before, scope.ledger.proofs, self._topology)),
            *scope.erased.differences_behind(scope.seed.run, self.store),
            *scope.aside.differences(),
            *strange_rows(self._tables, self._topology, scope.settled, lambda: self._settled(scope)),
            *altered_files(self._tables, self._topology, scope.identities, scope.seed.order, scope.cut),
            *(unread(self._connection, scope.ledger, self._in_force) if scope.seed.run is None else []),
            *(one for t in totals for one in conservation_differences(found[t], totals[t], scope.ledger)),
            *self._listing(scope, judge.handover).differences(truth),
            *with_batches(output_differences(judged, self._topology), self._topology, truth, scope.ledger),
            *correction_differences(judged),
            *self._strange_backfills(scope),
            *(written_since(table, scope.seed) for table in scope.altered),
            *unexplained(misses),
        ]
        differences = with_partitions(differences, self._topology, truth)
        differences = differences or overfull_batches(self._tables, self._topology, scope.ledger)
        verdicts = [f"{place}_verdict" for place in PLACES]
        self.store.put(VERDICTS, scope.audit, judged.select(SINK, *IDENTITY, *verdicts, COMPLETENESS))
        if missed:
            self.store.put(CORRECTIONS, scope.audit, missed_rows(judged, scope.identities, truth))
        self.store.put(RECONCILIATION, scope.audit, reconciled(judged))
        all_accounts = [account for parts in found.values() for account in parts]
        self.store.put_findings(scope.audit, all_accounts, differences, misses)
        newer = newer_tables(self._topology.nodes(), all_accounts)
        is_clean = not differences and all(one.state != "open" for one in known.values())
        unsettled = unsettled_rows(judged, scope.identities) if differences else {}
        certificates = certificates_in_force(self._settings, self._topology.name)
        released = released_by(self._tables, self._topology, scope.ledger, certificates, is_clean=is_clean)
        gone = farthest(scope.released, released)
        return Findings(
            audit=scope.audit,
            topology=self._topology,
            interval=interval,
            source=source,
            seed=scope.seed,
            before=scope.before,
            ledger=scope.ledger,
            frontier_ms=self._in_force.closing(scope.settled.between(None, scope.cut).frontier_ms),
            accounts=tuple(all_accounts),
            counts=counts,
            differences=tuple(differences),
            misses=tuple(misses),
            in_force=self._in_force,
            evidence=self._evidence(scope, log, judge.sent, all_accounts),
            chart=judge.chart(judged),
            read_to={topic: {p: end for p, (_, end) in spans.items()} for topic, spans in scope.published.items()},
            tables={
                one.written.table: self._checksums(one, scope, gone, unsettled.get(one)) for one in scope.identities
            },
            released=released,
            beyond_found=beyond.found,
            beyond=beyond.places,
            fingerprint=self._in_force.declared.fingerprint,
            erasures=scope.erased.done,
            short_lived=tuple(short_lived(self._tables, self._topology, scope.ledger)),
            lookups=tuple(
                LookupShare(lookup=lookup_name(node), records=asked, misses=missed, cause=newer.get(lookup_name(node)))
                for node, (asked, missed) in truth.lookup_counts().items()
            ),
            set_aside=scope.aside.read_by(scope.ledger.proofs[-1]),
            begins_after=scope.begins_after,
            built_on=(corrections_kept(self.store, scope.audit),) if missed else (),
        )

    def _checksums(
        self, identity: Identity, scope: Scope, gone: Released | None, unsettled: Unsettled | None
    ) -> TableChecksums:
        written = identity.written
        kept = KeptRows.of(ageing(written), gone, written.key)
        return TableChecksums.of(self._tables, written.table, scope.cut, scope.done, kept, unsettled)

    def _keep(
        self,
        scope: Scope,
        judge: Judge,
        judged: Frame,
        truth: Recomputed,
        complete: Recomputed,
        findings: Findings,
    ) -> str:
        """Leave the next audit what it needs; returns the SHA-256 of that."""
        frontier_ms = scope.settled.between(None, scope.cut).frontier_ms
        recent_ms = NONE_DUE if frontier_ms is None else frontier_ms - LOOK_BACK_MS
        since_ms = min(recent_ms, truth.reaches_back_to_ms(), complete.reaches_back_to_ms())
        parts: dict[str, Frames] = {
            TRUTH_PART: truth.kept(),
            COMPLETE_PART: complete.kept(),
            CLAIMS_PART: judge.to_keep(judged, since_ms - longest_open_ms(self._topology)),
            CORRECTED_PART: judge.corrections_to_keep(judged),
        }
        open_since_ms = behind(since_ms, longest_ms(self._topology))
        released = farthest(scope.released, findings.released)
        if findings.misses or released is not None:
            late = scope.late(self._late_ledger(scope, truth), truth)
            found = still_late(judged, late, self._topology, open_since_ms, released)
            parts[LATE_PART] = {LATE_PART: found}
        if any(isinstance(node, StreamTableJoin | StreamStreamJoin | Deduplicate) for node in self._topology.nodes()):
            found = still_unread(judged, scope.unread(truth), self._topology, open_since_ms)
            parts[UNREAD_PART] = {UNREAD_PART: found}
        self._snapshots.put(scope.audit, parts)
        self._snapshots.keep_newest(scope.audit, beside=self._begun_with(scope))
        return self._snapshots.sha256(scope.audit)

    def _begun_with(self, scope: Scope) -> set[str]:
        """The audits with which one ``--from-the-beginning`` begins: after an erasure, and after an upgrade."""
        newest, after = scope.erased.newest, self._in_force.judged_after
        upgraded = {run.audit for run in self.store.runs() if run.order == after}
        return upgraded | ({newest.audit} if newest and newest.audit else set())

    def _evidence(
        self, scope: Scope, log: DigestedLog, sent: DigestedLog, accounts: Sequence[PartitionAccount]
    ) -> Evidence:
        witness = Witness(
            session=self._session,
            connection=self._connection,
            tables=self._tables,
            log=log,
            sent=sent,
            seed=scope.seed.order,
            cut=scope.cut,
        )
        written = [one.written for one in scope.identities]
        return witness.evidence(accounts, written, scope.unseen, scope.backfills)

    def _recomputed(self, scope: Scope, log: Log, handover: Handover, truth: Recomputed | None) -> Recomputed:
        """The truth; or after it, of the same logs, what there would be if nothing were late."""
        ledger, ranges = scope.ledger, scope.ledger.ranges
        headers = {source.topic.name for source in self._topology.sources if is_with_headers(source)}
        read = {} if truth else ranges
        return recomputed(
            self._session,
            self._topology,
            {
                topic: log.read(self._session, topic, spans, with_headers=topic in headers)
                for topic, spans in read.items()
            },
            limits={topic: ledger.limits(topic, self._topology.max_future_ms, scope.aside.offsets) for topic in ranges},
            lateness=truth is None,
            same_logs=truth,
            table_ends=table_ends(ledger, self._topology),
            batches=batch_ends(ledger),
            done_before=self._in_force.done_before(ledger),
            read_since=self._in_force.read_since(ledger),
            carried=scope.carried(COMPLETE_PART if truth else TRUTH_PART),
            closed_ms=self._in_force.closed_ms,
            handover=handover,
        )

    def _listing(self, scope: Scope, handover: Handover) -> Listing:
        return Listing(
            handover=handover,
            connection=self._connection,
            tables=self._tables,
            topology=self._topology,
            ledger=scope.ledger,
            seed=scope.seed.order,
            posted=scope.posted,
            last=scope.settled.proofs[-1],
            released=scope.released,
        )

    def _strange_backfills(self, scope: Scope) -> list[Difference]:
        if not scope.listed:
            return []
        audits = {run.audit for run in self.store.runs()}
        reached = judgeable_offsets(self._connection, self._tables, self._topology)
        batches = {proof.order for proof in settled_ledger(self._tables, self._topology, reached).proofs}
        return strange_backfills(scope.listed, scope.done, audits, batches)

    def _settled(self, scope: Scope) -> Ledger:
        reached = judgeable_offsets(self._connection, self._tables, self._topology)
        return settled_ledger(self._tables, self._topology, reached, down_to=scope.settled.proofs[-1].order)

    def _late_ledger(self, scope: Scope, truth: Recomputed) -> Frame:
        """The lines of the late ledger that must be there, and no others."""
        late = frame_at(truth.late.database, self._tables.late(self._topology.name), up_to=scope.cut)
        return late.where(kept_late(scope.released, F))
