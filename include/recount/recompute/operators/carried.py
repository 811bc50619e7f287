"""Frames that one recompute hands to the next: a night costs its own records and what they can still reach.

A log is recomputed part by part; a part ends with a batch, the cut. ``recomputed(..., batches=...)`` of one part says,
by ``kept()``, what the next one must know, as frames by name; the next one reads them as ``Carried``::

    first = recomputed(session, topology, logs_of_night_1, batches=batches_of_night_1)
    for name, frame in first.kept().items():
        write(frame, name)                      # written, then read back: plans must not grow night after night
    second = recomputed(session, topology, logs_of_night_2, batches=batches_of_night_2, carried=written_frames)

- ``require_incremental(topology.nodes())`` raises ``NotIncremental``, before anything is read, where this cannot be
  done: begin at the beginning of the log then.
- Names are made of the operators' places in the topology, so they are the same in every process. Frames of another
  declaration, of another ``lateness``, or of another look back are of no use: the caller must see to that.
- Columns of the frames have names of their own (``c0``, ``c1``, ...), in the order that the operator expects. The one
  that has the key of a row is called ``key``, so that the rows of one key can be taken out (``key_column``).
- ``logs``, ``batches`` and ``table_ends`` are those of the new part alone, and so are ``late``, ``fates``,
  ``rejected``, ``unread`` and ``entries``. ``unread`` has no change that was read in a later part.
- ``results`` of records are the rows that left in the part. Of a table or a total of all time they are the current
  rows of the keys that something touched; of windows whose updates leave, the rows of all windows within the look
  back, with a deletion for a session that went into another. Final results are there if they left in the part;
  ``again`` has all due windows within the look back, to compare results that a late record has changed.
- The look back is how far behind the frontier a late record is recomputed. What is older is ``beyond``: it is not
  in any result, for the rows that it would meet are no longer there.

Carried are records that can still influence what leaves; where records will not do (totals of all time, processors),
one row for each key. So they are bounded by windows, graces, intervals, histories and keys. Of a table that is looked
up as of the event's time with unlimited history all versions are kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import Node, WindowedAggregate
from recount.declare.operators.processing import Deduplicate
from recount.declare.operators.tables import TableAggregate
from recount.declare.topology import Topology
from recount.declare.windows import GlobalWindow
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column, named
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame, frame_of
from recount.recompute.operators.frontiers import NONE_DUE, Reached
from recount.recompute.operators.log_order import NotRecomputable, is_ordered
from recount.recompute.operators.log_rows import REACHED, TURN, TURN_TYPE

KEY_NAME, ID_NAME = "key", "id"
"""What the columns of a frame are called that have the key, and what deduplication goes by."""
GROUP, IDENTITY = "__group", "__identity"
IS_NEW = "__is_new"
"""Whether a row came in this interval of the log; others are carried."""
LOOK_BACK_MS = 3_600_000
CLOCKS = "clocks"


def key_column(node: Node, what: str) -> str:
    """The column of the frame ``what`` of ``node`` that has the key: that of the input whose rows these are.

    A group of a table is the key of the results, and of no row above.
    """
    match node, what:
        case (StreamStreamJoin(right=right), "side-1") | (TableTableJoin(right=right), "table-right"):
            return right.key
        case StreamTableJoin(right=right), "table":
            return right.key
        case TableAggregate(), "groups":
            return GROUP
    return node.inputs[0].key


def id_column(node: Node) -> str | None:
    """The column that has what makes two records of a deduplication the same; None of any other operator."""
    return IDENTITY if isinstance(node, Deduplicate) else None


class Carried(Protocol):
    """The frames that were kept at the last cut."""

    def read(self, name: str, database: Database) -> Frame | None:
        """The frame ``name`` in ``database``; None where it was not kept."""


class NotIncremental(NotRecomputable):
    """A topology, or carried rows, from which no interval of a log can be recomputed: begin at the beginning."""


def is_incremental(topology: Topology) -> bool:
    """Whether an interval of the log of ``topology`` can be recomputed."""
    try:
        require_incremental(topology.nodes())
    except NotIncremental:
        return False
    return True


def require_incremental(nodes: Iterable[Node]) -> None:
    """Raise ``NotIncremental`` where one of the operators of a topology must see the whole log again."""
    for node in nodes:
        if (
            isinstance(node, WindowedAggregate)
            and isinstance(node.windows, GlobalWindow)
            and any(aggregate.fold for aggregate in node.aggregates.values())
            and not is_ordered(node.input)
        ):
            raise NotIncremental(
                f"{node} cannot be recomputed from where it stood",
                given=f"a fold over records of {node.input}, which take their values partition by partition",
                expected="a key whose records lie in one partition, or records in order",
                remedy="put in_order(grace=...) before it, or recompute it from the beginning of the log",
            )


@dataclass(kw_only=True)
class Carrying:
    """Reads what was ``carried`` to each operator of a topology, and notes what each of them keeps.

    ``names`` are those of the operators. ``kept`` has what makes each frame; nothing is computed before it is read.
    """

    database: Database
    names: Mapping[Node, str]
    carried: Carried | None
    look_back_ms: int
    batches: int = 0
    kept: dict[str, Callable[[], Frame]] = field(default_factory=dict)
    asked: dict[Node, None] = field(default_factory=dict)
    _columns: dict[str, list[str]] = field(default_factory=dict)
    _stood: dict[str, Reached] = field(default_factory=dict)
    _frontiers: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        database: Database,
        topology: Topology,
        carried: Carried | None,
        look_back_ms: int,
        *,
        batches: int = 0,
    ) -> Carrying:
        """For ``topology`` and an interval of ``batches``."""
        made = cls(
            database=database, names=names_of(topology), carried=carried, look_back_ms=look_back_ms, batches=batches
        )
        if carried is not None:
            require_incremental(topology.nodes())
            [row] = made._required(CLOCKS).under(["c0"]).rows()
            told = json.loads(row["c0"])
            made._stood = {name: Reached.from_json(one) for name, one in told["reached"].items()}
            made._frontiers = told["frontiers"]
        return made

    def with_carried(self, node: Node, what: str, new: Frame) -> Frame:
        """``new`` rows of ``node`` and those that were carried, distinguished by ``IS_NEW``."""
        marked = new.with_column(IS_NEW, F.lit(True))
        of_all = [name for name in new.columns if name not in (REACHED, TURN)]
        known = self.carried_to(node, what, [*of_all, TURN] if TURN in new.columns else of_all)
        return marked if known is None else marked.union(known)

    def carried_to(self, node: Node, what: str, columns: Sequence[str]) -> Frame | None:
        """Rows carried to ``node``, as these ``columns`` and ``IS_NEW``; None at the beginning of the log."""
        name = self._name(node, what)
        self._columns[name] = list(columns)
        if self.carried is None:
            return None
        frame = self._required(name)
        # an earlier release kept no turns, which are the last column
        found = frame.under(columns[: len(frame.columns)]).with_column(IS_NEW, F.lit(False))
        return found if TURN not in columns or TURN in found.columns else found.with_column(TURN, _no_turn())

    def keep(self, node: Node, what: str, rows: Callable[[], Frame]) -> None:
        """Keep for the next interval the ``rows`` of ``node``, with the columns that it gave for new ones."""
        name = self._name(node, what)

        ours = {key_column(node, what): KEY_NAME, id_column(node): ID_NAME}

        def made() -> Frame:
            columns = enumerate(self._columns[name])
            values = {TURN: self._turn_before()}
            return rows().select(*(values.get(one, named(one)).alias(ours.get(one, f"c{at}")) for at, one in columns))

        self.kept[name] = made

    def stood(self, clock: str) -> Reached:
        """How far ``clock`` had come at the last cut."""
        return self._stood.get(clock, Reached.nowhere())

    def frontier_before_ms(self, node: Node) -> int:
        """How far the frontier of ``node`` had come at the last cut, less what the operators above delay.

        Who asks looks back from there (``asked``).
        """
        self.asked[node] = None
        return self.frontier_at_cut_ms(node)

    def frontier_if_kept_ms(self, node: Node) -> int:
        """The same where the interval before kept it, else ``NONE_DUE``."""
        return self._frontiers.get(self.names[node], NONE_DUE)

    def frontier_at_cut_ms(self, node: Node) -> int:
        """The same, for who does not look back from there."""
        if self.carried is None:
            return NONE_DUE
        if self.names[node] not in self._frontiers:
            raise _not_kept(f"the frontier of {self.names[node]}")
        return self._frontiers[self.names[node]]

    def since_before_ms(self, node: Node) -> int:
        """The time from which on rows are carried to ``node``, as far as they can be reached from there."""
        return self.since_ms(self.frontier_before_ms(node))

    def since_ms(self, frontier_ms: int) -> int:
        """How far the look back goes from ``frontier_ms``."""
        return NONE_DUE if frontier_ms == NONE_DUE else frontier_ms - self.look_back_ms

    def clocks(self, reached: Mapping[str, Reached], frontiers: Mapping[Node, int]) -> Frame:
        """How far everything has come."""
        told = {
            "reached": {name: one.to_json() for name, one in reached.items()},
            "frontiers": {self.names[node]: frontier_ms for node, frontier_ms in frontiers.items()},
        }
        schema = pa.schema([("c0", pa.string())])
        return frame_of(self.database, [pa.table({"c0": [json.dumps(told)]}, schema)], schema)

    def _turn_before(self) -> Column:
        """The turn of a row as the next interval counts batches, from its first one."""
        turn = F.col(TURN)
        earlier = F.struct(
            (turn.part("batch") - self.batches).alias("batch"), turn.part("reached_ms").alias("reached_ms")
        )
        return F.when(turn.is_not_null(), earlier).otherwise(_no_turn())

    def _name(self, node: Node, what: str) -> str:
        return frame_name(self.names[node], what)

    def _required(self, name: str) -> Frame:
        assert self.carried is not None
        found = self.carried.read(name, self.database)
        if found is None:
            raise _not_kept(name)
        return found


def names_of(topology: Topology) -> dict[Node, str]:
    """The names of the operators of ``topology`` in the names of frames: by their places in it."""
    return {node: f"{number:02}-{type(node).__name__.lower()}" for number, node in enumerate(topology.nodes(), start=1)}


def frame_name(operator: str, what: str) -> str:
    """The name of the frame ``what`` of ``operator``, which is called so."""
    return f"{operator}-{what}"


def _no_turn() -> Column:
    return F.lit(None).cast(TURN_TYPE)


def _not_kept(what: str) -> NotIncremental:
    return NotIncremental(
        "what was carried is not complete",
        given=f"no {what}",
        expected="all that the recompute of the part before kept, of the same declaration",
        remedy="recompute from the beginning of the log",
    )
