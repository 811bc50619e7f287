"""Stream times and frontiers of the operators of a topology: by which each judges, and what it lets go.

And what it came to: the late ledger, and one fate for each place in the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from recount.declare.operators.nodes import Node
from recount.declare.operators.processing import Process
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column
from recount.recompute.frames.duck_frames import Frame, no_rows, union_of
from recount.recompute.operators.carried import Carrying
from recount.recompute.operators.frontiers import ALL_DUE, NONE_DUE, BatchEnds, Partition, Reached, reached
from recount.recompute.operators.log_rows import (
    OFFSET,
    PARTITION,
    PLACE,
    STREAM_TIME,
    TIME,
    TOPIC,
    advancing,
    refused,
    stream_times,
    times_of_rows,
)
from recount.recompute.operators.log_stateless import REASON
from recount.recompute.operators.log_tables import UNREAD_SCHEMA
from recount.recompute.rules.time_rules import (
    comes_from_the_log,
    is_held_back,
    judges_above,
    refusing_above,
    topics_awaited,
    waited_above_ms,
)

Judging = Sequence[tuple[Frame, Column, Column]]
"""Of each input of an operator: the rows, whether one lacks the key, whether one is judged (``refused``)."""


@dataclass(kw_only=True)
class Clocks:
    """The time of each operator, over the ``entries`` of each topic: all that could advance stream time.

    Without ``lateness`` no operator judges. Without ``batches`` everything is due. ``passed_over`` has the places of
    records that did not advance an operator's stream time; None where all did. ``beside`` are the clocks of another
    recompute of the same interval: what has been worked out there, and lateness does not change, is taken from there.
    """

    entries: Mapping[str, Frame]
    lateness: bool
    frontier_ms: int | None
    batches: Sequence[BatchEnds] | None
    carrying: Carrying
    beside: Clocks | None = None
    passed_over: dict[Node, Frame | None] = field(default_factory=dict)
    _known: dict[str, tuple[frozenset[str], Frame | None]] = field(default_factory=dict)
    _reached: dict[str, Reached] = field(default_factory=dict)
    _frontiers: dict[Node, list[int]] = field(default_factory=dict)

    def times(self, node: Node, judging: Judging) -> Frame | Column | None:
        """The stream times by which ``node`` judges, of each row or by place; None where nothing is late."""
        without = self._without(node, judging)
        return self._times(node, without, self._stood(node)) if self.lateness else None

    def times_before(self, node: Node, judging: Judging) -> Frame:
        """The stream times that each record found, with ``lateness`` or without."""
        without = self._without(node, judging)
        return stream_times(self._entries(node), without, self._stood(node), before=True)

    def times_of_all(self, node: Node) -> Column | None:
        """The stream times over all records that lead to ``node``, of each row; None where nothing is late."""
        return self.times_of_all_always(node) if self.lateness else None

    def times_of_all_always(self, node: Node) -> Column:
        """The same, with ``lateness`` or without."""
        stood = self.carrying.stood(self._clock_of_topics(node)).stream_times
        return times_of_rows(topics_awaited(node), stood)

    def _times(self, node: Node, without: Frame | None, stood: Mapping[Partition, int]) -> Frame | Column:
        if without is None:
            return times_of_rows(topics_awaited(node), stood)
        return stream_times(self._entries(node), without, stood)

    def frontier_now_ms(self, node: Node) -> int:
        """How far the frontier of ``node`` had come, less what the operators above delay; never ahead of theirs."""
        if self.batches is None:
            return ALL_DUE
        frontiers = self.frontiers_ms(node, self.batches)
        return frontiers[-1] if frontiers else self.carrying.frontier_before_ms(node)

    def since_ms(self, node: Node) -> int:
        """How far back what is carried to ``node`` must reach."""
        return self.carrying.since_ms(self.frontier_now_ms(node))

    def frontiers_ms(self, node: Node, batches: Sequence[BatchEnds]) -> list[int]:
        """How far the frontier of ``node`` had come after each batch, less what the operators above delay.

        It waits for the frontiers of those above of whose topics a partition is awake, and never falls back.
        """
        if node not in self._frontiers:
            delay_ms, frontier_ms, found = waited_above_ms(node), self.carrying.frontier_if_kept_ms(node), list[int]()
            above = [(topics_awaited(one), self.frontiers_ms(one, batches), by_ms) for one, by_ms in judges_above(node)]
            for number, slowest_ms in enumerate(self._reached_of(node, batches).slowest_ms):
                topics = {topic for topic, _ in batches[number].awake}
                awaited = [(reached[number], by_ms) for its, reached, by_ms in above if topics & its]
                if slowest_ms is not None and all(ms > NONE_DUE for ms, _ in awaited):
                    behind = [slowest_ms - delay_ms, *(ms - by_ms for ms, by_ms in awaited)]
                    frontier_ms = max(frontier_ms, min(behind))
                found.append(frontier_ms)
            self._frontiers[node] = found
        return self._frontiers[node]

    def left_some_behind(self, node: Node) -> bool:
        """Whether the frontier of ``node`` can have been ahead of a partition that has records: it was idle, or new."""
        batches, topics, stood = self.batches or (), topics_awaited(node), self._stood(node)
        partitions = {at for batch in batches for at, end in batch.ends.items() if at[0] in topics and end}
        before_ms = self.carrying.frontier_before_ms(node)
        return any(stood.get(at, NONE_DUE) < before_ms for at in partitions) or any(
            not partitions <= batch.awake for batch in batches
        )

    def timers_end_ms(self, node: Process) -> int | None:
        """The time up to which the timers of ``node`` have fired in the end."""
        if self.batches is not None:
            reached_ms = self.frontier_now_ms(node)
            return reached_ms if reached_ms > NONE_DUE else None
        frontier_ms = self.frontier_ms
        if frontier_ms is None:
            frontier_ms = _smallest_ms(self._entries(node), self.passed_over.get(node))
        return None if frontier_ms is None else frontier_ms - waited_above_ms(node)

    def own_frontier_ms(self, node: Node) -> int:
        """How far the frontier of ``node`` had come, whatever the operators above delay."""
        return ALL_DUE if self.batches is None else self._reached_of(node, self.batches).last_ms

    def kept(self, batches: Sequence[BatchEnds]) -> Frame:
        """Where everything stands after the last of ``batches``."""
        for node in self.carrying.asked:
            self.frontiers_ms(node, batches)
        frontiers = {node: self.frontier_now_ms(node) for node in self._frontiers}
        reached = {name: self._reached_by(name, batches) for name in self._known}
        return self.carrying.clocks(reached, frontiers)

    def latest_ms(self, node: Node | None = None) -> dict[Partition, int]:
        """The largest event time of the ``entries`` of each partition; of those that advance ``node``, if one is."""
        without = None if node is None else self.passed_over.get(node)
        advance = (advancing(one, without) for one in self.entries.values())
        largest = (one.group_by(TOPIC, PARTITION).agg(F.largest(TIME).alias(TIME)) for one in advance)
        return {(row[TOPIC], row[PARTITION]): row[TIME] for found in largest for row in found.rows()}

    def _without(self, node: Node, judging: Judging) -> Frame | None:
        """The places of records that do not advance the stream time of ``node``: refused by it, or further up."""
        if is_held_back(node):
            return None
        if self.beside is not None and comes_from_the_log(node):
            found = self.beside.passed_over[node]
        else:
            above = [places for judge in refusing_above(node) if (places := self.passed_over.get(judge)) is not None]
            found = refused(judging, above)
        self.passed_over[node] = found
        return found

    def _entries(self, node: Node) -> Frame:
        return self._entries_of(topics_awaited(node))

    def _entries_of(self, topics: frozenset[str]) -> Frame:
        first, *others = (self.entries[topic] for topic in sorted(topics))
        for other in others:
            first = first.union(other)
        return first

    def _stood(self, node: Node) -> Mapping[Partition, int]:
        """The stream times of ``node`` at the last cut."""
        return self.carrying.stood(self._clock(node)).stream_times

    def _reached_of(self, node: Node, batches: Sequence[BatchEnds]) -> Reached:
        """How far the frontier of ``node`` itself had come after each batch, and each partition in the end."""
        return self._reached_by(self._clock(node), batches)

    def _reached_by(self, clock: str, batches: Sequence[BatchEnds]) -> Reached:
        if clock not in self._reached:
            topics, without = self._known[clock]
            stood = self.carrying.stood(clock)
            if self.beside is not None and self.beside._stands(clock, without, stood):
                self._reached[clock] = self.beside._reached_by(clock, batches)
            else:
                self._reached[clock] = reached(batches, self._entries_of(topics), without, topics, stood)
        return self._reached[clock]

    def _stands(self, clock: str, without: Frame | None, stood: Reached) -> bool:
        """Whether ``clock`` has passed over these places, the very frame, and stood so at the last cut."""
        known = self._known.get(clock)
        return known is not None and known[1] is without and self.carrying.stood(clock) == stood

    def _clock(self, node: Node) -> str:
        """The name of the clock of ``node``: its own where it refuses records, else that of its topics."""
        if node not in self.passed_over:
            return self._clock_of_topics(node)
        name = self.carrying.names[node]
        self._known[name] = topics_awaited(node), self.passed_over[node]
        return name

    def _clock_of_topics(self, node: Node) -> str:
        topics = topics_awaited(node)
        name = "+".join(sorted(topics))
        self._known.setdefault(name, (topics, None))
        return name


def _smallest_ms(entries: Frame, without: Frame | None) -> int | None:
    """The smallest stream time of all partitions."""
    reached = advancing(entries, without).group_by(TOPIC, PARTITION).agg(F.largest(TIME).alias(TIME))
    [row] = reached.agg(F.smallest(TIME).alias(TIME)).rows()
    found: int | None = row[TIME]
    return found


FATES = ("counted", "late", "deduplicated", "null value", "null key", "filtered", "waiting")
"""Where operators differ about a record, the first of these holds."""
DEAD_LETTERED = "dead-lettered"
_LATE = (
    "topic string, partition int, offset long, timestamp_ms long, stream_time_ms long, key string, "
    "window_start long, window_end long, margin_ms long"
)


class Journal:
    """Filled by the operators as the topology is walked; nothing is computed before it is read."""

    def __init__(self) -> None:
        self._late: list[Frame] = []
        self._notes: list[Frame] = []
        self._unread: list[Frame] = []
        self._raised: list[Frame] = []

    def note(self, rows: Frame, fate: Column) -> None:
        """``fate`` of the rows that lie in the log, one of ``FATES``; null says nothing."""
        said = rows.where(F.col(OFFSET).is_not_null()).select(*PLACE, fate.alias("fate"))
        self._notes.append(said.where(F.col("fate").is_not_null()))

    def late_for(self, rows: Frame, key: Column, margin: Column, start: Column, end: Column) -> None:
        """Late ``rows``, each for the window from ``start`` to ``end``, null for a join or a deduplication."""
        self._late.append(
            rows.select(
                F.col(TOPIC).alias("topic"),
                F.col(PARTITION).alias("partition"),
                F.col(OFFSET).alias("offset"),
                F.col(TIME).alias("timestamp_ms"),
                F.col(STREAM_TIME).alias("stream_time_ms"),
                key.cast("string").alias("key"),
                start.cast("long").alias("window_start"),
                end.cast("long").alias("window_end"),
                margin.cast("long").alias("margin_ms"),
            )
        )

    def set_aside(self, rows: Frame) -> None:
        """The records behind those of ``rows`` that have a ``REASON``: for them a function raised."""
        self._raised.append(rows.where(F.col(REASON).is_not_null()).select(*PLACE, REASON))

    def with_raised(self, log: Frame) -> Frame:
        """The decoded ``log``, with the ``reason`` of records for which functions raised: the first of several."""
        if not self._raised:
            return log
        first = union_of(self._raised).group_by(*PLACE).agg(F.smallest(REASON).alias(REASON))
        marked = log.join(first, list(PLACE), "left")
        return marked.with_column("reason", F.coalesce("reason", REASON)).drop(REASON)

    def unread_by(self, rows: Frame) -> None:
        """The changes of a table that records would have found, had they been read (``UNREAD_SCHEMA``)."""
        self._unread.append(rows)

    def unread(self, log: Frame) -> Frame:
        """All of them; ``log`` only lends its database."""
        nothing = no_rows(log.database, UNREAD_SCHEMA)
        return union_of([nothing, *self._unread])

    def late(self, log: Frame) -> Frame:
        """The late ledger; ``log`` only lends its database."""
        nothing = no_rows(log.database, _LATE)
        return union_of([nothing, *self._late])

    def fates(self, log: Frame) -> Frame:
        """Topic, partition, offset and fate of every record of the decoded ``log``."""
        ranks, nothing = F.map_of({fate: rank for rank, fate in enumerate(FATES)}), F.lit(None)
        read = log.select(*PLACE, F.lit(True).alias("__read"), nothing.cast("long").alias("__rank"), "reason")
        notes = [
            one.select(
                *PLACE,
                F.lit(False).alias("__read"),
                ranks.value_at(F.col("fate")).alias("__rank"),
                nothing.cast("string").alias("reason"),
            )
            for one in self._notes
        ]
        told = union_of([read, *notes]).group_by(*PLACE)
        found = told.agg(
            *(F.largest(name).alias(name) for name in ("__read", "reason")), F.smallest("__rank").alias("__rank")
        )
        place = F.coalesce("__rank", F.lit(FATES.index("filtered"))) + 1
        fate = F.element_at(F.array(*FATES), place)
        return found.where("__read").select(
            F.col(TOPIC).alias("topic"),
            F.col(PARTITION).alias("partition"),
            F.col(OFFSET).alias("offset"),
            F.when(F.col("reason").is_not_null(), DEAD_LETTERED).otherwise(fate).alias("fate"),
        )
