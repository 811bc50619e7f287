"""Free TCP ports of this machine."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Collection

from recount.core.errors import Terminal, Transient

LOOPBACK = "127.0.0.1"
# Below the range from which operating systems take the ports of outgoing connections: a port chosen here
# cannot be taken by a client socket between the choice and the use.
_RANGE = range(20_000, 32_000)
_LET_GO_S = 5.0


def loopback() -> str:
    """The name Airflow's processes know each other by (``hostname_callable``): nothing leaves this machine."""
    return LOOPBACK


def is_free(port: int) -> bool:
    """Whether a server could listen on ``port`` of the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def answers(port: int) -> bool:
    """Whether a server listens on ``port`` of the loopback address."""
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


def require_free(ports: Collection[int], part: str) -> None:
    """Raise ``Terminal`` where ``part`` cannot have its ports again: the other parts know it by them.

    The threads of a process that was killed may hold them for a moment longer than it is there.
    """
    deadline = time.monotonic() + _LET_GO_S
    while (taken := [port for port in ports if not is_free(port)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    if taken:
        raise Terminal(
            f"{part} cannot be started at the ports that it had",
            given=f"port {', '.join(map(str, taken))} of {LOOPBACK} is in use by another process",
            expected="the ports that the parts that run know",
            remedy="end that process; or `recount down`, then `recount up`, which chooses other ports for all parts",
        )


def free_ports(count: int) -> list[int]:
    """``count`` different ports that are free now.

    Chosen at random, so that two profiles that start at the same moment choose differently.
    """
    candidates = random.SystemRandom().sample(_RANGE, k=len(_RANGE))
    free: list[int] = []
    for port in candidates:
        if len(free) == count:
            break
        if is_free(port):
            free.append(port)
    if len(free) < count:
        raise Transient("too few free ports", given=count, expected=f"{count} free ports in {_RANGE}")
    return free
