"""The connection by which one thread of the JVM calls Python, and the thread of Python that answers it."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

from pyspark import SparkContext


def connection_of_this_thread() -> Any:
    """Py4J's connection by which the JVM calls the current thread; None where no JVM does."""
    gateway = SparkContext._gateway
    return None if gateway is None else gateway._gateway_client.get_thread_connection()


def end_calls(connection: Any) -> None:
    """Let the thread of Python end that waits on ``connection``: the thread of the JVM that called has ended.

    Py4J keeps both sides for as long as the process lives, one more for each query that was ever started. The waiting
    thread holds the lock of what it reads from, so that only the socket can be ended from here.
    """
    with suppress(OSError, AttributeError):  # it has ended already
        connection.socket.shutdown(socket.SHUT_RDWR)
