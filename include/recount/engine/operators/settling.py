"""Which rows can still come once the stream time of every partition has passed them, by the declaration alone."""

from __future__ import annotations

from recount.declare.operators.event_time import waits_for
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import WINDOW_START, Filter, Node, Source, WindowedAggregate, WithFields
from recount.declare.operators.processing import Process
from recount.declare.operators.stateless import Peek, Repartition, Select, Through
from recount.declare.operators.tables import Suppress, TableAggregate, TableFilter, ToTable
from recount.declare.windows import GlobalWindow, LastN, SessionWindows


def comes_any_time(node: Node) -> bool:
    """Whether rows can leave ``node`` that are derived, and so never late, and yet older than all partitions.

    The updates of what never closes have the time of its latest record, those of a table the time of any of its rows,
    and a timer may be set in the past. A table that holds updates back waits from the first one on, and the latest can
    be of another partition, which was far behind then.
    """
    match node:
        case Suppress() if WINDOW_START not in node.fields and not _is_of_one_partition(node.input):
            return True
        case WindowedAggregate(windows=GlobalWindow() | LastN()) | TableAggregate() | TableTableJoin():
            return True
        case Process(on_timer=timer) if timer is not None:
            return True
        case Source():
            return False
    return any(comes_any_time(above) for above in waits_for(node))


def _is_of_one_partition(table: Node) -> bool:
    """Whether all changes of a key of ``table`` come from one partition: the key is that of its topic."""
    while isinstance(table, ToTable | TableFilter | Filter | Peek | Repartition | Through | WithFields | Select):
        table = table.input
    return isinstance(table, Source)


def is_revised_any_time(node: Node) -> bool:
    """Whether a row that left ``node`` can be replaced however old it is; never where none can be at all.

    A time or sliding window is revised until its own clock has settled its end. An operator below is settled by the
    window's length and grace less, for so much it is delayed: a result that is replaced is not older than that. Length
    10, grace 2, settled at 50: a result that can be replaced is of [38, 48) or later, and below nothing before 38 is
    settled. So it is with sessions, but for ``revised_for_ms``.
    """
    match node:
        case WindowedAggregate(windows=GlobalWindow() | LastN()):
            return True
        case TableAggregate() | TableTableJoin():
            return True
        case Source() | StreamStreamJoin():
            return False
        case StreamTableJoin(left=left):
            return is_revised_any_time(left)
    return any(is_revised_any_time(above) for above in node.inputs)


def revised_for_ms(node: Node) -> int:
    """How much older than its delay says a row of ``node`` can be when it is replaced.

    A session is withdrawn until it is settled, which is the reach and a gap after it was due.
    """
    match node:
        case WindowedAggregate(windows=SessionWindows(reach_ms=reach_ms, gap_ms=gap_ms)):
            return reach_ms + gap_ms
    return 0
