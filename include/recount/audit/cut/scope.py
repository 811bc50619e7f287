"""Scope of one general audit: from which cut to which, what the audit before left, and what batches had read.

The recompute must know, beside the log, how far each batch had read, and whom it waited for.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import takewhile

from recount.audit.carry.erased_keys import AsideRecords, ErasedKeys
from recount.audit.carry.removed import kept_late, released_so_far
from recount.audit.carry.snapshots import KEPT, Snapshot, Snapshots
from recount.audit.carry.store import NOTHING, AuditStore, Run, Seed
from recount.audit.compare.correction_claims import KnownCorrections, Listed, listed_backfills, published_names
from recount.audit.compare.identity import Identity
from recount.audit.compare.judge import Before
from recount.audit.cut.auditable import covered, first_seed, judgeable_offsets, settled_ledger
from recount.audit.cut.audited_ledger import Ledger, Order, Repetition, topic_faults
from recount.audit.cut.in_force import InForce, certified_runs, removed_by_now
from recount.audit.cut.kept_log import Reach, StretchLog, decided_if_any, still_seen
from recount.audit.findings.finding_register import Interval, certified
from recount.certificate.finding import Difference
from recount.declare.operators.joins import StreamTableJoin
from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.kafka.offsets import LogRange
from recount.kafka.positions import published_backfills
from recount.kafka.topics_on_cluster import ids_of
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.operators.carried import Carried
from recount.recompute.operators.frontiers import BatchEnds
from recount.recompute.operators.log_tables import TableEnds
from recount.recompute.operators.recomputed import Recomputed
from recount.recompute.raw_log import Ranges
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.ledger import BatchProof, TopicIds
from recount.tables.places import Released, Tables

_LOG = logging.getLogger(__name__)
TRUTH_PART, COMPLETE_PART, CLAIMS_PART, CORRECTED_PART, UNREAD_PART, LATE_PART = (
    "truth",
    "complete",
    "claims",
    "corrected",
    "unread",
    "late",
)
"""The parts of a snapshot."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Scope of one audit: of the batches ``settled``, ``ledger`` are those after ``seed``, which are judged.

    Batches before ``seed`` may lack in ``settled``. ``altered`` are tables in which somebody has changed what was
    judged before; what is ``released`` the stream may have removed. ``snapshot`` is what ``seed`` left, and ``at_cut``
    what an audit of the same last batch left: what that released may be removed. ``published`` and ``posted`` are the
    offsets that the sinks' and the dead-letter topics held when it began, ``unseen`` those of the former that no audit
    before has read. The sinks' hold the first ``done`` backfills; ``listed`` are those in the tables of corrections,
    ``backfills`` the names of those whose corrections count. ``erased`` are the keys that were erased so far, and
    ``begins_after`` is the erasure behind which an audit from the beginning cannot look. ``topic_ids`` have the topics
    now that the stream reads and writes; ``short`` are the partitions whose log was cut short; ``aside`` are the
    records that were set aside by order.
    """

    audit: str
    seed: Seed
    altered: tuple[str, ...]
    released: Released | None
    snapshot: Snapshot | None
    at_cut: Snapshot | None
    settled: Ledger
    ledger: Ledger
    published: Mapping[str, Ranges]
    unseen: Mapping[str, Ranges]
    posted: Mapping[str, Ranges]
    identities: tuple[Identity, ...]
    done: int
    listed: Sequence[Listed]
    backfills: Sequence[str]
    erased: ErasedKeys
    begins_after: str | None
    topic_ids: TopicIds
    short: tuple[Difference, ...]
    aside: AsideRecords

    @property
    def cut(self) -> Order:
        """The last batch that is judged."""
        return self.ledger.proofs[-1].order

    @property
    def before(self) -> BatchProof | None:
        """The batch that the judged ones follow."""
        return next((proof for proof in self.settled.proofs if proof.order == self.seed.order), None)

    def before_judged(self, database: Database) -> Before | None:
        """Return what the audit before left for the judge."""
        if self.snapshot is None or self.seed.order is None:
            return None
        return Before(seed=self.seed.order, carried=self.snapshot.part(CLAIMS_PART, database))

    def unread(self, truth: Recomputed) -> Frame:
        """The changes that records would have found, had they been read, and those that explained earlier misses."""
        known = {} if self.snapshot is None else self.snapshot.part(UNREAD_PART, truth.unread.database)
        return truth.unread.union(*known.values())

    def late(self, ledger: Frame, truth: Recomputed) -> Frame:
        """The lines of the late ``ledger``, those that the stream may have removed, and what earlier audits kept.

        Their columns are those of ``truth.late``.
        """
        left = [one for one in (self.snapshot, self.at_cut) if one is not None]
        known = [frame for one in left for frame in one.part(LATE_PART, ledger.database).values()]
        gone = truth.late.where(~kept_late(self.released, F))
        return ledger.select(*gone.columns).union(gone, *known)

    def known_corrections(self, database: Database) -> dict[str, KnownCorrections]:
        """Return by table what it left about corrections."""
        if self.snapshot is None or self.seed.run is None:
            return {}
        claims = self.snapshot.part(CORRECTED_PART, database)
        return {
            table: KnownCorrections(backfills=sums.backfills, claims=claims.get(table))
            for table, sums in self.seed.run.tables.items()
        }

    def carried(self, part: str) -> Carried | None:
        """Return what it left for the recompute."""
        return None if self.snapshot is None else _Part(self.snapshot, part)


@dataclass(frozen=True)
class _Part:
    snapshot: Snapshot
    part: str

    def read(self, name: str, database: Database) -> Frame | None:
        return self.snapshot.part(self.part, database).get(name)


@dataclass(frozen=True, kw_only=True)
class Scoping:
    """Finds the scope of audits of ``topology``, whose sinks have ``identities``."""

    settings: Settings
    topology: Topology
    connection: Connection
    store: AuditStore
    snapshots: Snapshots
    in_force: InForce
    identities: Sequence[Identity]
    is_incremental: bool

    @property
    def _tables(self) -> Tables:
        return Tables(self.settings.data)

    def scope(
        self,
        audit: str,
        interval: Interval,
        there: StretchLog,
        repetition: Repetition | None,
        *,
        from_the_beginning: bool,
    ) -> Scope:
        """Return what an audit that begins now covers, or what one covered that is to be repeated.

        It begins ``from_the_beginning`` too where there is no snapshot of this declaration, and where rows that were
        judged are others now, as long as the whole log is ``there``.
        """
        erased = ErasedKeys.of(self.settings, self.topology.name)
        erased.require_finished()
        runs = certified_runs(self.settings, self.topology.name)
        reached = judgeable_offsets(self.connection, self._tables, self.topology)
        done, published = self._published()
        posted = {one.topic.name: self._own(one.topic.dead_letter_name) for one in self.topology.sources}
        listed = listed_backfills(self._tables, self.topology)
        backfills = repetition.backfills if repetition else published_names(listed, done)
        if repetition is None:
            settled, cut, seed = covered(
                self.store,
                self._tables,
                self.topology,
                erased,
                self.in_force,
                self._usable(erased),
                reached,
                interval.end_ms,
                from_the_beginning=from_the_beginning,
            )
            self._require_left_by(erased, seed)
            reach = Reach(seed=seed, cut=cut)
            at_cut = NOTHING if from_the_beginning else self.store.seed_at(settled, cut.order, self._usable(erased))
            if not from_the_beginning:
                reach = there.reach(settled, seed, cut, at_cut)
                seed, cut = reach.seed, reach.cut
            altered = self._written_to(seed)
            whole = settled_ledger(self._tables, self.topology, reached) if altered else settled
            usable = self._usable(erased)
            first = first_seed(self.store, whole, cut, erased, self.in_force, usable) if altered else NOTHING
            can_begin_anew = altered and erased.newest is None
            if can_begin_anew and there.has(whole.between(first.order, cut.order)):
                _LOG.warning("rows of %s that were judged are others now: all is judged again", ", ".join(altered))
                settled, seed, altered = whole, first, self._written_to(first)
            elif altered and _was_trimmed(seed, runs):
                altered = ()
        else:
            settled = settled_ledger(self._tables, self.topology, reached)
            cut, seed, altered = repetition.cut_in(settled), self.store.seed_of(repetition.seed), ()
            reach = Reach(seed=seed, cut=cut, short=repetition.short)
            erased.require_repeatable(repetition.audit, seed.run)
            self._require_snapshot(seed)
            at_cut = self.store.seed_at(settled, cut.order, self._is_before(repetition.audit))
            published = {topic: repetition.within(topic, spans) for topic, spans in published.items()}
        stands = seed.order == cut.order
        is_another = at_cut.order == cut.order != seed.order
        ledger = settled.standing_at(cut.order) if stands else settled.between(seed.order, cut.order)
        topic_ids = repetition.topic_ids if repetition else ids_of(self.connection, ledger.proofs[-1].topic_ids)
        before = next((proof for proof in settled.proofs if proof.order == seed.order), None)
        anew = {one.place for one in topic_faults(before, ledger.proofs, topic_ids)}
        seen = _still_seen(seed, published, anew) if repetition is None else {}
        if not stands:
            self.in_force.require_made_by(ledger)
        identities = [one for one in self.identities if self.in_force.has_begun(one.written.topic.name, cut.order)]
        topics = [one.written.topic.name for one in identities]
        return Scope(
            audit=audit,
            seed=seed,
            altered=altered,
            released=released_so_far(runs, repetition.audit if repetition else None),
            snapshot=self.snapshots.of(seed.run.audit) if seed.run else None,
            at_cut=self.snapshots.of(at_cut.run.audit) if at_cut.run and is_another else None,
            settled=settled,
            ledger=ledger,
            published={topic: published[topic] for topic in topics},
            unseen={topic: _after(seen.get(topic, {}), published[topic]) for topic in topics},
            posted=posted,
            identities=tuple(identities),
            done=done,
            listed=listed,
            backfills=backfills,
            erased=erased,
            begins_after=erased.newest.erasure if from_the_beginning and erased.newest else None,
            topic_ids=topic_ids,
            short=reach.short,
            # read after the cut is known: the orders that its batches went by are there
            aside=AsideRecords.of(self.settings, self.topology.name),
        )

    def _require_left_by(self, erased: ErasedKeys, seed: Seed) -> None:
        """Raise ``Terminal`` where ``seed``, an audit that the newest erasure has left, lacks its snapshot."""
        newest = erased.newest
        if newest and seed.run and seed.run.audit == newest.audit and not self._has_snapshot(seed.run, erased):
            raise Terminal(
                f"the snapshot that erasure {newest.erasure} left is not there, or is another one",
                given=f"audit {newest.audit}",
                expected=f"the snapshot {newest.snapshot_after}, of the deployed declaration",
                remedy="no audit can begin before it: restore the audit's tables from a backup of after the erasure, or"
                f" `recount reset {self.topology.name}`",
            )

    def _is_before(self, audit: str) -> Callable[[Run], bool]:
        """Whether an audit was complete before ``audit``, and its snapshot is still there."""
        earlier = {run.audit for run in takewhile(lambda run: run.audit != audit, self.store.runs())}
        return lambda run: run.audit in earlier and self.snapshots.has(run.audit)

    def _usable(self, erased: ErasedKeys) -> Callable[[Run], bool]:
        """Whether an audit can go on from one of this declaration: its snapshot is what its certificate says."""
        return lambda run: self.is_incremental and erased.admits(run) and self._has_snapshot(run, erased)

    def _require_snapshot(self, seed: Seed) -> None:
        if seed.run and not self.snapshots.has(seed.run.audit):
            raise Terminal(
                "the audit on which this one builds has no snapshot any more",
                given=seed.run.audit,
                expected=f"one of the newest {KEPT} audits of {self.topology.name}",
                remedy=f"recount audit --stream {self.topology.name} --from-the-beginning",
            )

    def _has_snapshot(self, run: Run, erased: ErasedKeys) -> bool:
        """Whether ``run`` left a snapshot of this declaration: the one in its certificate, less what was erased."""
        if not self.in_force.goes_on_from(run) or not self.snapshots.has(run.audit):
            return False
        told = certified(self.settings, self.topology.name, run.certificate)
        expected = None if told is None else erased.snapshot_of(run.audit, told.get("snapshot"))
        if expected is not None and expected == self.snapshots.sha256(run.audit):
            return True
        _LOG.warning("the snapshot of the audit %s is not what its certificate says: it is left out", run.audit)
        return False

    def _written_to(self, seed: Seed) -> tuple[str, ...]:
        """The tables whose rows of batches up to ``seed`` are not those that its audit judged."""
        if seed.run is None:
            return ()
        tables, order = seed.run.tables, seed.run.order
        return tuple(name for name, sums in tables.items() if not sums.are_those_of(self._tables, name, order))

    def _published(self) -> tuple[int, dict[str, Ranges]]:
        """How many backfills are on Kafka, and the offsets of the sinks' topics, which hold these and no others."""
        while True:
            done = published_backfills(self.connection, self.topology)
            found = {one.written.topic.name: self._own(one.written.topic.name) for one in self.identities}
            if published_backfills(self.connection, self.topology) == done:
                return done, found

    def _own(self, topic: str) -> Ranges:
        return self.in_force.own_ranges(topic, decided_if_any(self.connection, topic))


def _was_trimmed(seed: Seed, runs: Sequence[Run]) -> bool:
    """Whether the stream may have removed rows that ``seed``, older than the last two of ``runs``, still counts."""
    found = removed_by_now(runs)
    counted = next((run.released for run in runs if seed.run and run.audit == seed.run.audit), None)
    return found is not None and (not counted or counted.before_ms < found.before_ms)


def _still_seen(seed: Seed, published: Mapping[str, Ranges], anew: AbstractSet[str]) -> dict[str, Mapping[int, int]]:
    """Return up to where ``seed`` has read the sinks' topics, of which those in ``anew`` were recreated since."""
    found = {}
    for topic, seen in (seed.run.read_to if seed.run else {}).items():
        spans = {partition: LogRange(start=start, end=end) for partition, (start, end) in published[topic].items()}
        found[topic] = still_seen(topic, seen, spans, is_anew=topic in anew)
    return found


def _after(seen: Mapping[int, int], ranges: Ranges) -> Ranges:
    """``ranges`` from the offsets ``seen`` on."""
    return {p: (min(end, max(start, seen.get(p, start))), end) for p, (start, end) in ranges.items()}


def batch_ends(ledger: Ledger) -> list[BatchEnds]:
    """Every batch: where it ended, and which partitions were not idle after it."""
    return [
        BatchEnds(
            ends=proof.ends,
            awake=frozenset((part.topic, part.partition) for part in proof.partitions if not part.idle),
        )
        for proof in ledger.proofs
    ]


def table_ends(ledger: Ledger, topology: Topology) -> list[TableEnds] | None:
    """For the records of every batch, how far it read everything else; None where no operator asks for it."""
    if not any(isinstance(node, StreamTableJoin) and node.grace_ms is None for node in topology.nodes()):
        return None
    return [
        TableEnds(topic=part.topic, partition=part.partition, start=part.start, end=part.end, read=batch.ends)
        for proof, batch in zip(ledger.proofs, batch_ends(ledger), strict=True)
        for part in proof.partitions
        if part.start < part.end
    ]
