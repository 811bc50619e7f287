"""What a runner runs: the work of one stream, apart from lease, source, status and stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from pyspark.sql import DataFrame

from recount.core.ledger import BatchProof
from recount.kafka.transaction import OutputTransaction
from recount.spark.checkpoint import Planned
from recount.spark.history import History

Step = Literal["mapped", "kafka committed", "delta committed"]


class Observer(Protocol):
    """Told as a batch completes a step: how the chaos tests kill a driver at a chosen point."""

    def __call__(self, step: Step, batch: int) -> None:
        """``step`` of ``batch`` is done."""


def unobserved(step: Step, batch: int) -> None:
    """The observer of every day."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One run of a stream: under which lease, on which checkpoint, with which producer.

    ``generation`` is the checkpoint's place in the stream's history, see ``BatchProof``.
    """

    checkpoint: Planned
    transaction: OutputTransaction
    generation: int
    lease_epoch: int
    observer: Observer = unobserved


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """A committed batch: its proof and how many milliseconds its steps took."""

    proof: BatchProof
    map_ms: int
    kafka_ms: int
    delta_ms: int


class Processor(Protocol):
    """What ``foreachBatch`` calls; ``last`` is the last batch that it committed."""

    last: BatchResult | None

    def __call__(self, records: DataFrame, batch: int) -> None:
        """Process batch ``batch`` exactly once, however often it is called for it."""


class Work(Protocol):
    """The work of one stream."""

    name: str
    topics: tuple[str, ...]
    with_headers: bool
    history: History

    def create(self) -> None:
        """Create the tables that do not exist."""

    def processor(self, attempt: Attempt) -> Processor:
        """The processor of one run; it recovers its state at its first batch."""
