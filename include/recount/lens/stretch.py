"""Which part of the log is looked at, and the batches in which it is taken to have been read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from recount.core.errors import Terminal
from recount.core.instants import told_window
from recount.core.ledger import BatchProof
from recount.core.windows import TimeWindows
from recount.lens.modelled import Modelled

Longs = npt.NDArray[np.int64]
NEVER = int(np.iinfo(np.int64).min)
"""The clock of which nothing has been seen yet."""


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """The offsets of each partition of the source topic that are read, and what the ledger says of them.

    ``recorded_bounds`` are by partition the offsets at which the stream's batches begin, and the end of the last;
    ``recorded_ms`` are their recorded times. ``bounds`` are those of the batches in which the other engines are taken
    to read: the same, unless they are cut anew. Offsets from ``judged_from`` on are asked about; those before are read
    because they are in the same windows. ``reached_ms`` is the stream time of each partition before the first offset,
    and ``records`` is how many records the stream has found in it. Windows that start before ``whole_since_ms`` may
    have records that are not read.
    """

    topic: str
    recorded_bounds: Mapping[int, Longs]
    recorded_ms: Longs
    bounds: Mapping[int, Longs]
    judged_from: Mapping[int, int]
    records: Mapping[int, int]
    reached_ms: Mapping[int, int]
    whole_since_ms: int = NEVER

    @property
    def ranges(self) -> Mapping[int, tuple[int, int]]:
        """The offsets ``start`` <= o < ``end`` of each partition."""
        return {p: (int(bounds[0]), int(bounds[-1])) for p, bounds in self.recorded_bounds.items()}

    @property
    def batches(self) -> int:
        """In how many batches the other engines are taken to read."""
        return max(len(bounds) for bounds in self.bounds.values()) - 1

    def batch_of(self, partition: int, offsets: Longs) -> Longs:
        """The number of the batch, from 0, in which each of ``offsets`` is read."""
        return np.searchsorted(self.bounds[partition][1:], offsets, "right").astype(np.int64)

    def recorded_ms_of(self, partition: int, offsets: Longs) -> Longs:
        """The recorded time of the stream's own batch that has read each of ``offsets``."""
        return self.recorded_ms[np.searchsorted(self.recorded_bounds[partition][1:], offsets, "right")]

    def cut_anew(self, batch_records: int) -> Stretch:
        """The same offsets in batches of ``batch_records``, as Spark cuts what is there with ``maxOffsetsPerTrigger``.

        Of each batch a partition gets its share of what is left: rounded down, but up where it is less than one.
        """
        spans = self.ranges
        at = {p: start for p, (start, _) in spans.items()}
        cuts: dict[int, list[int]] = {p: [start] for p, start in at.items()}
        while left := sum(end - at[p] for p, (_, end) in spans.items()):
            for p, (_, end) in spans.items():
                share = batch_records * (end - at[p]) / left
                at[p] = min(end, at[p] + (int(share) if share >= 1 else int(share > 0)))
                cuts[p].append(at[p])
        return replace(self, bounds={p: np.array(found, np.int64) for p, found in cuts.items()})


def stretch_of(
    modelled: Modelled, newest_first: Iterable[BatchProof], start_ms: int | None, end_ms: int | None
) -> Stretch:
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
        if _latest_ms(proof) < needed_ms:
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
    read = [proof for proof in reversed([*judged, *earlier]) if any(part.start < part.end for part in proof.partitions)]
    # newest first: what the oldest batch says comes last, and stays
    first_judged = {part.partition: part.start for proof in judged for part in proof.partitions}
    bounds = _bounds(read)
    return Stretch(
        topic=modelled.source.topic.name,
        recorded_bounds=bounds,
        recorded_ms=np.array([proof.batch_timestamp_ms for proof in read], np.int64),
        bounds=bounds,
        judged_from=first_judged,
        records=_records(read),
        reached_ms={} if before is None else _reached(before),
        whole_since_ms=needed_ms if before is not None else NEVER,
    )


def _needed_ms(modelled: Modelled, proof: BatchProof) -> int:
    """No record that comes after ``proof`` and is on time is in a window that starts earlier."""
    windows, reached = modelled.windows, _reached(proof)
    if not isinstance(windows, TimeWindows) or len(reached) < len(proof.partitions):
        return NEVER
    return min(reached.values()) - windows.grace_ms - windows.size_ms


def _latest_ms(proof: BatchProof) -> int:
    return max(_reached(proof).values(), default=NEVER)


def _reached(proof: BatchProof) -> dict[int, int]:
    return {part.partition: part.stream_time_ms for part in proof.partitions if part.stream_time_ms is not None}


def _bounds(read: Sequence[BatchProof]) -> dict[int, Longs]:
    """Where the batches begin in each partition; in one that came later the first of them are empty."""
    starts: dict[int, list[int]] = {}
    for number, proof in enumerate(read):
        for part in proof.partitions:
            starts.setdefault(part.partition, [part.start] * (number + 1)).append(part.end)
    return {p: np.array(found, np.int64) for p, found in sorted(starts.items())}


def _records(read: Sequence[BatchProof]) -> dict[int, int]:
    found: dict[int, int] = {}
    for proof in read:
        for part in proof.partitions:
            found[part.partition] = found.get(part.partition, 0) + part.records
    return found
