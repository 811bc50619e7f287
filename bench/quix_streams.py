"""The contender Quix Streams: the jobs as its documentation would write them; runs in an environment of its own.

It is one process with one thread. A result leaves with every record that changes it, for it has no record cache.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from quixstreams import Application
from quixstreams.dataframe import StreamingDataFrame
from quixstreams.dataframe.windows import Count, Sum
from quixstreams.models import Topic

from bench.routes import BY_REGION
from recount.runtime.times import milliseconds

Value = dict[str, Any]
_RE_KEYED = ("revenue-by-region",)


class Run:
    """One application on one topic: how many of its records it processed, and when the first was."""

    def __init__(self, arguments: Mapping[str, str], prefix: str) -> None:
        self.job, self.grace_ms = arguments["job"], int(arguments["grace-ms"])
        self.session_gap_ms, self.paid_within_ms = int(arguments["session-gap-ms"]), int(arguments["paid-within-ms"])
        self.first_ms: int | None = None
        # A record that is re-keyed is processed twice: when it is read, and when it is read again.
        self._left = int(arguments[prefix + "records"]) * (2 if self.job in _RE_KEYED else 1)
        self._topic, self._output = arguments[prefix + "topic"], arguments[prefix + "output"]
        self._application = Application(
            broker_address=arguments["bootstrap"],
            consumer_group=arguments[prefix + "application"],
            state_dir=arguments["state"],
            auto_offset_reset="earliest",
            processing_guarantee="exactly-once",
            commit_interval=int(arguments["commit-interval-ms"]) / 1_000,
            loglevel="WARNING",
            on_message_processed=self._processed,
        )

    def to_the_end(self) -> None:
        """Process all records and commit."""
        JOBS[self.job](self)
        self._application.run()

    def orders(self) -> StreamingDataFrame:
        """The decoded orders."""
        return self._application.dataframe(self._given(self._topic))

    def payments(self) -> StreamingDataFrame:
        """The decoded payments."""
        return self._application.dataframe(self._given(f"{self._topic}-payments"))

    def output(self, ending: str = "") -> Topic:
        """A topic of results."""
        return self._given(self._output + ending)

    def write(self, results: StreamingDataFrame) -> None:
        """Write the results of windows."""
        results.apply(_flat).to_topic(self.output())

    def _given(self, name: str) -> Topic:
        return self._application.topic(name, key_deserializer="str", value_deserializer="json")

    def _processed(self, _topic: str, _partition: int, _offset: int) -> None:
        self.first_ms = self.first_ms or _now_ms()
        self._left -= 1
        if not self._left:
            self._application.stop()


def revenue_by_region(run: Run) -> None:
    """The job revenue-by-region."""
    regions = run.orders().group_by(lambda order: order["region"] or "UNKNOWN", name="region")
    windows = regions.tumbling_window(milliseconds("5 min"), grace_ms=run.grace_ms)
    run.write(windows.agg(orders=Count(), revenue=Sum("amount")).current())


def counts_per_user(run: Run) -> None:
    """The job counts-per-user."""
    windows = run.orders().tumbling_window(milliseconds("5 min"), grace_ms=run.grace_ms)
    run.write(windows.agg(orders=Count()).current())


def sessions_per_user(run: Run) -> None:
    """The job sessions-per-user; users who have gone are closed by the others of their partition."""
    windows = run.orders().session_window(run.session_gap_ms, grace_ms=run.grace_ms)
    run.write(windows.agg(orders=Count()).final(closing_strategy="partition"))


def orders_with_payments(run: Run) -> None:
    """The job orders-with-payments."""
    joined = run.orders().join_interval(
        run.payments(), on_merge=_paid, forward_ms=run.paid_within_ms, grace_ms=run.paid_within_ms + run.grace_ms
    )
    joined.to_topic(run.output())


def routing_by_region(run: Run) -> None:
    """The job routing-by-region."""
    topics = {ending: run.output(ending) for ending in BY_REGION.endings}
    routed = run.orders()[["order_id", "region", "amount"]]
    routed.to_topic(
        lambda order, *_: topics[BY_REGION.ending(order["region"])], key=lambda order: str(order["order_id"])
    )


def _flat(result: Value) -> Value:
    return {"window_start": result["start"], **{name: result[name] for name in ("orders", "revenue") if name in result}}


def _paid(order: Value, payment: Value) -> Value:
    return {"user_id": order["user_id"], "amount": order["amount"], "method": payment["method"]}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _say(event: str, **details: int | None) -> None:
    print(json.dumps({"event": event, **details}), flush=True)


JOBS: dict[str, Callable[[Run], None]] = {
    "revenue-by-region": revenue_by_region,
    "counts-per-user": counts_per_user,
    "sessions-per-user": sessions_per_user,
    "orders-with-payments": orders_with_payments,
    "routing-by-region": routing_by_region,
}


def main(arguments: Mapping[str, str]) -> None:
    """Warm up, say so, run the job to the end of its topic and say when it began and ended."""
    Run(arguments, "warm-up-").to_the_end()
    _say("measuring")
    measured = Run(arguments, "")
    measured.to_the_end()
    _say("measured", first_ms=measured.first_ms, last_ms=_now_ms())


if __name__ == "__main__":
    main(dict(pair.split("=", 1) for pair in sys.argv[1:]))
