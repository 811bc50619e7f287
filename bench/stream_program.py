"""One stream as a program of its own that says a line about every batch, for runs that watch it while it runs."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import defaultdict

from bench.contending import Arguments, parsed, say, settings_of
from bench.jobs import JOBS
from recount.engine.commit.delta_table import DELTA_LOG_KEPT_MS
from recount.engine.driver.runner import RunOptions, StreamRunner
from recount.engine.driver.stream_command import work_of
from recount.engine.driver.stream_query import BatchProgress, ProgressListener
from recount.engine.exchange.work import Step
from recount.tables.spark_session import spark_session


class Teller:
    """Says of each batch, once Spark has committed it, when that was (epoch), what it read and how long it took.

    ``kafka_ms`` and ``delta_ms`` are the two commits, ``duration_ms`` is the whole batch as Spark counts it. The
    observer of the runner.
    """

    def __init__(self, listener: ProgressListener) -> None:
        self._listener = listener
        self._done_s: defaultdict[int, dict[Step, float]] = defaultdict(dict)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="teller", daemon=True)

    def __call__(self, step: Step, batch: int) -> None:
        self._done_s[batch][step] = time.monotonic()

    def __enter__(self) -> Teller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            for progress in self._listener.take(timeout_s=0.5):
                self._tell(progress)
        for progress in self._listener.take(timeout_s=1.0):
            self._tell(progress)

    def _tell(self, progress: BatchProgress) -> None:
        done_s = self._done_s.pop(progress.batch, None)
        if not done_s:
            return
        say(
            "batch",
            batch=progress.batch,
            at_ms=time.time_ns() // 1_000_000,
            records=progress.records,
            duration_ms=progress.duration_ms,
            kafka_ms=round((done_s["kafka committed"] - done_s["mapped"]) * 1_000),
            delta_ms=round((done_s["delta committed"] - done_s["kafka committed"]) * 1_000),
            lag=progress.lag or 0,
        )


def main(arguments: Arguments) -> None:
    """Run the stream of the arguments to the end of its topic, or with ``follow`` until it is killed."""
    # spark-submit sends Python's own words to standard output, where the batches are told
    logging.basicConfig(
        filename=arguments["log"], level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    settings = settings_of(arguments)
    session = spark_session(settings, "benchmark")
    name = arguments["application"]
    topology = JOBS[arguments["job"]].topology(name, arguments["topic"], arguments["output"])
    options = RunOptions(max_offsets=int(arguments["max-offsets"]), available_now="follow" not in arguments)
    kept_ms = int(arguments.get("delta-log-kept-ms", DELTA_LOG_KEPT_MS))
    work = work_of(session, topology, settings.data, reports=settings.reports, delta_log_kept_ms=kept_ms)
    listener = ProgressListener(name)
    session.streams.addListener(listener)
    try:
        with Teller(listener) as teller:
            StreamRunner(session, settings, work, options, teller).run()
    finally:
        session.stop()


if __name__ == "__main__":
    main(parsed(sys.argv[1:]))
