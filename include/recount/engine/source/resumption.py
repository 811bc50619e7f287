"""The place where a stream resumes: its ledger, Kafka and its checkpoint are compared before anything is done.

A batch is committed to Kafka first and to the tables then (an archive's the other way round), so the two are in step,
or one batch apart. Any other state comes from a backup that was restored, and is refused (docs/decisions/0022). So is a
topic of the same name that is not the one that the stream's batches have read.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Self

from recount.certificate.finding import Difference, finding_id
from recount.declare.registry import declared
from recount.engine.exchange.work import Work
from recount.engine.source.checkpoint import BatchRange
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection
from recount.kafka.offsets import Partition
from recount.kafka.positions import Committed
from recount.kafka.topics_on_cluster import ids_of
from recount.runtime.errors import Terminal, Transient
from recount.runtime.settings import Settings
from recount.tables.decisions import acceptances
from recount.tables.ledger import BatchProof, TopicIds, topics_made_anew
from recount.tables.places import Tables

Order = tuple[int, int]
Offsets = Mapping[Partition, int]
_LOG = logging.getLogger(__name__)
_ANSWER_S = 2.0
"""How long a batch waits for the brokers."""


class OutOfStep(Terminal):
    """Ledger, Kafka and checkpoint of a stream are not from one time."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The last batch that Kafka has: ``order`` is None where it does not say which.

    ``starts`` lacks partitions of which it is not known; ``checkpoint_id`` is that of the batch's plan.
    """

    order: Order | None
    starts: Offsets
    ends: Offsets
    timestamp_ms: int | None
    checkpoint_id: str | None

    @classmethod
    def of(cls, committed: Mapping[Partition, Committed]) -> Self | None:
        """The standing by ``OutputTransaction.committed``; None where nothing was ever committed."""
        if not committed:
            return None
        newest = max(committed.values(), key=lambda one: _order(one.batch) or (-1, -1))
        starts = {key: one.start if one.batch == newest.batch else one.offset for key, one in committed.items()}
        return cls(
            order=_order(newest.batch),
            starts={key: start for key, start in starts.items() if start is not None},
            ends={key: one.offset for key, one in committed.items()},
            timestamp_ms=newest.timestamp_ms,
            checkpoint_id=newest.checkpoint_id,
        )

    def __str__(self) -> str:
        return f"{_named(self.order)} up to {_places(self.ends)}"


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The last batch that the checkpoint ``identity``, in ``folder``, has planned."""

    identity: str
    span: BatchRange
    folder: str = ""

    def __str__(self) -> str:
        return f"batch {self.span.batch} of checkpoint {self.identity} up to {_places(self.span.end)}"


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """A batch that has to be repeated under its own name, so that whatever has it already passes it over."""

    generation: int
    checkpoint_id: str
    span: BatchRange

    @classmethod
    def of_proof(cls, proof: BatchProof) -> Self:
        span = BatchRange(
            batch=proof.batch,
            timestamp_ms=proof.batch_timestamp_ms,
            start={(part.topic, part.partition): part.start for part in proof.partitions},
            end=proof.ends,
        )
        return cls(generation=proof.generation, checkpoint_id=proof.checkpoint_id, span=span)


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """``generation`` is that of the batches to come, and ``start`` where they begin; None: the checkpoint knows.

    ``unfinished`` is in Kafka, and its plan is lost: it is completed first. ``in_flight`` is the batch that Kafka has
    and the ledger has not, whichever attempt completes it.
    """

    generation: int
    start: Offsets | None
    unfinished: Unfinished | None = None
    in_flight: Order | None = None


@dataclass(frozen=True, kw_only=True)
class Known:
    """All that is known of a stream before it goes on.

    ``last`` is the end of its ledger, ``beginning`` where its version begins by partition. ``was_planned_by`` says
    whether any batch of the ledger was planned by a checkpoint. ``delta_first`` holds for an archive. ``partitions``
    are all that the topics have now.
    """

    stream: str
    last: BatchProof | None
    kafka: Standing | None
    checkpoint: Planned | None
    beginning: Offsets
    was_planned_by: Callable[[str], bool]
    delta_first: bool = False
    partitions: Collection[Partition] = ()

    def resumption(self) -> Resumption:
        """Where the stream goes on; raises ``OutOfStep`` where that cannot be right.

        A partition that was added since is read from its first record: Spark needs an offset for each.
        """
        found = self._found()
        if found.start is None:
            return found
        added = {place: self.beginning.get(place, 0) for place in self.partitions if place not in found.start}
        return replace(found, start={**found.start, **added})

    def next_offsets(self, resumption: Resumption) -> Offsets:
        """The offsets from which on the log has to be there still: none where all of the log is read."""
        if resumption.start is not None:
            return resumption.start
        if self.last is not None:
            return self.last.ends
        return self.checkpoint.span.start if self.checkpoint else {}

    def _found(self) -> Resumption:
        in_flight = self._in_flight()
        if self.checkpoint is not None:
            return self._with_checkpoint(self.checkpoint, in_flight)
        if in_flight is None:
            return self._in_new_generation()
        unfinished = self._unfinished(in_flight)
        after = replace(self._in_new_generation(), generation=unfinished.generation + 1, start=unfinished.span.end)
        return replace(after, unfinished=unfinished, in_flight=in_flight.order)

    def _in_new_generation(self) -> Resumption:
        if self.last is None:
            return Resumption(generation=0, start=self.beginning or None)
        return Resumption(generation=self.last.generation + 1, start=self.last.ends)

    def _in_flight(self) -> Standing | None:
        """The batch that Kafka has and the ledger has not; raises when Kafka and the ledger are further apart."""
        if self.kafka is None:
            self._require_nothing_unknown()
            return None
        ends = self.last.ends if self.last else {}
        if not self.delta_first and self._is_next(self.kafka, ends):
            return self.kafka  # it may have read nothing: then only its name tells
        if self.last is not None and all(ends.get(key) == end for key, end in self.kafka.ends.items()):
            return None
        if self.delta_first:
            if self.last is None or any(end > ends.get(key, 0) for key, end in self.kafka.ends.items()):
                raise self._older_than_kafka()
            return None
        behind = all(end <= ends.get(key, -1) for key, end in self.kafka.ends.items())
        if behind and (self.kafka.order is None or (self.last and self.kafka.order <= self.last.order)):
            raise OutOfStep.of(
                "kafka-older-than-tables",
                given=f"Kafka has {self.kafka}, the ledger ends with {self._ledger()}",
                stream=self.stream,
            )
        raise self._older_than_kafka()

    def _is_next(self, kafka: Standing, ends: Offsets) -> bool:
        if kafka.order is None or kafka.timestamp_ms is None or kafka.order not in self._next_orders():
            return False
        begins = all(kafka.starts.get(key, end) == end for key, end in ends.items())
        return begins and all(end <= kafka.ends.get(key, -1) for key, end in ends.items())

    def _next_orders(self) -> tuple[Order, ...]:
        """Possible orders of the batch after the ledger's last: of its checkpoint, or the first of another."""
        if self.last is None:
            return ((0, 0),)
        return (self.last.generation, self.last.batch + 1), (self.last.generation + 1, 0)

    def _unfinished(self, kafka: Standing) -> Unfinished:
        assert kafka.order is not None
        assert kafka.timestamp_ms is not None
        generation, batch = kafka.order
        known = self.last.ends if self.last else self.beginning
        checkpoint_id = kafka.checkpoint_id
        if checkpoint_id is None:  # a batch of an earlier release
            same = self.last is not None and self.last.generation == generation
            checkpoint_id = self.last.checkpoint_id if self.last and same else f"completed {generation}/{batch}"
        span = BatchRange(
            batch=batch,
            timestamp_ms=kafka.timestamp_ms,
            start={key: kafka.starts.get(key, known.get(key, 0)) for key in kafka.ends},
            end=kafka.ends,
        )
        return Unfinished(generation=generation, checkpoint_id=checkpoint_id, span=span)

    def _with_checkpoint(self, checkpoint: Planned, in_flight: Standing | None) -> Resumption:
        """Spark goes on from its checkpoint, and repeats the last batch that it has planned if it is not done."""
        planned = checkpoint.span
        if self.last is None:
            order, follows = (0, planned.batch), planned.batch == 0
        elif checkpoint.identity == self.last.checkpoint_id:
            order, follows = (self.last.generation, planned.batch), planned.batch == self.last.batch + 1
            if planned.batch == self.last.batch and in_flight is None:
                if dict(planned.end) != self.last.ends:
                    raise self._other_checkpoint(checkpoint)
                return Resumption(generation=self.last.generation, start=None)
            if planned.batch <= self.last.batch:
                raise self._other_checkpoint(checkpoint)
        elif self.was_planned_by(checkpoint.identity):
            raise self._other_checkpoint(checkpoint)
        else:
            order, follows = (self.last.generation + 1, planned.batch), planned.batch == 0
        if not follows:
            raise OutOfStep.of(
                "tables-older-than-the-checkpoint",
                given=f"{checkpoint}, the ledger ends with {self._ledger()}",
                stream=self.stream,
            )
        known = self.last.ends if self.last else {}
        if any(planned.start.get(key, end) != end for key, end in known.items()):
            raise self._other_checkpoint(checkpoint)
        if in_flight is not None and (in_flight.order != order or dict(in_flight.ends) != dict(planned.end)):
            raise self._other_checkpoint(checkpoint)
        return Resumption(generation=order[0], start=None, in_flight=in_flight.order if in_flight else None)

    def _require_nothing_unknown(self) -> None:
        """Kafka says nothing: right at the beginning, and for an archive, whose table says all."""
        if self.last is None or self.delta_first:
            return
        planned = self.checkpoint
        if planned and planned.identity == self.last.checkpoint_id and planned.span.batch <= self.last.batch:
            return  # nothing was begun after the last batch of the ledger
        raise OutOfStep.of(
            "last-batch-unknown",
            given=f"neither offsets of its group nor a position; the ledger ends with {self._ledger()}",
            stream=self.stream,
        )

    def _older_than_kafka(self) -> OutOfStep:
        return OutOfStep.of(
            "tables-older-than-kafka",
            given=f"Kafka has {self.kafka}, the ledger ends with {self._ledger()}",
            stream=self.stream,
        )

    def _other_checkpoint(self, checkpoint: Planned) -> OutOfStep:
        return OutOfStep.of(
            "checkpoint-of-another-ledger",
            given=f"{checkpoint}, the ledger ends with {self._ledger()}, Kafka has {self.kafka}",
            stream=self.stream,
            folder=checkpoint.folder,
        )

    def _ledger(self) -> str:
        return "no batch" if self.last is None else f"{_named(self.last.order)} up to {_places(self.last.ends)}"


def _order(batch: int | str | None) -> Order | None:
    generation, slash, number = str(batch).partition("/")
    return (int(generation), int(number)) if slash and generation.isdigit() and number.isdigit() else None


def _named(order: Order | None) -> str:
    return "an unnamed batch" if order is None else f"batch {order[0]}/{order[1]}"


def _places(offsets: Offsets) -> str:
    return ", ".join(f"{topic}-{partition}@{offset}" for (topic, partition), offset in sorted(offsets.items()))


class OtherTopic(Terminal):
    """A topic that is read was deleted and created again, or is on another cluster."""


class SameTopics:
    """The topics of ``work`` by their last known ids: at first those in ``last``, the end of its ledger.

    Of a topic without one, in a proof of an earlier release for instance, any id is right.
    """

    def __init__(self, settings: Settings, work: Work, last: BatchProof | None) -> None:
        self._settings = settings
        self._work = work
        self._connection = Connection.of(settings)
        self._known: TopicIds = last.topic_ids if last else {}

    def require(self, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Raise ``OtherTopic`` where a topic that is read has another id now, unless a person has accepted this one."""
        now = ids_of(self._connection, (*self._work.topics, *self._work.outputs), timeout_s)
        for found in topics_made_anew([self._known, now]):
            if found.place in self._work.topics and not self._is_accepted(found):
                raise self._other(found)
        self._known = {**self._known, **now}

    def __call__(self) -> TopicIds:
        """The ids for the proof of a batch that is not committed yet; raises ``OtherTopic`` as ``require`` does.

        Brokers that do not answer hold it up for no longer than ``_ANSWER_S``; the next batch asks them again.
        """
        try:
            self.require(_ANSWER_S)
        except Transient as error:
            _LOG.warning("whether the topics of %s are still the same is not known: %s", self._work.name, error)
        return self._known

    def _is_accepted(self, found: Difference) -> bool:
        """Whether a person has accepted the finding by which audits know it.

        No audit judges an archive: it goes by what was accepted for the streams that read its topic.
        """
        streams = [self._work.name]
        if self._work.delta_first:
            topologies = declared(self._settings.topologies).topologies.values()
            streams = [one.name for one in topologies if found.place in {source.topic.name for source in one.sources}]
        tables = Tables(self._settings.data)
        return any(one.finding == finding_id(name, found) for name in streams for one in acceptances(tables, name))

    def _other(self, found: Difference) -> OtherTopic:
        stream = self._work.name
        return OtherTopic.of(
            "another-topic-of-that-name",
            given=f"topic id {found.actual}",
            place=found.place,
            stream=stream,
            expected=found.expected,
        )
