"""The topologies for which the lens has a model, and the part of their log that it looks at, by batches.

Modelled are those with one source, stateless steps, one windowed aggregation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from recount.declare.operators.nodes import (
    Filter,
    Node,
    SelectKey,
    Sink,
    Source,
    Stateless,
    WindowedAggregate,
    WithFields,
)
from recount.declare.operators.stateless import FlatMap, Peek, Repartition, Select
from recount.declare.topology import Topology
from recount.declare.windows import GlobalWindow, LastN, SessionWindows, SlidingWindows, TimeWindows
from recount.runtime.errors import Terminal
from recount.runtime.times import told_window
from recount.tables.ledger import BatchProof

_STEPS = (Filter, WithFields, SelectKey, Select, FlatMap, Repartition)
Longs = npt.NDArray[np.int64]
NEVER = int(np.iinfo(np.int64).min)
"""The clock of which nothing has been seen yet."""
CUTS = {"partition": pl.Int32(), "offset": pl.Int64(), "batch": pl.Int64()}
"""From which offset of each partition on a batch reads, until its next cut."""
PARTS = {**CUTS, "end": pl.Int64(), "records": pl.Int64(), "recorded_ms": pl.Int64()}
"""What the stream's own batches have read of each partition, and when they were recorded."""


class NoModel(Terminal):
    """A topology with an operator of which there is no model of the other engines."""


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """The way of a record from ``source`` over ``steps`` to ``aggregate``; what comes below it is not looked at.

    Actions are no steps: nothing is done to the world when a log is looked at.
    """

    topology: Topology
    source: Source
    steps: tuple[Stateless, ...]
    aggregate: WindowedAggregate
    windows: TimeWindows | SessionWindows

    @classmethod
    def of(cls, topology: Topology) -> Modelled:
        """The way through ``topology``; raises ``NoModel`` with the name of the operator that has no model."""
        aggregates = [node for node in topology.nodes() if isinstance(node, WindowedAggregate)]
        for node in topology.nodes():
            # a Foreach is a Peek
            if node not in aggregates and not isinstance(node, (Source, Sink, Peek, *_STEPS)):
                raise _no_model(topology, str(node))
        if len(aggregates) != 1:
            raise _no_model(topology, f"{len(aggregates)} windowed aggregations")
        [aggregate] = aggregates
        way: list[Node] = [aggregate]
        while way[-1].inputs:
            way += way[-1].inputs
        source, steps, windows = way[-1], [one for one in way[:0:-1] if isinstance(one, _STEPS)], aggregate.windows
        assert isinstance(source, Source), "no other operator is without an input"
        keyed = [number for number, step in enumerate(steps) if isinstance(step, SelectKey)]
        spread = [number for number, step in enumerate(steps) if isinstance(step, Repartition)]
        if isinstance(windows, GlobalWindow | LastN):
            raise _no_model(topology, f"{aggregate}: no record is late for it in any engine")
        if isinstance(windows, SlidingWindows):
            raise _no_model(topology, str(aggregate))
        if isinstance(windows, SessionWindows) and windows.max_duration_ms is not None:
            raise _no_model(topology, f"{windows}: neither of the others has a longest duration of sessions")
        if spread and (len(spread) > 1 or spread[0] < max(keyed, default=0)):
            raise _no_model(topology, f"{steps[spread[0]]}, after which records are spread once more")
        if any(one.topic != source.topic for one in topology.sources):
            raise _no_model(topology, f"{len(topology.sources)} source topics")
        return cls(topology=topology, source=source, steps=tuple(steps), aggregate=aggregate, windows=windows)

    @property
    def is_spread_by_key(self) -> bool:
        """Whether Kafka Streams would send the records through a repartition topic."""
        return any(isinstance(step, SelectKey | Repartition) for step in self.steps)

    @property
    def declared_tasks(self) -> int | None:
        """Into how many partitions they would be spread; None: as many as the source topic has."""
        return next((step.partitions for step in self.steps if isinstance(step, Repartition)), None)


def _no_model(topology: Topology, given: str) -> NoModel:
    return NoModel(
        f"the lens has no model of {topology.name}",
        given=given,
        expected="one source topic, stateless operators, and one aggregation over tumbling, hopping or session windows",
        remedy="look at a stream of this shape; recount describe shows the operators of this one",
    )


@dataclass(frozen=True, kw_only=True)
class Span:
    """The offsets of each partition of the source topic that are read, and what the ledger says of them.

    ``parts`` (``PARTS``) are the batches of the stream. Those recorded from ``start_ms`` on are asked about; those
    before are read because they are in the same windows. ``cuts`` (``CUTS``) are the ``batches`` in which the other
    engines are taken to read. ``reached_ms`` has the stream time of each partition before the first offset. Windows
    that start before ``whole_since_ms`` may have records that are not read.
    """

    topic: str
    parts: pl.DataFrame
    cuts: pl.DataFrame
    reached_ms: dict[int, int]
    start_ms: int = NEVER
    whole_since_ms: int = NEVER

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        """The offsets ``start`` <= o < ``end`` of each partition."""
        read = self.parts.group_by("partition").agg(pl.col("offset").min(), pl.col("end").max()).sort("partition")
        return {partition: (start, end) for partition, start, end in read.iter_rows()}

    @property
    def batches(self) -> int:
        """In how many batches the other engines are taken to read."""
        return int(self.cuts["batch"].n_unique())

    def in_batches_of(self, batch_records: int) -> Span:
        """The same offsets in batches of ``batch_records``, as Spark cuts what is there with ``maxOffsetsPerTrigger``.

        Of each batch a partition gets its share of what is left: rounded down, but up where it is less than one.
        """
        spans, cuts, batch = self.ranges, list[tuple[int, int, int]](), 0
        at = {p: start for p, (start, _) in spans.items()}
        while left := sum(end - at[p] for p, (_, end) in spans.items()):
            for p, (_, end) in spans.items():
                share = batch_records * (end - at[p]) / left
                cuts.append((p, at[p], batch))
                at[p] = min(end, at[p] + (int(share) if share >= 1 else int(share > 0)))
            batch += 1
        return replace(self, cuts=pl.DataFrame(cuts, CUTS, orient="row"))


def span_of(modelled: Modelled, newest_first: Iterable[BatchProof], start_ms: int | None, end_ms: int | None) -> Span:
    """The batches recorded from ``start_ms`` on and before ``end_ms``, and those before them that share windows.

    Of sessions, which have no longest duration, all before them. Reads ``newest_first`` no further than it must;
    raises ``Terminal`` where no record was read in the interval.
    """
    judged: list[BatchProof] = []
    earlier: list[BatchProof] = []
    before: BatchProof | None = None
    needed_ms = NEVER
    for proof in newest_first:
        if end_ms is not None and proof.batch_timestamp_ms >= end_ms:
            continue
        if start_ms is None or proof.batch_timestamp_ms >= start_ms:
            judged.append(proof)
            continue
        if not earlier:
            needed_ms = _needed_ms(modelled, proof)
        if max(_reached(proof).values(), default=NEVER) < needed_ms:
            before = proof
            break
        earlier.append(proof)
    if not any(part.records for proof in judged for part in proof.partitions):
        raise Terminal(
            f"{modelled.topology.name} has read no record then",
            given=f"recorded in {told_window(start_ms, end_ms)}",
            expected="an interval in which the stream has recorded a batch with records",
            remedy="run the stream first, or choose another interval with --start and --end",
        )
    read = [one for one in reversed([*judged, *earlier]) if any(part.start < part.end for part in one.partitions)]
    rows = [
        (part.partition, part.start, batch, part.end, part.records, one.batch_timestamp_ms)
        for batch, one in enumerate(read)
        for part in one.partitions
    ]
    parts = pl.DataFrame(rows, PARTS, orient="row")
    return Span(
        topic=modelled.source.topic.name,
        parts=parts,
        cuts=parts.select(*CUTS),
        start_ms=NEVER if start_ms is None else start_ms,
        reached_ms={} if before is None else _reached(before),
        whole_since_ms=needed_ms if before is not None else NEVER,
    )


def _needed_ms(modelled: Modelled, proof: BatchProof) -> int:
    """No record that comes after ``proof`` and is on time is in a window that starts earlier."""
    windows, reached = modelled.windows, _reached(proof)
    if not isinstance(windows, TimeWindows) or len(reached) < len(proof.partitions):
        return NEVER
    return min(reached.values()) - windows.grace_ms - windows.size_ms


def _reached(proof: BatchProof) -> dict[int, int]:
    return {part.partition: part.stream_time_ms for part in proof.partitions if part.stream_time_ms is not None}
