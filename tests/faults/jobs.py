"""Jobs, one after the other with one Spark, and a fault that happens at a chosen effect of one.

A job is a line of JSON on standard input, its outcome a line on the standard output that the process began with.
"""

import json
import logging
import os
import signal
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from tests.faults import primitives
from tests.faults.effects import Effects, Killed, Point
from tests.faults.parts import MAX_OFFSETS, PARTS

from recount.audit.certificate import issuing
from recount.audit.certificate.issuing import certificates_of
from recount.audit.certificate.signing import chain_in
from recount.audit.night import audited
from recount.backfill.carrying_out import CarryingOut
from recount.declare.registry import Stream
from recount.engine.driver.runner import RunOptions, StreamRunner
from recount.engine.driver.stream_command import work_of
from recount.engine.exchange.work import Attempt, BatchResult, Processor, Work
from recount.kafka.compacted import published_head
from recount.kafka.connection import Connection
from recount.lifecycle.reset import Reset
from recount.lifecycle.upgrade import upgrade
from recount.runtime.errors import RecountError, Terminal
from recount.runtime.settings import Settings
from recount.tables.spark_session import spark_session

_LOG = logging.getLogger(__name__)


_TINY = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For data so small that planning and compiling would take most of the time."""


class SeenProcessor:
    """A processor before whose batch Spark has written that the last one is done, and its plan of this one."""

    def __init__(self, processor: Processor, effects: Effects, plans: Path) -> None:
        self._processor, self._effects, self._plans = processor, effects, plans
        self._is_first = True

    @property
    def last(self) -> BatchResult | None:
        return self._processor.last

    def __call__(self, records: DataFrame, batch: int) -> None:
        try:
            self._effects.require_alive()
            self._checkpointed(batch)
            self._processor(records, batch)
            self._effects.require_alive()
        except Killed as death:
            raise RuntimeError("this driver was killed") from death

    def _checkpointed(self, batch: int) -> None:
        if not self._is_first:
            try:
                self._effects.happened("checkpoint done")
            except Killed:
                # as a driver leaves it that dies before it has planned the next one
                for plan in (self._plans / str(batch), self._plans / f".{batch}.crc"):
                    plan.unlink(missing_ok=True)
                raise
        self._is_first = False
        self._effects.happened("checkpoint plan")


class SeenWork:
    """The work of a stream with a ``SeenProcessor``."""

    def __init__(self, work: Work, effects: Effects, checkpoints: Path) -> None:
        self._work, self._effects, self._checkpoints = work, effects, checkpoints

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def processor(self, attempt: Attempt) -> Processor:
        return SeenProcessor(self._work.processor(attempt), self._effects, self._checkpoints / self.name / "offsets")


class Jobs:
    """Runs jobs; ``say`` tells whoever gave them."""

    def __init__(self, session: SparkSession, settings: Settings, answers: int) -> None:
        self._session, self._settings = session, settings
        self._answers = answers
        self._effects = primitives.EFFECTS

    def say(self, **what: Any) -> None:
        os.write(self._answers, json.dumps(what).encode() + b"\n")

    def run(self, job: dict[str, Any]) -> None:
        """One job: do its step, and tell what was seen and how it ended."""
        at = Point(**job["at"]) if job["at"] else None
        self._settings = replace(
            self._settings, **{folder: f"{job['root']}/{folder}" for folder in ("data", "checkpoints", "reports")}
        )
        self._effects.root = Path(job["root"])
        self._effects.transaction_timeout_ms = job["transaction_timeout_ms"]
        primitives.CLOCK.step(0)
        self._effects.begin((job["name"],), at, lambda: self._happen(job["then"]))
        _LOG.info("job %s", job)
        self._told: dict[str, Any] = {}
        try:
            getattr(self, f"_{job['step']}")(job)
            ended: dict[str, Any] = {"ended": "done", "told": self._told}
        except BaseException as error:
            _LOG.info("ended", exc_info=True)
            ended = {"ended": "killed"} if self._effects.is_dead else _told(error)
        for query in self._session.streams.active:
            query.stop()
        self.say(effects=self._effects.seen, **ended)

    def _happen(self, what: str) -> None:
        self.say(reached=True)
        match what:
            case "die":
                self._effects.die()
            case "kill -9":
                os.killpg(os.getpgid(0), signal.SIGKILL)
                time.sleep(60)
            case "freeze":
                os.killpg(os.getpgid(0), signal.SIGSTOP)
            case "wait":
                sys.stdin.readline()
            case str() if what.startswith("clock "):
                primitives.CLOCK.step(int(what.removeprefix("clock ")))
            case _:
                raise ValueError(what)

    def _stream(self, job: dict[str, Any]) -> None:
        self._run(self._declared(job))

    def _next_stream(self, job: dict[str, Any]) -> None:
        self._run(self._declared(job, later=1))

    def _run(self, declared: Stream) -> None:
        work: Any = SeenWork(
            work_of(self._session, declared, self._settings.data, reports=self._settings.reports),
            self._effects,
            Path(self._settings.checkpoints),
        )
        options = RunOptions(max_offsets=MAX_OFFSETS, available_now=True)
        StreamRunner(self._session, self._settings, work, options).run()

    def _upkeep(self, job: dict[str, Any]) -> None:
        """A round of the upkeep, as the stream's own process does it; all files are of two hours ago."""
        work: Any = work_of(self._session, self._declared(job), self._settings.data, reports=self._settings.reports)
        then_s = time.time() - 7_200
        for path in Path(self._settings.data).rglob("*"):
            os.utime(path, (then_s, then_s))
        work.tables.compaction.round()

    def _audit(self, job: dict[str, Any]) -> None:
        """Audit, and look at the whole chain with its published head."""
        topology: Any = self._declared(job)
        found = audited(self._session, self._settings, topology).findings
        head = published_head(Connection.of(self._settings), topology.name)
        chain = chain_in(
            certificates_of(self._settings.reports, topology.name), topology.name, None, head, head_is_asked=True
        )
        self._told = {
            "outcome": found.outcome,
            "counts": dict(found.counts),
            "differences": [str(one) for one in found.differences],
            "open": len(found.standing.open) if found.standing else 0,
            "chain": [str(fault) for fault in chain.faults()],
        }

    def _backfill(self, job: dict[str, Any]) -> None:
        topology: Any = self._declared(job)
        CarryingOut.of(self._settings, topology).run()

    def _reset(self, job: dict[str, Any]) -> None:
        Reset(self._settings, self._declared(job), "beginning").run()

    def _upgrade(self, job: dict[str, Any]) -> None:
        upgrade(self._settings, self._declared(job, later=1))

    def _declared(self, job: dict[str, Any], later: int = 0) -> Stream:
        return PARTS[job["part"]].declared(job["name"], job["round"] + later)


def _told(error: BaseException) -> dict[str, Any]:
    """The error of the package behind ``error``, else itself."""
    told = {"ended": "failed", "error": "".join(traceback.format_exception_only(error)), "kind": type(error).__name__}
    if isinstance(error, RecountError):
        told |= {"terminal": isinstance(error, Terminal), "remedy": error.remedy}
    return told


def main() -> None:
    # what another audit waits for that stands still for as long as this suite wants
    issuing._LOCK_S = 5.0
    answers = os.dup(1)
    os.dup2(2, 1)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = Settings.from_environment(os.environ)
    session = spark_session(settings, "faults")
    for name, value in _TINY.items():
        session.conf.set(name, value)
    jobs = Jobs(session, settings, answers)
    jobs.say(ready=True)
    while line := sys.stdin.readline():
        jobs.run(json.loads(line))
    session.stop()
