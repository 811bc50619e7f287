"""One audit of one stream, start to end: cut, recompute, judge, keep."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.audit import side_ledgers
from recount.audit.causes import output_differences
from recount.audit.completeness import COMPLETENESS, MISSED, completeness_differences, grace_misses
from recount.audit.conservation import accounts, conservation_differences
from recount.audit.copies import is_after
from recount.audit.counts import verdict_counts
from recount.audit.fidelity import PLACES
from recount.audit.findings import Findings, Interval, Source
from recount.audit.judgement import Judge, Stretch
from recount.audit.kept import kept, kept_if_any, log_of, require_kept, unread
from recount.audit.ledger import Ledger, Order
from recount.audit.ledger_rules import ledger_faults
from recount.audit.series import charted, window_totals
from recount.audit.settled import published_offsets, settled_ledger
from recount.audit.store import NOTHING, VERDICTS, AuditStore, Seed
from recount.core.ledger import BatchProof
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.core.verdict import Difference
from recount.kafka.connection import Connection
from recount.kafka.offsets import LogRange
from recount.recompute.columns import named
from recount.recompute.flow import Flow
from recount.recompute.log import Log, Ranges
from recount.recompute.recomputation import Recomputation, recompute

_AT_ONCE = 2
"""Spark plans a small query for longer than it runs it, on one core: the others are planned beside it."""


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
        self._connection = Connection(bootstrap_servers=settings.bootstrap_servers)
        self.store = AuditStore(session, self._tables, topology.name)

    def audit(
        self, audit: str, interval: Interval, *, source: Source = "kafka", from_the_beginning: bool = False
    ) -> Findings:
        """Judge everything up to the last batch before the interval's end, from where the audit before it ended.

        ``from_the_beginning`` takes no seed, so that all the log is judged again. Raises ``Transient`` when the stream
        is stuck between its two commits, ``Terminal`` when there is nothing to audit.
        """
        reached = published_offsets(self._connection, self._topology)
        published = kept(self._connection, self._flow.sink.topic.name)
        letters = kept_if_any(self._connection, self._source.dead_letter_name)
        ledger = settled_ledger(self._session, self._tables, self._topology, reached)
        cut = ledger.up_to(reached).cut_before(interval.end_ms)
        seed = NOTHING if from_the_beginning else self.store.seed_for(ledger, cut.order)
        segment = ledger.between(seed.order, cut.order)
        stretch = Stretch(
            audit=audit,
            seed=seed,
            cut=cut.order,
            frontier_ms=ledger.between(None, cut.order).frontier_ms,
            published=_unseen(published, seed),
        )
        ranges = segment.ranges[self._source.name]
        require_kept(self._connection, self._source.name, ranges, source)
        log = log_of(self._session, self._settings, self._topology, source)
        recomputed = self._recomputed(segment, seed, log)
        judge = Judge(self._session, self._settings.bootstrap_servers, self._tables, self.store, self._flow)
        beside = ThreadPoolExecutor(_AT_ONCE)
        lists = beside.submit(self._side_ledgers, recomputed, segment, letters)
        rows, parts = judge.judged(stretch, recomputed)
        judged = rows.persist()
        try:
            late = self._up_to(self._tables.late(self._topology.name), cut.order)
            state = self._up_to(self._tables.state(self._topology.name), cut.order)
            counts = verdict_counts(judged)
            verdicts = beside.submit(self._keep_verdicts, audit, judged)
            series = beside.submit(window_totals, judged, self._flow)
            misses = grace_misses(judged, parts, late, self._flow) if counts.get(f"{COMPLETENESS} {MISSED}") else []
            found = accounts(self._session, self._connection, log, self._source.name, recomputed.totals)
            differences = [
                *ledger_faults(_at(ledger, seed.order), segment.proofs, self._topology.idle_after_ms),
                *([] if seed.run else unread(self._connection, self._source.name, ranges)),
                *conservation_differences(found, recomputed.totals, segment),
                *lists.result(),
                *output_differences(self._session, judged, recomputed, state, segment),
                *completeness_differences(judged, misses, self._flow),
            ]
            verdicts.result()
            self.store.put_findings(audit, found, differences, misses)
            return Findings(
                audit=audit,
                topology=self._topology,
                interval=interval,
                source=source,
                seed=seed,
                ledger=segment,
                frontier_ms=stretch.frontier_ms,
                published_ends={partition: span.end for partition, span in published.items()},
                accounts=tuple(found),
                counts=counts,
                differences=tuple(differences),
                misses=tuple(misses),
                charted=charted(self._flow),
                series=series.result(),
            )
        finally:
            beside.shutdown()
            judged.unpersist()
            recomputed.release()

    def _recomputed(self, segment: Ledger, seed: Seed, log: Log) -> Recomputation:
        return recompute(
            self._session,
            self._flow,
            log,
            segment.ranges[self._source.name],
            limits=segment.limits(self._source.name, self._topology.max_future_ms),
            stream_times=seed.stream_times,
        )

    def _up_to(self, path: str, cut: Order) -> DataFrame:
        return self._session.read.format("delta").load(path).where(~is_after(cut))

    def _side_ledgers(self, recomputed: Recomputation, segment: Ledger, letters: Ranges) -> list[Difference]:
        def written(path: str) -> DataFrame:
            rows = self._session.read.format("delta").load(path)
            first, last = segment.proofs[0].order, segment.proofs[-1].order
            return rows.where(is_after((first[0], first[1] - 1)) & ~is_after(last))

        name = self._topology.name
        posted = side_ledgers.dead_letters(
            self._session, self._settings.bootstrap_servers, self._source.dead_letter_name, letters
        )
        mine = side_ledgers.within(posted, self._source.name, segment.ranges[self._source.name])
        return side_ledgers.side_ledger_differences(
            [
                side_ledgers.late_records(recomputed.late, written(self._tables.late(name))),
                side_ledgers.rejected_records(recomputed.rejected, written(self._tables.rejected(name))),
                side_ledgers.posted_letters(recomputed.rejected, mine, self._source.dead_letter_name),
            ]
        )

    def _keep_verdicts(self, audit: str, judged: DataFrame) -> None:
        verdicts = [f"{place}_verdict" for place in PLACES]
        key = named(self._flow.key).cast("string").alias("key")
        sink, origin = F.lit(self._flow.sink.topic.name).alias("sink"), F.lit(None).cast("string").alias("origin")
        rows = judged.select(sink, key, WINDOW_START, WINDOW_END, origin, *verdicts, COMPLETENESS)
        self.store.put(VERDICTS, audit, rows)


def _unseen(published: Mapping[int, LogRange], seed: Seed) -> Ranges:
    """The kept offsets of the sink's topic that no earlier audit has read."""
    seen = seed.run.published_ends if seed.run else {}
    return {p: (max(span.start, seen.get(p, 0)), span.end) for p, span in published.items()}


def _at(ledger: Ledger, order: Order | None) -> BatchProof | None:
    return next((proof for proof in ledger.proofs if proof.order == order), None)
