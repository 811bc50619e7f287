"""A topology: a named graph of operators, declared with the fluent API of ``flow``.

>>> from recount.declare.aggregates import count
>>> from recount.declare.expressions import col
>>> from recount.declare.schema import RecordSchema, STRING
>>> from recount.declare.topics import Topic
>>> from recount.declare.windows import tumbling
>>> clicks = Topic(name="clicks", key="click_id", value=RecordSchema.of(user_id=STRING))
>>> per_user = Topic(name="clicks-per-user", key="user_id")
>>> topology = Topology(
...     name="clicks-per-user",
...     sinks=[
...         stream(clicks)
...         .select_key(user_id=col("user_id"))
...         .windowed_by(tumbling("5 min", grace="60 s"))
...         .aggregate(clicks=count())
...         .emit_final()
...         .to(per_user)
...     ],
... )
>>> [source.topic.name for source in topology.sources]
['clicks']
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from recount.declare.columns import require_bounds, require_distinct
from recount.declare.evaluation import expressions_of, require_in_range
from recount.declare.flow import RecordStream, Table, cogroup, stream, table
from recount.declare.limits import Health, require_health
from recount.declare.operators.event_time import Layers, reading_layers, require_versions
from recount.declare.operators.nodes import Node, Sink, Source
from recount.declare.operators.placement import require_followed, require_histories, require_order
from recount.declare.operators.stateless import Foreach, Merge, Through
from recount.declare.steps import Rows
from recount.declare.topics import CREATE_TIME, FARTHEST_AHEAD, TIMESTAMP_TYPE, Topic
from recount.declare.unknown_names import declares
from recount.runtime.errors import require
from recount.runtime.times import Duration, milliseconds, readable

Written = Sink | Through
"""Operators whose rows are written to a topic and a table."""

__all__ = ["Health", "RecordStream", "Table", "Topology", "cogroup", "stream", "table"]
LONGEST_STREAM = 200
"""Of a topology: Airflow's names of groups of tasks have no more characters, and its names of DAGs 250."""
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@declares
@dataclass(frozen=True, kw_only=True)
class Topology:
    """A named graph of operators that runs as one stream, with one lease, one ledger and one audit.

    ``idle_after``: a partition read to its end for so long no longer holds the frontier back. ``max_future``: a
    timestamp further than this ahead of the batch's recorded time is dead-lettered. ``retention``: how long rows of its
    tables are kept after the stream has passed their time, None: for ever (``tables.places``). ``actions`` are flows
    that end in a ``foreach``. ``on_bad_record``: a record that cannot be processed goes to the dead-letter topic, or
    fails the stream.
    """

    name: str
    sinks: Sequence[Sink] = ()
    actions: Sequence[Foreach] = ()
    health: Health = field(default_factory=Health)
    retention: Duration | None = "400 d"
    idle_after: Duration = "5 min"
    max_future: Duration = "1 h"
    on_bad_record: Literal["dead-letter", "fail"] = "dead-letter"

    def __post_init__(self) -> None:
        require(
            isinstance(self.name, str) and _NAME.fullmatch(self.name) is not None and len(self.name) <= LONGEST_STREAM,
            "topology-name-unfit",
            given=self.name,
            most=LONGEST_STREAM,
        )
        _require_ends("sinks", self.sinks, Sink, '.to(Topic(name="high-orders", key="order_id"))')
        _require_ends("actions", self.actions, Foreach, ".foreach(function)")
        require_health(self.health)
        require(bool(self.sinks) or bool(self.actions), "topology-without-sinks", given=list(self.sinks))
        require(self.on_bad_record in ("dead-letter", "fail"), "on-bad-record-unknown", given=self.on_bad_record)
        for node in self.nodes():
            require_distinct(str(node), node.fields)
            require_in_range(expressions_of(node))
        for node in self.written:
            require_bounds(str(node), {name: str(kind) for name, kind in node.fields.items()})
        assert self.idle_after_ms >= 0
        assert self.max_future_ms >= 0
        require(
            self.retention_ms is None or self.retention_ms > 0,
            "retention-of-nothing",
            given=self.retention,
            name=self.name,
        )
        for node in self.written:
            limit = node.topic.configs.get(FARTHEST_AHEAD, str(self.max_future_ms))
            require(
                limit.isdigit() and int(limit) >= self.max_future_ms,
                "topic-refuses-future-records",
                given=limit,
                name=node.topic.name,
                setting=FARTHEST_AHEAD,
                max_future_ms=self.max_future_ms,
                max_future=readable(self.max_future_ms),
            )
            require(
                node.topic.configs.get(TIMESTAMP_TYPE, CREATE_TIME) == CREATE_TIME,
                "topic-with-another-time",
                given=node.topic.configs.get(TIMESTAMP_TYPE),
                name=node.topic.name,
                setting=TIMESTAMP_TYPE,
                wanted=CREATE_TIME,
            )
        self._require_one_declaration_of_each_source()
        self._require_outputs_of_its_own()
        require_versions(self.nodes())
        require_histories(self.nodes())
        require_order(self.nodes())
        require_followed(self.nodes())
        assert self.layers

    def _require_one_declaration_of_each_source(self) -> None:
        """A record is decoded once for all operators that read its topic."""
        known: dict[str, Topic] = {}
        read = [node.topic for node in self.nodes() if isinstance(node, Source)]
        unlike = sorted({topic.name for topic in read if known.setdefault(topic.name, topic) != topic})
        require(
            not unlike,
            "topic-read-as-two",
            given=f"two declarations of {', '.join(unlike)}, which differ",
            name=self.name,
        )

    def _require_outputs_of_its_own(self) -> None:
        """Refuse outputs that two write: they cannot be judged, since the rows of each would be extra to the other."""
        topics, tables = [node.topic.name for node in self.written], [node.table for node in self.written]
        read = [source.topic.name for source in self.sources]
        letters = [source.topic.dead_letter_name for source in self.sources]
        for what, given in (("topic", [*topics, *read, *letters]), ("table", tables)):
            twice = sorted({name for name in given if given.count(name) > 1})
            require(not twice, "written-by-two-sinks", given=", ".join(twice), what=what, name=self.name)

    @property
    def idle_after_ms(self) -> int:
        return milliseconds(self.idle_after, "idle_after")

    @property
    def max_future_ms(self) -> int:
        return milliseconds(self.max_future, "max_future")

    @property
    def retention_ms(self) -> int | None:
        """``retention`` in milliseconds; None: for ever."""
        return None if self.retention is None else milliseconds(self.retention, "retention")

    def nodes(self) -> Iterator[Node]:
        """Every operator once, inputs before what reads them."""
        seen: set[int] = set()

        def walk(node: Node) -> Iterator[Node]:
            if id(node) in seen:
                return
            seen.add(id(node))
            for above in node.inputs:
                yield from walk(above)
            yield node

        ends: tuple[Node, ...] = (*self.sinks, *self.actions)
        for end in ends:
            yield from walk(end)

    def without(self, topics: Container[str]) -> Topology:
        """This topology as it was before the sinks to ``topics`` were added, of the same operators."""
        return replace(self, sinks=[sink for sink in self.sinks if sink.topic.name not in topics])

    def readers(self) -> dict[Node, list[tuple[Node, int]]]:
        """Who reads every operator, as its input of which number, in the order in which a record goes to them."""
        found: dict[Node, list[tuple[Node, int]]] = {}
        for node in self.nodes():
            found[node] = []
            for port, above in enumerate(node.inputs):
                found[above].append((node, port))
        return found

    def forks(self) -> dict[tuple[Node, int], int]:
        """Return which reader of its input an operator is, where several read; none where no two branches meet again.

        With it the rows that one record led to by several branches can be put into the order in which they came about.
        The sources of one topic are one in this: a record enters by each of them in turn.
        """
        if not any(isinstance(node, Merge) for node in self.nodes()):
            return {}
        together: dict[Node | str, list[tuple[Node, int]]] = {}
        for above, readers in self.readers().items():
            together.setdefault(above.topic.name if isinstance(above, Source) else above, []).extend(readers)
        several = [readers for readers in together.values() if len(readers) > 1]
        return {place: number for readers in several for number, place in enumerate(readers)}

    @cached_property
    def layers(self) -> Layers:
        """The source topics in the order in which a batch reads them: those of tables first."""
        return reading_layers(self.nodes())

    @property
    def written(self) -> list[Written]:
        return [node for node in self.nodes() if isinstance(node, Sink | Through)]

    @property
    def sources(self) -> list[Source]:
        """The sources, one per topic."""
        by_topic = {node.topic.name: node for node in self.nodes() if isinstance(node, Source)}
        return list(by_topic.values())


def _require_ends(what: str, given: object, kind: type, end: str) -> None:
    """Refuse flows that do not end as ``kind``: a stream without a sink, an aggregate without an emission."""
    ends = given if isinstance(given, list | tuple) else [given]
    remedy = f"end the flow with {end}, an aggregate of windows with .emit_final() or another emission before it"
    named = [f"{_shortly(one)}, a {type(one).__name__}" for one in ends if not isinstance(one, kind)]
    require(not named, "not-ending-in-a-sink", given="; ".join(named), field=what, kind=kind.__name__, remedy=remedy)
    require(isinstance(given, list | tuple), "not-a-list", given=f"{given}, a {type(given).__name__}", what=what)


def _shortly(flow: object) -> str:
    """An operator in its own words; of other things only a beginning, for they can be long."""
    return str(flow.node) if isinstance(flow, Rows) else repr(flow)[:60]
