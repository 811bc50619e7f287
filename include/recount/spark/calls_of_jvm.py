"""The connection by which one thread of the JVM calls Python, and the thread of Python that answers it."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

from pyspark import SparkContext


def connection_of_this_thread() -> Any:
    """Py4J's connection by which the JVM calls the current thread; None where no JVM does."""
    client = _client()
    return client and client.get_thread_connection()


def end_calls(connection: Any) -> None:
    """Let the thread of Python end that waits on ``connection``: the thread of the JVM that called has ended.

    Py4J keeps both sides for as long as the process lives, one more for each query that was ever started, and looks
    through all connections at every call of the JVM.
    """
    if (client := _client()) is None or connection is None:
        return
    with suppress(ValueError):  # it made no calls itself
        client.deque.remove(connection)
    # the waiting thread holds the lock of what it reads from: only the socket can be ended from here
    with suppress(OSError, AttributeError):  # it has ended already
        connection.socket.shutdown(socket.SHUT_RDWR)


def _client() -> Any:
    gateway = SparkContext._gateway
    return None if gateway is None else gateway._gateway_client
