"""A log recomputed stretch after stretch with what was carried through Parquet, and what all stretches say together."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from recount.audit.compare.identity import Identity
from recount.declare.columns import IS_NULL, RESULT_TIME
from recount.declare.operators.event_time import is_held_back
from recount.declare.operators.nodes import KEY, WINDOW_END, WINDOW_START, Node, WindowedAggregate
from recount.declare.topology import Topology
from recount.declare.windows import SessionWindows, SlidingWindows
from recount.recompute.decoding import Limits
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame, frame_of
from recount.recompute.operators.frontiers import BatchEnds
from recount.recompute.operators.log_tables import TableEnds
from recount.recompute.operators.recomputed import Recomputed, recomputed
from recount.recompute.raw_log import RawLog

Row = tuple[Any, ...]
SIDES = ("late", "fates", "rejected")


@dataclass(frozen=True, kw_only=True)
class Stretched:
    """A topology, its log, the batches that read it and how it is recomputed."""

    topology: Topology
    logs: Mapping[str, RawLog]
    batches: Sequence[BatchEnds]
    identities: Sequence[Identity]
    look_back_ms: int
    lateness: bool = True
    limits: Mapping[str, Mapping[int, Limits]] = field(default_factory=dict)
    table_ends: Sequence[TableEnds] | None = None
    sides: Sequence[str] = SIDES


@dataclass(frozen=True, kw_only=True)
class Told:
    """The rows of each sink and of each side ledger: of records every one, else the last of each key and window."""

    rows: Mapping[str, Counter[Row]]
    sides: Mapping[str, Counter[Row]]
    taken_back: int


@dataclass
class ParquetFrames:
    """What was kept at a cut, as it is read back."""

    folder: Path
    lost: str | None = None

    def read(self, name: str, database: Database) -> Frame | None:
        path = self.folder / name
        if not path.exists():
            return None
        rows = pq.read_table(path)
        rows = rows.slice(0, 0) if self.lost is not None and name.endswith(self.lost) else rows
        return frame_of(database, [rows], rows.schema)


def whole(session: SparkSession, one: Stretched) -> Told:
    """All of the log at once."""
    done = _recomputed(session, one, one.logs, one.batches, None)
    try:
        return _together(one, [_said(one, done)])
    finally:
        done.release()


def stretch_by_stretch(
    session: SparkSession, one: Stretched, cuts: Sequence[int], folder: Path, *, lost: str | None = None
) -> Told:
    """The log in stretches that end after so many batches each; frames that end with ``lost`` come back empty."""
    said = []
    carried = None
    for number, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(one.batches)], strict=True)):
        logs = {topic: between(log, topic, one.batches, first, last) for topic, log in one.logs.items()}
        done = _recomputed(session, one, logs, one.batches[first:last], carried)
        try:
            said.append(_said(one, done))
            if last < len(one.batches):
                kept = folder / str(number)
                kept.mkdir()
                for name, frame in done.kept().items():
                    pq.write_table(frame.arrow(), kept / name)
                carried = ParquetFrames(kept, lost)
        finally:
            done.release()
    return _together(one, said)


def _recomputed(
    session: SparkSession,
    one: Stretched,
    logs: Mapping[str, RawLog],
    batches: Sequence[BatchEnds],
    carried: ParquetFrames | None,
) -> Recomputed:
    return recomputed(
        session,
        one.topology,
        logs,
        limits=one.limits,
        lateness=one.lateness,
        table_ends=one.table_ends,
        batches=batches,
        carried=carried,
        look_back_ms=one.look_back_ms,
    )


def between(log: RawLog, topic: str, batches: Sequence[BatchEnds], first: int, last: int) -> RawLog:
    """What the batches from number ``first`` up to ``last`` read of a ``topic``."""
    start = batches[first - 1].ends if first else {}
    is_read = F.lit(False)
    for (name, partition), end in batches[last - 1].ends.items():
        if name == topic:
            within = F.col("offset").between(start.get((name, partition), 0), end - 1)
            is_read |= (F.col("partition") == partition) & within
    return replace(log, frame=log.frame.where(is_read))


@dataclass(frozen=True, kw_only=True)
class Said:
    """What one stretch says: of each sink the identities and rows, of each side ledger the rows.

    Of a sink in ``since_ms`` it says all records from then on, whatever the stretches before said of them, of one in
    ``ends_after_ms`` all windows that end later. Those of ``taken_back`` they have said, and they are no more.
    """

    rows: Mapping[str, Sequence[tuple[Row, Row]]]
    taken_back: Mapping[str, Sequence[tuple[Row, Row]]]
    sides: Mapping[str, Sequence[Row]]
    since_ms: Mapping[str, int]
    ends_after_ms: Mapping[str, int]


def _said(one: Stretched, done: Recomputed) -> Said:
    """Without lateness a final result that has left can change, and what a record finds: ``again`` has it as it is."""
    results = done.results if one.lateness else {**done.results, **done.again}
    rows, taken_back = (
        {
            identity.written.topic.name: [_told(row, identity) for row in frames[identity.written].rows()]
            for identity in one.identities
            if identity.written in frames
        }
        for frames in (results, done.taken_back)
    )
    sides = {name: [_plain(row) for row in done.ledgers[name].drop("detail").rows()] for name in one.sides}
    if any(_follows_records(node) for node in one.topology.nodes()):
        sides["late"] = sorted({row[:4] for row in sides["late"]})
    since_ms = {} if one.lateness else {node.topic.name: ms for node, ms in done.again_since_ms.items()}
    ends_after_ms = {} if one.lateness else {node.topic.name: ms for node, ms in done.again_ends_after_ms.items()}
    return Said(rows=rows, taken_back=taken_back, sides=sides, since_ms=since_ms, ends_after_ms=ends_after_ms)


def _follows_records(node: Node) -> bool:
    """Whether windows lie where records do: those of a late record are told as far as the look back goes."""
    return isinstance(node, WindowedAggregate) and isinstance(node.windows, SessionWindows | SlidingWindows)


def _told(row: Any, identity: Identity) -> tuple[Row, Row]:
    fields = [name for name in identity.written.fields if name != KEY or name == identity.written.key]
    bounds = [name for name in (WINDOW_START, WINDOW_END) if name in identity.written.fields]
    key = tuple(row[name] for name in (identity.written.key, *bounds))
    at_ms = row[RESULT_TIME] if identity.is_timed else 0
    value = None if row[IS_NULL] else tuple(_rounded(row[name]) for name in fields)
    return key, (key, at_ms, value)


def _plain(row: Any) -> Row:
    return tuple(_rounded(value) for value in row.values())


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_rounded, value))
    return round(value, 9) if isinstance(value, float) else value


def _together(one: Stretched, said: Sequence[Said]) -> Told:
    rows: dict[str, Counter[Row]] = {}
    for identity in one.identities:
        topic = identity.written.topic.name
        everything: list[tuple[Row, Row]] = []
        for stretch in said:
            since_ms = stretch.since_ms.get(topic, float("inf"))
            for row in stretch.taken_back.get(topic, ()):
                everything.remove(row)
            everything = [row for row in everything if row[1][1] < since_ms]
            if identity.has_bounds and not identity.is_latest and topic in stretch.ends_after_ms:
                again = {row[0] for row in stretch.rows[topic]}
                ends_after_ms = stretch.ends_after_ms[topic]
                everything = [row for row in everything if row[0][2] <= ends_after_ms and row[0] not in again]
            everything += stretch.rows[topic]
        if identity.is_latest:
            last = dict(everything)
            rows[topic] = Counter(row for row in last.values() if row[-1] is not None)
        else:
            rows[topic] = Counter(row for _, row in everything)
    sides = {name: Counter(row for stretch in said for row in stretch.sides[name]) for name in one.sides}
    taken_back = sum(len(rows) for stretch in said for rows in stretch.taken_back.values())
    return Told(rows=rows, sides=sides, taken_back=taken_back)


def differences(found: Told, expected: Told, topology: Topology) -> dict[str, Mapping[str, Counter[Row]]]:
    """What only one of both says, by what it is about.

    Of records that wait for time to pass the fate is decided later than they are read: in no stretch, or in two ways.
    """
    pairs = {name: (found.rows[name], expected.rows[name]) for name in expected.rows}
    pairs |= {name: (found.sides[name], expected.sides[name]) for name in expected.sides}
    if any(is_held_back(node) for node in topology.nodes()):
        del pairs["fates"]
    return {
        name: {"stretches": one - other, "whole": other - one} for name, (one, other) in pairs.items() if one != other
    }
