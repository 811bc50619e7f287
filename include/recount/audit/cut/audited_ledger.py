"""The batch ledger as the audit reads it, the cut up to which everything is judged, and the ledger's own rules.

Each rule says what it found wrong, and where. ``Repetition`` is the scope of an audit that repeats one that has a
certificate, and looks at no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from deltalake import DeltaTable

from recount.certificate.document import Certificate
from recount.certificate.finding import Difference, difference_from
from recount.declare.operators.joins import StreamTableJoin
from recount.declare.topology import Topology
from recount.recompute.decoding import Limits
from recount.recompute.raw_log import Ranges
from recount.runtime.errors import Terminal
from recount.tables.batch_proofs import Proofs
from recount.tables.ledger import TOPIC, BatchProof, PartitionProof, TopicIds, topics_made_anew
from recount.tables.places import Tables

Order = tuple[int, int]
LEDGER = "batch ledger"
CUT_SHORT = "cut short"
"""The verdict on a partition whose log ends before what a batch has read."""


@dataclass(frozen=True)
class Ledger:
    """The proofs of batches of a stream in the order in which they were committed, up to some batch.

    ``stands``: its one batch was judged before, and is named only because no batch came since.
    """

    proofs: tuple[BatchProof, ...]
    stands: bool = False

    @classmethod
    def read(cls, tables: Tables, stream: str, down_to: Order | None = None) -> Ledger:
        """The proofs of ``stream`` from the batch ``down_to`` on (None: all); ``Terminal`` when it has no state table.

        A hundred thousand batches take six seconds and half a gigabyte, so ask for no more than is judged.
        """
        newest_first = [entry.proof for entry in _proofs(tables, stream).newest_first(down_to)]
        return cls(tuple(reversed(newest_first)))

    @classmethod
    def newest(cls, tables: Tables, stream: str) -> BatchProof | None:
        """The last proof of ``stream``, None before the first; ``Terminal`` when it has no state table."""
        return next((entry.proof for entry in _proofs(tables, stream).newest_first()), None)

    def cut_before(self, end_ms: int | None) -> BatchProof:
        """The last batch whose recorded time is before ``end_ms`` (None: the last batch)."""
        for proof in reversed(self.proofs):
            if end_ms is None or proof.batch_timestamp_ms < end_ms:
                return proof
        raise Terminal(
            "no batch to audit",
            given=end_ms,
            expected="a batch recorded before the end of the interval",
            remedy="the stream had not started then: audit a later interval",
        )

    def up_to(self, offsets: Mapping[tuple[str, int], int]) -> Ledger:
        """The batches up to the last that ends no later than ``offsets``, which limit the partitions that they name."""
        within = [
            number
            for number, proof in enumerate(self.proofs)
            if all(part.end <= offsets.get((part.topic, part.partition), part.end) for part in proof.partitions)
        ]
        return Ledger(self.proofs[: within[-1] + 1] if within else ())

    def between(self, after: Order | None, cut: Order) -> Ledger:
        """The proofs after the batch ``after`` (None: from the first) up to and with ``cut``."""
        return Ledger(tuple(p for p in self.proofs if (after is None or p.order > after) and p.order <= cut))

    def standing_at(self, order: Order) -> Ledger:
        """The batch ``order`` as if it had read nothing: what an audit covers that begins and ends behind it."""
        [proof] = (proof for proof in self.proofs if proof.order == order)
        return Ledger((replace(proof, partitions=tuple(map(_read_nothing, proof.partitions))),), stands=True)

    @property
    def ranges(self) -> dict[str, Ranges]:
        """Per topic the offsets that these batches read."""
        spans: dict[str, dict[int, tuple[int, int]]] = {}
        for proof in self.proofs:
            for part in proof.partitions:
                start, end = spans.setdefault(part.topic, {}).get(part.partition, (part.start, part.end))
                spans[part.topic][part.partition] = (min(start, part.start), max(end, part.end))
        return {topic: dict(sorted(found.items())) for topic, found in spans.items()}

    @property
    def offsets(self) -> int:
        """How many offsets these batches read."""
        return sum(end - start for parts in self.ranges.values() for start, end in parts.values())

    def limits(
        self, topic: str, max_future_ms: int, set_aside: Mapping[tuple[str, int], frozenset[int]]
    ) -> Mapping[int, Limits]:
        """The latest event time that was not absurd when an offset of ``topic`` was read; what was ``set_aside``."""
        starts: dict[int, list[int]] = {}
        latest_ms: dict[int, list[int]] = {}
        for proof in self.proofs:
            for part in proof.partitions:
                if part.topic == topic and part.start < part.end:
                    starts.setdefault(part.partition, []).append(part.start)
                    latest_ms.setdefault(part.partition, []).append(proof.batch_timestamp_ms + max_future_ms)
        return {
            p: Limits(starts=starts[p], latest_ms=latest_ms[p], set_aside=set_aside.get((topic, p), frozenset()))
            for p in starts
        }

    @property
    def frontier_ms(self) -> int | None:
        """How far the frontier had come after these batches; it never falls back."""
        return max((p.frontier_ms for p in self.proofs if p.frontier_ms is not None), default=None)


def _read_nothing(part: PartitionProof) -> PartitionProof:
    return PartitionProof(
        topic=part.topic,
        partition=part.partition,
        start=part.end,
        end=part.end,
        stream_time_ms=part.stream_time_ms,
        last_read_ms=part.last_read_ms,
        idle=part.idle,
    )


def _proofs(tables: Tables, stream: str) -> Proofs:
    path = tables.state(stream)
    if not DeltaTable.is_deltatable(path):
        raise Terminal("no batch ledger", given=path, expected="a state table", remedy="run the stream first")
    return Proofs(state=path, moved_to=tables.ledger(stream))


def ledger_faults(before: BatchProof | None, proofs: tuple[BatchProof, ...], topology: Topology) -> list[Difference]:
    """All broken rules in ``proofs``, which follow the batch ``before`` (None: they are the stream's first)."""
    in_turn = any(isinstance(node, StreamTableJoin) and node.as_of == "event" for node in topology.nodes())
    faults = [fault for proof in proofs for fault in _within(proof)]
    chain = proofs if before is None else (before, *proofs)
    for former, proof in pairwise(chain):
        faults += _batches_follow(former, proof)
        faults += _ranges_follow(former, proof)
    reached = before.frontier_ms if before else None
    for previous, proof in zip((before, *proofs), proofs, strict=False):
        faults += _idle_follows(previous, proof, topology.idle_after_ms, in_turn=in_turn)
        faults += _frontier_follows(reached, proof)
        reached = proof.frontier_ms
    return faults


def topic_faults(before: BatchProof | None, proofs: tuple[BatchProof, ...], now: TopicIds) -> list[Difference]:
    """The topics that were recreated between two of these batches, or since the last: ``now`` they have these ids."""
    chain = proofs if before is None else (before, *proofs)
    return topics_made_anew([*(proof.topic_ids for proof in chain), now])


def _within(proof: BatchProof) -> Iterator[Difference]:
    for part in proof.partitions:
        if part.records != part.fates:
            yield _fault(proof, part, "unbalanced", f"records = {part.records}", f"sum of fates = {part.fates}")
        if part.records > part.end - part.start:
            yield _fault(proof, part, "unbalanced", f"at most {part.end - part.start} records", str(part.records))


def _batches_follow(former: BatchProof, proof: BatchProof) -> Iterator[Difference]:
    follows = proof.order == (former.generation, former.batch + 1)
    begins = proof.generation == former.generation + 1 and proof.checkpoint_id != former.checkpoint_id
    if not follows and not begins:
        expected = f"batch {former.generation}/{former.batch + 1}"
        yield _fault(proof, None, "not contiguous", expected, f"batch {proof.generation}/{proof.batch}")


def _ranges_follow(former: BatchProof, proof: BatchProof) -> Iterator[Difference]:
    ends = former.ends
    for part in proof.partitions:
        expected = ends.pop((part.topic, part.partition), part.start)
        if part.start != expected:
            yield _fault(proof, part, "not contiguous", f"from offset {expected}", f"from offset {part.start}")
    for topic, partition in ends:
        yield _fault(proof, None, "not contiguous", f"{topic}-{partition}", "partition is missing")


def _idle_follows(
    former: BatchProof | None, proof: BatchProof, idle_after_ms: int, *, in_turn: bool
) -> Iterator[Difference]:
    """``in_turn``: topics are read one after the other, so that one of which nothing was read may not have been asked.

    Whether it was, the ledger does not say; so of such a topic a claim may be missing, though none may be early.
    """
    known = {(part.topic, part.partition): part for part in former.partitions} if former else {}
    read_of = {part.topic for part in proof.partitions if part.records}
    for part in proof.partitions:
        before = known.get((part.topic, part.partition))
        read = part.records > 0 or before is None
        last_read_ms = proof.batch_timestamp_ms if read or before is None else before.last_read_ms
        if part.last_read_ms != last_read_ms:
            yield _fault(proof, part, "idle clock", f"last read at {last_read_ms} ms", f"{part.last_read_ms} ms")
        quiet_ms = proof.batch_timestamp_ms - (last_read_ms or 0)
        is_idle = not part.records and quiet_ms >= idle_after_ms
        was_asked = not in_turn or not read_of or part.topic in read_of
        if part.idle and not is_idle:
            yield _fault(proof, part, "idle claim", f"idle after {idle_after_ms} ms", f"idle after {quiet_ms} ms")
        if is_idle and was_asked and not part.idle:
            yield _fault(proof, part, "idle claim", f"idle after {idle_after_ms} ms", f"awake after {quiet_ms} ms")


def _frontier_follows(reached_ms: int | None, proof: BatchProof) -> Iterator[Difference]:
    awake = [part.stream_time_ms for part in proof.partitions if not part.idle]
    known = [time for time in awake if time is not None]
    lowest = min(known) if known and len(known) == len(awake) else None
    expected = max((time for time in (reached_ms, lowest) if time is not None), default=None)
    if proof.frontier_ms != expected:
        yield _fault(proof, None, "frontier", f"{expected} ms", f"{proof.frontier_ms} ms")


def _fault(proof: BatchProof, part: PartitionProof | None, verdict: str, expected: str, actual: str) -> Difference:
    place = f"batch {proof.generation}/{proof.batch}"
    return Difference(
        kind=LEDGER,
        place=f"{place}, {part.topic}-{part.partition}" if part else place,
        verdict=verdict,
        expected=expected,
        actual=actual,
        cause="the stream's own account of the batch contradicts itself",
    )


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """Scope of ``audit``: the batch ``cut`` up to which it judged, after the audit ``seed`` (None: from the beginning).

    ``published`` are by topic the offsets that were read, ``backfills`` the corrections that there were. ``topic_ids``
    had the topics then that had been recreated; ``short`` were the partitions whose log had been cut short.
    """

    audit: str
    cut: Order
    seed: str | None
    published: Mapping[str, Ranges]
    backfills: tuple[str, ...]
    topic_ids: TopicIds
    short: tuple[Difference, ...] = ()

    @classmethod
    def of(cls, certificate: Certificate) -> Repetition:
        """Return the repetition of the audit of ``certificate``."""
        published: dict[str, dict[int, tuple[int, int]]] = {}
        for one in certificate["digests"]["published"]:
            published.setdefault(one["topic"], {})[one["partition"]] = (one["start"], one["end"])
        backfills = {name for one in certificate["digests"]["tables"] for name in one.get("backfills", ())}
        cut = certificate["cut"]
        return cls(
            audit=certificate["audit"],
            cut=(cut["generation"], cut["batch"]),
            seed=certificate["seed"],
            published=published,
            backfills=tuple(sorted(backfills)),
            topic_ids={one["place"]: one["actual"] for one in certificate["differences"] if one["kind"] == TOPIC},
            short=tuple(difference_from(one) for one in certificate["differences"] if one["verdict"] == CUT_SHORT),
        )

    def cut_in(self, ledger: Ledger) -> BatchProof:
        """The batch ``cut``; raises ``Terminal`` when ``ledger`` has lost it."""
        for proof in ledger.proofs:
            if proof.order == self.cut:
                return proof
        raise Terminal(
            "the batch up to which was audited is not in the ledger",
            given=self.cut,
            expected="the ledger of the audited stream",
            remedy="was the stream reset, or its tables restored from an older backup?",
        )

    def within(self, topic: str, spans: Ranges) -> dict[int, tuple[int, int]]:
        """Return what of ``spans``, which are kept now, was read then."""
        read = self.published.get(topic, {})
        return {p: (max(start, read[p][0]), min(end, read[p][1])) for p, (start, end) in spans.items() if p in read}
