"""Whether the masters of a standalone Spark cluster let this driver in, asked before Spark registers with them.

Spark takes a refusal for a master that is away: it tries for a minute, and then says that all masters are unresponsive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError

from recount.cluster.shared_secret import SECURITY_VARIABLE
from recount.core.errors import Terminal

STANDALONE = "spark://"
_AWAY = ("java.io.IOException", "java.util.concurrent.TimeoutException")
"""Nobody answers; Spark tries again."""
_LOOPBACK = "127.0.0.1"
_KINDS = re.compile(r"^(?:[\w.$]+: )+")
"""The names of Java's exceptions before what they say."""
_TELLS_IT_TOO = "org.apache.spark.network.client.TransportClientFactory"
"""Logs a refusal as well, in a hundred lines."""


def require_admitted(gateway: Any, master: str) -> None:
    """Return when each of the masters of ``spark://HOST:PORT,HOST:PORT`` has let in a client with the JVM's settings.

    A master that is away is passed over. Raises ``Terminal`` where one refuses.
    """
    jvm = gateway.jvm
    manager = jvm.org.apache.spark.SecurityManager
    # what Scala fills in for arguments that are left out
    others = [getattr(manager, f"$lessinit$greater$default${number}")() for number in (2, 3)]
    settings = jvm.org.apache.spark.SparkConf()
    rpc = jvm.org.apache.spark.rpc.RpcEnv.create("admission", _LOOPBACK, 0, settings, manager(settings, *others), True)
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(_TELLS_IT_TOO, log4j.Level.OFF)
    try:
        for address in master.removeprefix(STANDALONE).split(","):
            _ask(gateway, rpc, f"{STANDALONE}{address}")
    finally:
        rpc.shutdown()
        log4j.core.config.Configurator.setLevel(_TELLS_IT_TOO, log4j.Level.WARN)


def _ask(gateway: Any, rpc: Any, master: str) -> None:
    address = gateway.jvm.org.apache.spark.rpc.RpcAddress.fromSparkURL(master)
    try:
        # one who proves himself is refused here; one who does not, when he asks for something
        rpc.createClient(address)
        rpc.setupEndpointRef(address, "Master")
    except Py4JJavaError as error:
        causes = list(_causes(error.java_exception))
        if any(is_instance_of(gateway, cause, kind) for cause in causes for kind in _AWAY):
            return
        said = _KINDS.sub("", str(causes[-1].toString()).partition("\n")[0])
        raise Terminal(
            "Spark's cluster does not let this driver in",
            given=f"{master}: {said}",
            expected="the secret of the cluster's master and workers, and their way of encryption",
            remedy=f"let {SECURITY_VARIABLE} name the file with which they were started, or a copy of it",
        ) from None


def _causes(error: Any) -> Iterator[Any]:
    while error is not None:
        yield error
        error = error.getCause()
