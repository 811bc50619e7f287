"""The metrics of a driver over HTTP: what each of its streams says of itself, and what its operators keep."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from recount.kafka.status import StreamStatus
from recount.spark.state_use import StateUse
from recount.status_metrics import gauge, of_status

_LOG = logging.getLogger(__name__)
_LOOPBACK = "127.0.0.1"
_OF_OPERATOR = ["stream", "operator"]

States = Callable[[], Mapping[str, StateUse]]


class DriverMetrics(Collector):
    """Of the streams of this process. Used by the threads of streams and by those that answer scrapes."""

    def __init__(self) -> None:
        self._statuses: dict[str, StreamStatus] = {}
        self._states: dict[str, States] = {}

    def told(self, status: StreamStatus) -> None:
        """A stream has said how it is."""
        self._statuses[status.stream] = status

    @contextmanager
    def of_states(self, stream: str, states: States) -> Iterator[None]:
        """Tell meanwhile what the operators of ``stream`` keep; nothing of it is held any longer afterwards."""
        self._states[stream] = states
        try:
            yield
        finally:
            del self._states[stream]

    def describe(self) -> Iterator[Metric]:
        """Nothing: which operators there are is known once streams run."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """The families."""
        yield from of_status(dict(self._statuses))
        used = {
            (stream, operator): use
            for stream, states in list(self._states.items())
            for operator, use in states().items()
        }
        rows = [(place, use.rows) for place, use in used.items()]
        yield gauge("operator_state_rows", "Rows that an operator keeps", _OF_OPERATOR, rows)
        sizes = [(place, use.bytes) for place, use in used.items()]
        yield gauge("operator_state_bytes", "Bytes of these rows in memory, without indexes", _OF_OPERATOR, sizes)
        puts = CounterMetricFamily("recount_operator_puts", "Rows written to state, or forgotten", labels=_OF_OPERATOR)
        gets = CounterMetricFamily("recount_operator_gets", "Identities looked for in state", labels=_OF_OPERATOR)
        for place, use in used.items():
            puts.add_metric(place, use.puts)
            gets.add_metric(place, use.gets)
        yield puts
        yield gets

    @contextmanager
    def served(self, port: int | None) -> Iterator[None]:
        """Answer scrapes at ``port`` of the loopback address meanwhile (None: at none).

        A port that is taken is logged, and nothing is answered: a stream does not stop for its metrics.
        """
        if port is None:
            yield
            return
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            server, thread = start_http_server(port, _LOOPBACK, registry)
        except OSError as error:
            _LOG.error("no metrics are served at port %d: %s", port, error.strerror)
            yield
            return
        _LOG.info("metrics at http://%s:%d/metrics", _LOOPBACK, port)
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
