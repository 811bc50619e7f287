"""The topics Recount itself needs, declared like any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recount.core.topics import Topic

STATUS = "recount.status"
HISTORY = "recount.history"
CONTROL = "recount.control"
CERTIFICATES = "recount.certificates"
POSITIONS = "recount.positions"

_SMALL_SEGMENTS = {"segment.bytes": str(16 << 20)}
"""Kafka compacts a segment once it is full: a record a batch would fill one of the default size in weeks, and the
statuses of forty streams in two days, which everybody would read who asks for one."""


def platform_topics(named: Callable[[str], str] = str) -> tuple[Topic, ...]:
    """The last status of every driver, the history of these, the orders to drivers, the newest certificates, and where
    Kafka stands with every stream.

    One partition keeps order. ``named`` says what the installation calls them (``Connection.own``).
    """
    return (
        _newest_of_each(named(STATUS), _SMALL_SEGMENTS),
        Topic(name=named(HISTORY), key="stream", partitions=1, retention_ms=7 * 86_400_000, owned=True),
        _newest_of_each(named(CONTROL)),
        _newest_of_each(named(CERTIFICATES)),
        _newest_of_each(named(POSITIONS), _SMALL_SEGMENTS),
    )


def _newest_of_each(name: str, configs: Mapping[str, str] | None = None) -> Topic:
    """The topic ``name``, which keeps the newest record of each stream."""
    return Topic(
        name=name,
        key="stream",
        partitions=1,
        cleanup_policy="compact",
        retention_ms=-1,
        configs=configs or {},
        owned=True,
    )
