"""A driver that kills itself: ``driver.py STREAM MAX_OFFSETS [STEP BATCH] ...``, several streams one after the other.

Arguments come in groups of four; STEP ``never`` is a run without a kill. Steps are those of the observer, and
``in transaction``: when all records of the batch are with the broker and the transaction is still open.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from recount.declare.registry import declared
from recount.engine.driver.runner import RunOptions, StreamRunner
from recount.engine.driver.stream_command import work_of
from recount.engine.exchange.work import Attempt, Processor, Step, Work
from recount.kafka.transaction import KafkaRecord, OutputTransaction
from recount.runtime.settings import Settings
from recount.tables.spark_session import spark_session

IN_TRANSACTION = "in transaction"


def die() -> None:
    """SIGKILL to the whole driver: this process, its JVM and its workers."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


@dataclass(frozen=True)
class KillAt:
    """Kills the driver when ``step`` of ``batch`` is done."""

    step: str
    batch: int

    def __call__(self, step: Step, batch: int) -> None:
        if (step, batch) == (self.step, self.batch):
            die()


@dataclass(frozen=True)
class LastRecords:
    """The records of a batch; whoever has taken the last of them dies before it can do anything more."""

    records: Iterable[KafkaRecord]

    def __iter__(self) -> Iterator[KafkaRecord]:
        yield from self.records
        time.sleep(0.5)  # the producer sends in the background
        die()


class DyingTransaction:
    """An output transaction that does not survive the batch ``batch``."""

    def __init__(self, transaction: OutputTransaction, batch: str) -> None:
        self._transaction = transaction
        self.group, self.limits = transaction.group, transaction.limits
        self._batch = batch

    def commit_once(self, records: Iterable[KafkaRecord], *, batch: str, **offsets: Any) -> str:
        last = LastRecords(records) if batch == self._batch else records
        return self._transaction.commit_once(last, batch=batch, **offsets)


class DyingWork:
    """The work of a stream with a ``DyingTransaction``."""

    def __init__(self, work: Work, batch: int) -> None:
        self._work = work
        self._batch = batch
        self.name, self.topics, self.with_headers = work.name, work.topics, work.with_headers
        self.outputs, self.history, self.declared = work.outputs, work.history, work.declared
        self.layers, self.delta_first, self.lacks = work.layers, work.delta_first, work.lacks
        self.require_schemas = work.require_schemas
        self.require_new = work.require_new

    def create(self) -> None:
        self._work.create()

    def processor(self, attempt: Attempt) -> Processor:
        dying: Any = DyingTransaction(attempt.transaction, f"{attempt.generation}/{self._batch}")
        return self._work.processor(replace(attempt, transaction=dying))


def main(arguments: list[str]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = Settings.from_environment(os.environ)
    streams = declared(settings.topologies)
    session = spark_session(settings, "chaos")
    for stream, max_offsets, step, batch in zip(*[iter(arguments)] * 4, strict=True):
        work = work_of(session, streams.stream(stream), settings.data, reports=settings.reports)
        options = RunOptions(max_offsets=int(max_offsets), available_now=True)
        if step == IN_TRANSACTION:
            work = DyingWork(work, int(batch))
        StreamRunner(session, settings, work, options, KillAt(step, int(batch))).run()
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
