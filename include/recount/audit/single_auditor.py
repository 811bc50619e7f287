"""One audit of one stream, start to end: cut, recompute, judge, keep."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from pyspark.sql import SparkSession

from recount.audit.audit_session import FEW_OFFSETS
from recount.audit.carry.erased_keys import AsideRecords, ErasedKeys
from recount.audit.carry.removed import released_by, released_so_far
from recount.audit.carry.snapshots import PASSING, keep_partials, keep_published
from recount.audit.carry.store import NOTHING, AuditStore, Seed
from recount.audit.compare.conservation import (
    PartitionTotals,
    accounts,
    conservation_differences,
    totals_by_topic,
)
from recount.audit.compare.identity import identity_of
from recount.audit.compare.published import written_after
from recount.audit.compare.results import charted
from recount.audit.compare.side_ledgers import Listing
from recount.audit.compare.single_judge import Judge, Judgement, Row, Stretch
from recount.audit.cut.auditable import covered, judgeable_offsets, settled_ledger
from recount.audit.cut.audited_ledger import Ledger, Order, Repetition, ledger_faults, topic_faults
from recount.audit.cut.in_force import InForce, certified_runs
from recount.audit.cut.kept_log import (
    Reach,
    StretchLog,
    decided,
    decided_if_any,
    log_of,
    sources_of,
    still_seen,
    unread,
)
from recount.audit.explain.causes import output_differences, unlisted_difference
from recount.audit.explain.completeness import short_lived, unexplained
from recount.audit.findings.finding_register import Findings, Interval, Source, certificates_in_force
from recount.audit.integrity.evidence import Evidence, Witness
from recount.audit.integrity.strangers import Lineage, hidden_rows, overfull_batches, strange_rows
from recount.audit.integrity.table_checksums import KeptRows, TableChecksums
from recount.audit.integrity.table_files import altered_files
from recount.certificate.finding import Difference, PartitionAccount, Register
from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.kafka.offsets import LogRange
from recount.kafka.positions import published_backfills
from recount.kafka.topics_on_cluster import ids_of
from recount.recompute.digests import DigestedLog
from recount.recompute.frames.duck_handover import Room
from recount.recompute.operators.recomputed import recomputed
from recount.recompute.raw_log import Ranges
from recount.recompute.registry_parsing import is_with_headers
from recount.recompute.single_flow import Flow
from recount.recompute.window_partials import WindowPartials
from recount.runtime.settings import Settings
from recount.tables.ledger import BatchProof, TopicIds
from recount.tables.places import Tables, farthest

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """Scope of one audit: of those ``settled``, ``ledger`` are the batches to judge, ``before`` the one they follow.

    ``published`` and ``letters`` are what the sink's and the dead-letter topic held when the audit began, the former
    with the first ``published_backfills``, ``seen`` up to where an earlier audit has read the sink's topic;
    ``backfills`` those whose corrections count (None: all). ``erased`` are the keys that were erased so far, and
    ``begins_after`` is the erasure behind which an audit from the beginning cannot look. ``topic_ids`` have the topics
    now that the stream reads and writes; ``short`` are the partitions whose log was cut short; ``aside`` are the
    records that were set aside by order.
    """

    stretch: Stretch
    source: Source
    settled: Ledger
    before: BatchProof | None
    ledger: Ledger
    ranges: Ranges
    published_backfills: int
    published: Mapping[int, LogRange]
    seen: Mapping[int, int]
    letters: Ranges
    backfills: Sequence[str] | None
    erased: ErasedKeys
    begins_after: str | None
    topic_ids: TopicIds
    short: tuple[Difference, ...]
    aside: AsideRecords

    @property
    def unseen(self) -> Ranges:
        """The kept offsets of the sink's topic that no earlier audit has read."""
        return {p: (max(span.start, self.seen.get(p, 0)), span.end) for p, span in self.published.items()}


class Auditor:
    """Audits one stream that is a single aggregation, night by night.

    Of the stream it reads the declarations, the log, the ledger and the outputs.
    """

    def __init__(self, session: SparkSession, settings: Settings, topology: Topology) -> None:
        self._session = session
        self._settings = settings
        self._topology = topology
        self._flow = Flow.of(topology)
        self._source = self._flow.source.topic
        self._tables = Tables(settings.data)
        self._connection = Connection.of(settings)
        self.store = AuditStore(session, self._tables, topology.name)
        self._in_force = InForce.of(topology, settings.data)

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
        """Judge everything up to the last batch before the interval's end, from where the audit before it ended.

        The rows of findings that are ``known`` and not repaired are judged again, however old they are.
        ``from_the_beginning`` takes no seed, so that all the log is judged again; a ``repetition`` judges what another
        audit did. Raises ``Transient`` when the stream is stuck between its two commits, ``Terminal`` when
        there is nothing to audit.
        """
        again = repetition.rows if repetition else _rows_of(known or {})
        sources = sources_of(self._connection, self._tables, self._topology, source)
        there = StretchLog(connection=self._connection, tables=self._tables, sources=sources)
        scope = self._scope(audit, interval, source, there, again, repetition, from_the_beginning=from_the_beginning)
        there.require(scope.ledger)
        log = DigestedLog(log_of(self._settings, sources))
        partials = self._recomputed(scope, log)
        try:
            return self._findings(scope, interval, log, partials, known or {})
        finally:
            partials.recomputed.release()

    def _recomputed(self, scope: _Scope, log: DigestedLog) -> WindowPartials:
        topic, ledger = self._source.name, scope.ledger
        limits = ledger.limits(topic, self._topology.max_future_ms, scope.aside.offsets)
        stood = {(topic, p): ms for p, ms in scope.stretch.seed.stream_times.items() if ms is not None}
        raw = log.read(self._session, topic, scope.ranges, with_headers=is_with_headers(self._flow.source))
        passing = self._tables.audit(self._topology.name, PASSING) if ledger.offsets > FEW_OFFSETS else None
        done = recomputed(
            self._session,
            self._topology,
            {topic: raw},
            limits={topic: limits},
            stood=stood,
            room=Room(memory=self._settings.audit_memory, folder=passing),
        )
        return WindowPartials(flow=self._flow, recomputed=done)

    def _scope(
        self,
        audit: str,
        interval: Interval,
        source: Source,
        there: StretchLog,
        again: tuple[Row, ...],
        repetition: Repetition | None,
        *,
        from_the_beginning: bool,
    ) -> _Scope:
        erased = ErasedKeys.of(self._settings, self._topology.name)
        erased.require_finished()
        reached = judgeable_offsets(self._connection, self._tables, self._topology)
        sink, dead_letters = self._flow.sink.topic.name, self._source.dead_letter_name
        backfills = published_backfills(self._connection, self._topology)
        published = self._in_force.own(sink, decided(self._connection, sink))
        letters = self._in_force.own_ranges(dead_letters, decided_if_any(self._connection, dead_letters))
        if repetition is None:
            ledger, cut, seed = covered(
                self.store,
                self._tables,
                self._topology,
                erased,
                erased.admits,
                reached,
                interval.end_ms,
                from_the_beginning=from_the_beginning,
            )
            if from_the_beginning and erased.newest is None:
                seed = self._first_seed(ledger)
        else:
            ledger = settled_ledger(self._tables, self._topology, reached)
            cut, seed = repetition.cut_in(ledger), self.store.seed_of(repetition.seed)
            erased.require_repeatable(repetition.audit, seed.run)
        reach = Reach(seed=seed, cut=cut, short=repetition.short if repetition else ())
        if repetition is None and not from_the_beginning:
            same = self.store.seed_at(ledger, cut.order, erased.admits)
            if self._in_force.after == cut.order and same.run:
                seed = same  # what is before the upgrade was judged by the former declaration
            reach = there.reach(ledger, seed, cut, same)
            seed, cut = reach.seed, reach.cut
        stands = seed.order == cut.order
        segment = ledger.standing_at(cut.order) if stands else ledger.between(seed.order, cut.order)
        before = _at(ledger, seed.order)
        topic_ids = repetition.topic_ids if repetition else ids_of(self._connection, segment.proofs[-1].topic_ids)
        is_anew = sink in {one.place for one in topic_faults(before, segment.proofs, topic_ids)}
        read = repetition.ends(sink, published) if repetition else published
        spans = read if is_anew else published
        seen = still_seen(sink, seed.run.published_ends, spans, is_anew=is_anew) if seed.run else {}
        begins_after = erased.newest.erasure if from_the_beginning and erased.newest else None
        if not stands:
            self._in_force.require_made_by(segment)
        frontier_ms = self._in_force.closing(ledger.between(None, cut.order).frontier_ms)
        return _Scope(
            stretch=Stretch(
                audit=audit,
                seed=seed,
                cut=cut.order,
                frontier_ms=frontier_ms,
                again=again,
                is_whole=begins_after is not None or self._was_written_to(seed, backfills),
                released=released_so_far(
                    certified_runs(self._settings, self._topology.name), repetition.audit if repetition else None
                ),
            ),
            source=source,
            settled=ledger,
            before=before,
            ledger=segment,
            ranges=segment.ranges[self._source.name],
            published_backfills=backfills,
            published=read,
            seen=seen,
            letters=letters,
            backfills=repetition.backfills if repetition else None,
            erased=erased,
            begins_after=begins_after,
            topic_ids=topic_ids,
            short=reach.short,
            aside=AsideRecords.of(self._settings, self._topology.name),
        )

    def _first_seed(self, ledger: Ledger) -> Seed:
        """From where this declaration can be judged: the beginning of the log, or the batch of its upgrade."""
        after = self._in_force.after
        return NOTHING if after is None else self.store.seed_for(ledger, (after[0], after[1] + 1))

    def _was_written_to(self, seed: Seed, backfills: int) -> bool:
        run, table = seed.run, self._flow.sink.table
        if run is None or run.checksums is None or run.checksums.hold(self._tables, table, run.order, backfills):
            return False
        _LOG.warning("rows of %s that the audit %s had judged are others now: all are judged again", table, run.audit)
        return True

    def _findings(
        self, scope: _Scope, interval: Interval, log: DigestedLog, partials: WindowPartials, known: Register
    ) -> Findings:
        stretch = scope.stretch
        listing = Listing(
            session=self._session,
            connection=self._connection,
            tables=self._tables,
            topology=self._topology,
            ledger=scope.ledger,
            seed=stretch.seed.order,
            posted={self._source.name: scope.letters},
            last=scope.settled.proofs[-1],
            released=stretch.released,
        )
        listed, judgement = listing.differences(partials.recomputed), self._judgement(scope, partials)
        before = {(self._source.name, p): ms for p, ms in stretch.seed.stream_times.items()}
        by_topic = totals_by_topic(partials.recomputed, scope.ledger, before, self._flow.aggregate)
        totals = by_topic[self._source.name]
        found = accounts(self._connection, partials.recomputed, self._source.name, totals)
        lineage = Lineage(settings=self._settings, stream=self._topology.name, erased=scope.erased)
        altered = lineage.differences(stretch.seed.run)
        differences = [*self._differences(scope, partials, judgement, totals, found, listed), *altered]
        self.store.put_findings(stretch.audit, found, differences, judgement.misses)
        is_clean = not differences and all(one.state != "open" for one in known.values())
        certificates = certificates_in_force(self._settings, self._topology.name)
        released = released_by(self._tables, self._topology, scope.ledger, certificates, is_clean=is_clean)
        gone = farthest(stretch.released, released)
        return Findings(
            audit=stretch.audit,
            topology=self._topology,
            interval=interval,
            source=scope.source,
            seed=stretch.seed,
            before=scope.before,
            ledger=scope.ledger,
            frontier_ms=stretch.frontier_ms,
            published_ends={partition: span.end for partition, span in scope.published.items()},
            accounts=tuple(found),
            counts=judgement.counts,
            differences=tuple(differences),
            misses=tuple(judgement.misses),
            in_force=self._in_force,
            evidence=self._evidence(scope, log, found),
            charted=charted(self._flow),
            series=tuple(judgement.series),
            checksums=TableChecksums.of(
                self._tables,
                self._flow.sink.table,
                stretch.cut,
                scope.published_backfills,
                KeptRows.of("window", gone),
            ),
            released=released,
            built_on=lineage.built_on(stretch.seed, stretch.audit, gone, is_altered=bool(altered)),
            erasures=scope.erased.done,
            short_lived=tuple(short_lived(self._tables, self._topology, scope.ledger)),
            set_aside=scope.aside.read_by(scope.ledger.proofs[-1]),
            begins_after=scope.begins_after,
        )

    def _evidence(self, scope: _Scope, log: DigestedLog, found: Sequence[PartitionAccount]) -> Evidence:
        witness = Witness(
            session=self._session,
            connection=self._connection,
            tables=self._tables,
            log=log,
            seed=scope.stretch.seed.order,
            cut=scope.stretch.cut,
        )
        return witness.evidence(found, [self._flow.sink], {self._flow.sink.topic.name: scope.unseen}, scope.backfills)

    def _judgement(self, scope: _Scope, partials: WindowPartials) -> Judgement:
        audit = scope.stretch.audit
        keep_published(self._session, self._connection, self.store, audit, self._flow, scope.unseen)
        keep_partials(self.store, audit, partials)
        return Judge(self._tables, self.store, self._flow, scope.backfills).judge(scope.stretch)

    def _differences(
        self,
        scope: _Scope,
        partials: WindowPartials,
        judgement: Judgement,
        totals: Sequence[PartitionTotals],
        found: Sequence[PartitionAccount],
        listed: Sequence[Difference],
    ) -> list[Difference]:
        seed, cut = scope.stretch.seed, scope.stretch.cut
        differences = [
            *topic_faults(scope.before, scope.ledger.proofs, scope.topic_ids),
            *scope.short,
            *([] if scope.ledger.stands else ledger_faults(scope.before, scope.ledger.proofs, self._topology)),
            *scope.erased.differences_behind(scope.stretch.seed.run, self.store),
            *scope.aside.differences(),
            *strange_rows(self._tables, self._topology, scope.settled, lambda: self._settled(scope)),
            *hidden_rows(self._tables, self._topology),
            *altered_files(self._tables, self._topology, [identity_of(self._flow.sink)], seed.order, cut),
            *(unread(self._connection, scope.ledger, self._in_force) if seed.run is None else []),
            *conservation_differences(found, totals, scope.ledger),
            *listed,
            *(self._explained(scope, partials, judgement) if judgement.wrong else []),
            *unexplained(judgement.misses),
            *judgement.corrections,
        ]
        return differences or overfull_batches(self._tables, self._topology, scope.ledger)

    def _settled(self, scope: _Scope) -> Ledger:
        reached = judgeable_offsets(self._connection, self._tables, self._topology)
        return settled_ledger(self._tables, self._topology, reached, down_to=scope.settled.proofs[-1].order)

    def _explained(self, scope: _Scope, partials: WindowPartials, judgement: Judgement) -> list[Difference]:
        path = self._tables.state(self._topology.name)
        state = pl.scan_delta(path).filter(~written_after(scope.stretch.cut))
        found = output_differences(judgement.wrong, partials, state, scope.ledger)
        if not judgement.unlisted:
            return found
        first, last = scope.ledger.proofs[0], scope.ledger.proofs[-1]
        batches = f"batch {first.generation}/{first.batch} to {last.generation}/{last.batch}"
        return [*found, unlisted_difference(judgement.unlisted, (batches,))]


def _at(ledger: Ledger, order: Order | None) -> BatchProof | None:
    return next((proof for proof in ledger.proofs if proof.order == order), None)


def _rows_of(known: Register) -> tuple[Row, ...]:
    """The rows whose findings no audit has seen repaired."""
    alive = [one.difference for one in known.values() if one.state != "repaired" and one.is_of_row]
    return tuple({(one.key, one.window_start, one.window_end) for one in alive})
