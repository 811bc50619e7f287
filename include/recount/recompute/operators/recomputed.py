"""A whole topology recomputed: what each of its sinks must hold in the end, who was late, and what became of whom."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

from recount.declare.columns import IS_NULL as DELETED
from recount.declare.columns import ORIGIN, RESULT_TIME
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import KEY, WINDOW_END, Node, Sink, Source, WindowedAggregate
from recount.declare.operators.processing import Deduplicate, InOrder, Process
from recount.declare.operators.stateless import FlatMap, Foreach, Through
from recount.declare.operators.tables import Suppress, TableAggregate, TableFilter, ToTable
from recount.declare.plain_values import PlainValue
from recount.declare.topology import Topology, Written
from recount.recompute.decoding import IS_NULL, Limits
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import named
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.frames.duck_handover import Handover
from recount.recompute.operators import log_sources, log_tables, log_windows
from recount.recompute.operators.beginnings import Beginning
from recount.recompute.operators.carried import LOOK_BACK_MS, Carried, Carrying, NotIncremental
from recount.recompute.operators.frontiers import NONE_DUE, BatchEnds, Partition
from recount.recompute.operators.log_clocks import Clocks, Journal
from recount.recompute.operators.log_joins import table_joined
from recount.recompute.operators.log_order import is_asked_by_time, require_updates
from recount.recompute.operators.log_rows import OFFSET, ORDER, PARTITION, TIME, Rows, after, origin
from recount.recompute.operators.log_stateless import flat_mapped, in_range_or_not, returned, stateless, too_large
from recount.recompute.operators.log_tables import TableEnds
from recount.recompute.operators.stateful import Readers, Stateful
from recount.recompute.raw_log import Ranges, RawLog, RecordsAtHand
from recount.recompute.rules.result_rules import adds_up, fields_needed, topics_that_need_keys

_NO_LIMITS: Mapping[str, Mapping[int, Limits]] = MappingProxyType({})
_NOTHING_DONE: Mapping[str, int] = MappingProxyType({})
_ALWAYS_READ: Mapping[str, Mapping[str, Mapping[int, int]]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Recomputed:
    """The truth about a topology's logs. DuckDB computes rows as they are read: call ``release`` when done.

    ``results`` has for each sink and ``through`` the fields that reach it, ``recount_timestamp_ms``,
    ``recount_is_null`` (a deletion: no row of that key) and ``recount_origin`` (the places in the log that made a
    stream's row, ``topic-partition@offset`` joined by ``+``; null where a window or a table did). A windowed result is
    one row per key and window, whether due or not: compare ``window_end`` with the frontier. A table is the last row of
    each key, a stream every row.

    ``ledgers`` are lists: ``late`` is the late ledger, one row per record and window; ``fates`` has one fate for each
    record; ``rejected`` the bad records with their reason; ``unread`` the changes of tables that records would have
    found, and the records that would have been the first of their id, had they been read in time; ``beyond`` those that
    came too late for what was carried: topic, partition, offset, timestamp_ms and operator. ``held_after_ms`` says of
    every suppression from when on updates may still be held back.

    Of an interval of the log, ``again`` has for sinks of final results all due windows within the look back, whether
    they left in this interval or before, all that end after ``again_ends_after_ms``, and for sinks of lookups the
    records since ``again_since_ms``; ``added``, for sinks of results that add up, what windows get that are older.
    Without lateness ``taken_back`` has the rows that left a join alone before, and would not have, for their partner
    has come. See ``recount.recompute.operators.carried``.

    ``rows`` are what leaves each operator, which ``recount.recompute.operators.tracing`` follows.
    """

    results: Mapping[Written, Frame]
    held_after_ms: Mapping[Suppress, int]
    again: Mapping[Written, Frame]
    again_since_ms: Mapping[Written, int]
    again_ends_after_ms: Mapping[Written, int]
    taken_back: Mapping[Written, Frame]
    added: Mapping[Written, Frame]
    rows: Mapping[Node, Rows]
    handover: Handover
    ledgers: Mapping[str, Frame]
    _fates: Frame
    _operators: Stateful
    _decoded: Mapping[str, Frame]
    _is_first: bool

    @property
    def late(self) -> Frame:
        """The late ledger."""
        return self.ledgers["late"]

    @property
    def unread(self) -> Frame:
        """The changes, and first ones of an id, that records would have found, had they been read in time."""
        return self.ledgers["unread"]

    def result(self, topic: str) -> Frame:
        """The rows that were written to ``topic``."""
        [found] = (node for node in self.results if node.topic.name == topic)
        return self.results[found]

    def fate_counts(self) -> list[dict[str, Any]]:
        """How many records ``n`` of each ``topic`` and ``partition`` have each ``fate``."""
        return self._fates.group_by("topic", "partition", "fate").agg(F.count_of().alias("n")).rows()

    def gaps(self, topic: str, ranges: Ranges) -> dict[int, list[tuple[int, int]]]:
        """The parts of ``ranges`` in which no record was read of ``topic``: first offset and the one after the last."""
        return log_sources.gaps(self._decoded[topic], ranges)

    def latest_ms(self, node: Node | None = None) -> dict[Partition, int]:
        """The largest event time of the good records of each partition, or of those that advance ``node``."""
        return self._operators.clocks.latest_ms(node)

    @property
    def placed(self) -> Mapping[Node, Frame]:
        """The records that each aggregation has placed in windows."""
        return self._operators.on_time

    def came(self, node: WindowedAggregate) -> Frame:
        """The records of the interval that ``node`` placed in windows, late ones too: one row for each window."""
        return self._operators.came[node]

    @property
    def looked_up(self) -> Mapping[Node, Frame]:
        """The rows that each lookup found, of both sides."""
        return self._operators.looked_up_rows

    def lookup_counts(self) -> dict[StreamTableJoin, tuple[int, int]]:
        """How many rows asked each lookup for one of its table, and how many of these found none."""
        return {node: log_tables.counts(found) for node, found in self._operators.asked.items()}

    def kept(self) -> Mapping[str, Frame]:
        """The frames that the recompute of the next interval of the log needs, by name.

        Raises ``NotIncremental`` where an operator must see the whole log again. Ask before ``release``.
        """
        return self._operators.kept()

    def reaches_back_to_ms(self) -> int:
        """No result that ends before this is said again by the next interval; ``ALL_DUE`` where none ever is."""
        return self._operators.reaches_back_to_ms()

    def frontier_ms(self, node: Node) -> int:
        """How far the frontier of ``node`` had come after the last batch, less what the operators above delay."""
        return self._operators.clocks.frontier_now_ms(node)

    def partitions_of(self, topics: Iterable[str], keys: Collection[str]) -> dict[str, list[str]]:
        """First records per partition, of the record ``keys`` that are in several partitions of one of ``topics``."""
        found: dict[str, list[str]] = {}
        for topic in topics:
            log, key = self._decoded[topic], named(KEY).cast("string")
            of_keys = log.where(F.col("reason").is_null() & key.is_in(keys)).group_by(key.alias("key"), PARTITION)
            firsts = of_keys.agg(F.smallest(OFFSET).alias("first")).sorted_by("key", PARTITION).rows()
            for row in firsts:
                if sum(one["key"] == row["key"] for one in firsts) > 1:
                    found.setdefault(row["key"], []).append(f"{topic}-{row[PARTITION]}@{row['first']}")
        return found

    def release(self) -> None:
        """Give back what is kept on disk and in memory: also for the recompute that took its logs from here."""
        if self._is_first:
            self.handover.close()
            self.handover.database.close()


def recomputed(
    session: SparkSession,
    topology: Topology,
    logs: Mapping[str, RawLog | RecordsAtHand],
    *,
    limits: Mapping[str, Mapping[int, Limits]] = _NO_LIMITS,
    lateness: bool = True,
    table_ends: Sequence[TableEnds] | None = None,
    frontier_ms: int | None = None,
    batches: Sequence[BatchEnds] | None = None,
    done_before: Mapping[str, int] = _NOTHING_DONE,
    read_since: Mapping[str, Mapping[str, Mapping[int, int]]] = _ALWAYS_READ,
    carried: Carried | None = None,
    look_back_ms: int = LOOK_BACK_MS,
    same_logs: Recomputed | None = None,
    closed_ms: int | None = None,
    handover: Handover | None = None,
) -> Recomputed:
    """Recompute ``topology`` from the raw ``logs`` of its source topics, from their beginning.

    With what was ``carried`` it goes on from the last cut: ``logs``, ``batches`` and all else are those of one interval
    (``recount.recompute.operators.carried``).

    ``limits`` say by topic and partition which event times were absurd when they were read. Without ``lateness`` the
    grace is unlimited: the difference is what lateness has cost. ``table_ends`` say how far a table had been read when
    a record looked a row up in it; without them it was read whole. ``frontier_ms`` is up to where the timers of
    processors go off in the end; without it, the smallest stream time of the source partitions. ``batches`` are those
    in which a stream read the logs: with them ``results`` hold what each operator had let go after the last one, by its
    own frontier, and no more. ``done_before`` has the topics of sinks that were added to the stream at work, and how
    many of the batches were done by then: of these sinks ``results`` hold what left after them. ``read_since`` has by
    topic the fields that were added to it, and by partition the offset from which on they were read. ``same_logs`` is
    another recompute of the interval, whose decoded logs are taken in place of ``logs``: release it after this one.
    Windows that are closed at the frontier ``closed_ms`` were so before an upgrade to a longer grace, and stay it.
    ``handover`` has the database, which ``release`` closes.

    Raises ``NotIncremental`` where it cannot go on, and ``NotRecomputable`` for what is no function of the log: an
    operator that needs the order of one key's records where these come from several partitions, or each update of a
    result of which only the last one is determined.
    """
    if carried is not None and batches is None:
        raise NotIncremental(
            "a part of a log without its batches",
            given="carried, and no batches",
            expected="the batches in which the stream read the part",
            remedy="pass batches=, or leave carried= out and the whole log in",
        )
    handover = same_logs.handover if same_logs else handover or Handover.of(session)
    keyed = topics_that_need_keys(topology)
    journal = Journal()
    decoded = (
        same_logs._decoded
        if same_logs
        else {
            source.topic.name: log_sources.decoded(
                logs[source.topic.name],
                source,
                handover,
                columns_read=fields_needed(topology, source),
                needs_record_key=source.topic.name in keyed,
                limits=limits.get(source.topic.name, {}),
                read_since=read_since.get(source.topic.name, {}),
                batches=batches or (),
            )
            for source in topology.sources
        }
    )
    entries = {topic: log_sources.entries(log) for topic, log in decoded.items()}
    carrying = Carrying.of(handover.database, topology, carried, look_back_ms, batches=len(batches or ()))
    clocks = Clocks(
        entries=entries,
        lateness=lateness,
        frontier_ms=frontier_ms,
        batches=batches,
        carrying=carrying,
        beside=same_logs._operators.clocks if same_logs else None,
    )
    operators = Stateful(
        lateness=lateness, table_ends=table_ends, batches=batches, journal=journal, carrying=carrying, clocks=clocks
    )
    operators.closed_ms = NONE_DUE if closed_ms is None else closed_ms
    results: dict[Written, Frame] = {}
    again: dict[Written, Frame] = {}
    again_since_ms: dict[Written, int] = {}
    again_ends_after_ms: dict[Written, int] = {}
    taken_back: dict[Written, Frame] = {}
    added: dict[Written, Frame] = {}
    rows: dict[Node, Rows] = {}
    forks, readers = topology.forks(), topology.readers()
    for node in topology.nodes():
        inputs = [_forked(rows[above], forks.get((node, port))) for port, above in enumerate(node.inputs)]
        reached = in_range_or_not(node, inputs[0]) if inputs else None
        if reached is not None:
            inputs[0] = inputs[0].with_frame(inputs[0].node, returned(reached))
        rows[node] = _rows_of(node, inputs, decoded, operators, readers)
        large = too_large(node, inputs[0]) if inputs else None
        for made in (reached, large, _made_or_raised(node, inputs, operators)):
            if made is None:
                continue
            done = 0 if batches is None else _done_before(node, readers, done_before)
            begins = Beginning(operators=operators, rows=rows, batches=batches or (), done=done)
            journal.set_aside(made.where(begins.read_later()))
        written, reaching = rows[node], rows[node].current
        if batches is not None and isinstance(node, Sink | Through) and node.topic.name in done_before:
            begins = Beginning(operators=operators, rows=rows, batches=batches, done=done_before[node.topic.name])
            above = begins.since(node.input)
            written = above.with_frame(node, above.frame)
            reaching = written.current.where(begins.read_later())
        if isinstance(node, Sink | Through | Foreach):
            journal.note(reaching, F.lit("counted"))
        if isinstance(node, Sink | Through):
            results[node] = _result(node, written)
            replaced = operators.all_replaced(node.input)
            if replaced is not None and WINDOW_END in node.fields:
                deleted = replaced.frame.where(IS_NULL)
                results[node] = results[node].union(_result(node, replaced.with_frame(node, deleted)))
            if adds_up(node.input) and node.input in operators.added:
                added[node] = _result(node, log_windows.aggregated(node.input, operators.added[node.input]))
            gone = operators.all_taken_back(node.input)
            if gone is not None:
                taken_back[node] = _result(node, gone)
            all_due = operators.all_due(node.input)
            if all_due is not None:
                again[node] = _result(node, all_due)
                since_ms = operators.said_again_since_ms(node.input)
                if since_ms is not None:
                    again_since_ms[node] = since_ms
                ends_after_ms = operators.again_ends_after_ms(node.input)
                if ends_after_ms is not None:
                    again_ends_after_ms[node] = ends_after_ms
    operators.report_overtaken(readers)
    log = journal.with_raised(log_sources.places(decoded.values()))
    fates = journal.fates(log)
    ledgers = {
        "late": journal.late(log),
        "fates": fates,
        "rejected": log_sources.rejected(log),
        "unread": journal.unread(log),
        "beyond": operators.all_beyond(),
    }
    return Recomputed(
        results=results,
        held_after_ms={node: operators.held_after_ms(node) for node in rows if isinstance(node, Suppress)},
        again=again,
        again_since_ms=again_since_ms,
        again_ends_after_ms=again_ends_after_ms,
        taken_back=taken_back,
        added=added,
        rows=rows,
        handover=handover,
        ledgers=ledgers,
        _fates=fates,
        _operators=operators,
        _decoded=decoded,
        _is_first=same_logs is None,
    )


def _made_or_raised(node: Node, above: list[Rows], operators: Stateful) -> Frame | None:
    """The rows that the function of ``node`` made, beside the records for which it raised; None where it has none."""
    match node:
        case FlatMap():
            return flat_mapped(node, above[0].frame)
        case Process():
            return operators.processed_or_raised[node]
        case WindowedAggregate():
            return operators.tried.get(node)
    return None


def _done_before(node: Node, readers: Readers, done: Mapping[str, int]) -> int:
    """How many batches had been done when the first of the sinks began that ``node`` leads to."""
    return min(
        done.get(reader.topic.name, 0)
        if isinstance(reader, Sink)
        else 0
        if isinstance(reader, Through | Foreach)
        else _done_before(reader, readers, done)
        for reader, _ in readers[node]
    )


def _forked(rows: Rows, number: int | None) -> Rows:
    """``rows`` as they go to one of several readers."""
    if number is None:
        return rows
    return replace(rows, frame=rows.frame.with_column(ORDER, after(F.col(ORDER), F.lit(number))))


def _rows_of(
    node: Node, above: list[Rows], decoded: Mapping[str, Frame], operators: Stateful, readers: Readers
) -> Rows:
    require_updates(node, [(one.node, one.holds) for one in above])
    match node:
        case Source():
            return Rows(node=node, frame=log_sources.records(decoded[node.topic.name], node))
        case WindowedAggregate():
            return operators.windowed(node, above[0])
        case StreamStreamJoin():
            return operators.stream_joined(node, above)
        case StreamTableJoin():
            return operators.looked_up(node, *above)
        case TableTableJoin():
            return table_joined(node, *above, carrying=operators.carrying)
        case ToTable():
            made = log_tables.changes(node, above[0], operators.carrying, only_by_time=is_asked_by_time(node, readers))
            has_key = named(node.key).is_not_null()
            operators.journal.note(above[0].current, F.when(has_key, "counted").otherwise("null key"))
            return made
        case TableFilter():
            return log_tables.filtered(node, above[0], operators.carrying)
        case TableAggregate():
            return log_tables.regrouped(node, above[0], operators.carrying)
        case Suppress():
            return operators.suppressed(node, above[0])
        case Deduplicate():
            return operators.deduplicated(node, above[0])
        case InOrder():
            return operators.ordered(node, above[0])
        case Process():
            return operators.processed(node, above[0])
        case Sink():
            return above[0].with_frame(node, above[0].frame)
    return stateless(node, above)


def _result(node: Written, rows: Rows) -> Frame:
    """The rows that ``node`` writes; a plain value that is null equals a deletion."""
    value, deleted = node.topic.value, F.col(IS_NULL)
    if isinstance(value, PlainValue):
        deleted = deleted | named(value.name).is_null()
    frame = rows.current if rows.holds == "records" else rows.latest
    whence = origin() if rows.holds == "records" else F.lit(None).cast("string")
    told = {RESULT_TIME: F.col(TIME), DELETED: deleted, ORIGIN: whence}
    return frame.select(*map(named, rows.node.fields), *(one.alias(name) for name, one in told.items()))
