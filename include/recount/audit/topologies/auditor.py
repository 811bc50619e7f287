"""One audit of any topology, start to end: cut, recompute, judge every sink, keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from recount.audit import letters
from recount.audit.completeness import COMPLETENESS
from recount.audit.conservation import accounts, conservation_differences
from recount.audit.copies import is_after
from recount.audit.counts import verdict_counts_by_spark
from recount.audit.evidence import Evidence, Witness
from recount.audit.fidelity import PLACES
from recount.audit.findings import Findings, Interval, Source
from recount.audit.in_force import InForce
from recount.audit.kept import kept_if_any, log_of, require_kept, sources_of, unread, written_so_far
from recount.audit.ledger import Ledger, Order
from recount.audit.ledger_rules import ledger_faults
from recount.audit.repetition import Repetition
from recount.audit.settled import published_offsets, settled_ledger
from recount.audit.side_ledgers import late_records, posted_letters, rejected_records
from recount.audit.side_ledgers_by_spark import side_ledger_differences_by_spark
from recount.audit.store import NOTHING, VERDICTS, AuditStore
from recount.audit.strangers import strange_rows
from recount.audit.topologies.claims import IDENTITY
from recount.audit.topologies.differences import output_differences
from recount.audit.topologies.identity import identity_of
from recount.audit.topologies.judge import SINK, Judge
from recount.audit.topologies.misses import grace_misses, unexplained
from recount.audit.topologies.readings import batch_ends, table_ends
from recount.audit.topologies.totals import totals_by_topic
from recount.core.finding_register import Register
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topology import Topology, Written
from recount.core.verdict import Difference, PartitionAccount
from recount.kafka.connection import Connection
from recount.recompute.digests import DigestedLog
from recount.recompute.graph.recomputed import Recomputed, recomputed
from recount.recompute.log import Log, Ranges


class TopologyAuditor:
    """Audits a stream of any shape that can be recomputed, always from the beginning of the log.

    No audit builds on another: the whole log must be there, in Kafka or in the archive, and is recomputed twice, with
    lateness and without. Raises ``NotRecomputable``, with the operator, for what is no function of the log.
    """

    def __init__(self, session: SparkSession, settings: Settings, topology: Topology) -> None:
        self._session = session
        self._settings = settings
        self._topology = topology
        self._tables = Tables(settings.data)
        self._connection = Connection.of(settings)
        self.store = AuditStore(session, self._tables, topology.name)
        self._in_force = InForce.of(topology, settings.data)
        self._identities = [
            replace(identity_of(node), was_added=node.topic.name in self._in_force.added) for node in topology.written
        ]

    def audit(
        self,
        audit: str,
        interval: Interval,
        *,
        source: Source = "kafka",
        from_the_beginning: bool = True,  # noqa: ARG002 - it always begins there
        known: Register | None = None,  # noqa: ARG002 - it judges every row again
        repetition: Repetition | None = None,
    ) -> Findings:
        """Judge everything up to the last batch before the interval's end, or what the audit to be repeated did.

        Raises ``Transient`` when the stream is stuck between its two commits, ``Terminal`` when there is nothing to
        audit or the beginning of the log has expired.
        """
        reached = published_offsets(self._connection, self._topology)
        published = self._published()
        posted = {one.topic.name: self._own(one.topic.dead_letter_name) for one in self._topology.sources}
        settled = settled_ledger(self._tables, self._topology, reached)
        if repetition is None:
            cut = settled.up_to(reached).cut_before(interval.end_ms)
        else:
            cut = repetition.cut_in(settled)
            published = {topic: repetition.within(topic, spans) for topic, spans in published.items()}
        ledger = settled.between(None, cut.order)
        self._in_force.require_made_by(ledger)
        sources = sources_of(self._connection, self._tables, self._topology, source)
        log = DigestedLog(log_of(self._settings, sources))
        for topic, ranges in ledger.ranges.items():
            require_kept(self._connection, self._tables, topic, ranges, sources[topic])
        identities = [one for one in self._identities if self._in_force.has_begun(one.written.topic.name, cut.order)]
        published = {one.written.topic.name: published[one.written.topic.name] for one in identities}
        truth = self._recomputed(ledger, log, lateness=True)
        complete = self._recomputed(ledger, log.of, lateness=False)
        judge = Judge(
            session=self._session,
            servers=self._settings.bootstrap_servers,
            tables=self._tables,
            cut=cut.order,
            published=published,
        )
        judged = judge.judged(identities, truth, complete).persist()
        try:
            counts = verdict_counts_by_spark(judged)
            late = self._up_to(self._tables.late(self._topology.name), cut.order)
            missed = counts.get(f"{COMPLETENESS} missed")
            misses = grace_misses(judged, late, truth.unread, self._topology) if missed else []
            totals = totals_by_topic(truth, ledger)
            found = {
                topic: accounts(self._session, self._connection, log.of, topic, parts)
                for topic, parts in totals.items()
            }
            differences = [
                *ledger_faults(None, ledger.proofs, self._topology),
                *strange_rows(self._tables, self._topology, settled, self._settled),
                *(one for topic, ranges in ledger.ranges.items() for one in self._unread(topic, ranges)),
                *(one for t in totals for one in conservation_differences(found[t], totals[t], ledger)),
                *self._side_ledgers(truth, ledger, late, posted),
                *output_differences(judged),
                *unexplained(misses),
            ]
            verdicts = [f"{place}_verdict" for place in PLACES]
            self.store.put(VERDICTS, audit, judged.select(SINK, *IDENTITY, *verdicts, COMPLETENESS))
            all_accounts = [account for parts in found.values() for account in parts]
            self.store.put_findings(audit, all_accounts, differences, misses)
            return Findings(
                audit=audit,
                topology=self._topology,
                interval=interval,
                source=source,
                seed=NOTHING,
                ledger=ledger,
                frontier_ms=ledger.frontier_ms,
                published_ends={},
                accounts=tuple(all_accounts),
                counts=counts,
                differences=tuple(differences),
                misses=tuple(misses),
                in_force=self._in_force,
                evidence=self._evidence(log, cut.order, all_accounts, [one.written for one in identities], published),
            )
        finally:
            judged.unpersist()
            truth.release()
            complete.release()

    def _evidence(
        self,
        log: DigestedLog,
        cut: Order,
        accounts: Sequence[PartitionAccount],
        written: Sequence[Written],
        published: Mapping[str, Ranges],
    ) -> Evidence:
        witness = Witness(
            session=self._session, connection=self._connection, tables=self._tables, log=log, seed=None, cut=cut
        )
        return witness.evidence(accounts, written, published)

    def _recomputed(self, ledger: Ledger, log: Log, *, lateness: bool) -> Recomputed:
        ranges = ledger.ranges
        return recomputed(
            self._session,
            self._topology,
            {topic: log.read(self._session, topic, spans) for topic, spans in ranges.items()},
            limits={topic: ledger.limits(topic, self._topology.max_future_ms) for topic in ranges},
            lateness=lateness,
            table_ends=table_ends(ledger, self._topology),
            batches=batch_ends(ledger),
            done_before=self._in_force.done_before(ledger),
            read_since=self._in_force.read_since(ledger),
        )

    def _published(self) -> dict[str, Ranges]:
        topics = [identity.written.topic.name for identity in self._identities]
        return {topic: self._own(topic) for topic in topics}

    def _own(self, topic: str) -> Ranges:
        return self._in_force.own_ranges(topic, kept_if_any(self._connection, topic))

    def _settled(self) -> Ledger:
        return settled_ledger(self._tables, self._topology, published_offsets(self._connection, self._topology))

    def _unread(self, topic: str, ranges: Ranges) -> list[Difference]:
        return unread(self._connection, topic, ranges, self._in_force.begins(topic))

    def _up_to(self, path: str, cut: Order) -> DataFrame:
        return self._session.read.format("delta").load(path).where(~is_after(cut))

    def _side_ledgers(
        self, truth: Recomputed, ledger: Ledger, late: DataFrame, posted: dict[str, Ranges]
    ) -> list[Difference]:
        rejected = self._up_to(self._tables.rejected(self._topology.name), ledger.proofs[-1].order)
        comparisons = [
            late_records(truth.late, late),
            rejected_records(truth.rejected, rejected),
        ]
        log = written_so_far(self._connection, sorted({one.topic.name for one in self._topology.sources}))
        for source in self._topology.sources:
            topic, name = source.topic.name, source.topic.dead_letter_name
            found = letters.dead_letters_by_spark(self._session, self._settings.bootstrap_servers, name, posted[topic])
            group = self._connection.group(self._topology.name)
            mine = letters.within_by_spark(found, group, topic, ledger.ranges[topic], log)
            bad = truth.rejected.where(truth.rejected.topic == topic)
            comparisons.append(posted_letters(bad, mine, name))
        return side_ledger_differences_by_spark(comparisons)
