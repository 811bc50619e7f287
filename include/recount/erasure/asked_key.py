"""What one call of ``recount erase`` is about: the streams and archives that have the key, and what hinders it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from recount.audit.erased_keys import ErasedKeys
from recount.audit.ledger import Ledger
from recount.core.archive import Archive
from recount.core.errors import Terminal
from recount.core.registry import Declarations
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.erasure.archived_records import ArchiveErasure, Ends, readers_of
from recount.erasure.elsewhere import has_in_state
from recount.erasure.erasable import objection_to
from recount.erasure.erasing import Order, Step, StreamErasure, named_in, unobserved


@dataclass(frozen=True, kw_only=True)
class Asked:
    """``streams`` and ``archives`` are those that the key is erased from; ``left`` names archives that keep it.

    A stream that reads the topic of an archive takes part though it may have no row of the key: its audits must not
    look behind the erasure, for the archive does not say any more what they would recompute there.
    """

    settings: Settings
    streams: Sequence[StreamErasure]
    archives: Sequence[ArchiveErasure]
    left: Sequence[str] = field(default_factory=tuple)

    @classmethod
    def of(
        cls,
        settings: Settings,
        declarations: Declarations,
        order: Order,
        named: Sequence[str],
        observer: Callable[[Step], None] = unobserved,
    ) -> Self:
        """``named`` streams and archives, or (none) all that have the key; raises ``Terminal`` for an unknown one."""
        _require_told(order)
        given = [declarations.stream(name) for name in dict.fromkeys(named)]
        everything = not given
        of_topology = {
            one.name: StreamErasure(settings=settings, topology=one, order=order, observer=observer)
            for one in declarations.topologies.values()
        }
        of_archive = {
            one.name: ArchiveErasure(
                settings=settings,
                archive=one,
                readers=readers_of(one, declarations.topologies.values()),
                order=order,
                observer=observer,
            )
            for one in declarations.archives.values()
        }
        streams = {one.name for one in given if isinstance(one, Topology)}
        archives = {one.name for one in given if isinstance(one, Archive)}
        holding = {name for name, one in of_archive.items() if one.places() or one.is_begun}
        if everything:
            streams = {name for name, one in of_topology.items() if _holds(one)}
            archives = holding
        for name in archives:
            streams |= {
                reader.name
                for reader in of_archive[name].readers
                if of_archive[name].uncovered(_ends_of(settings, reader.name))
            }
        return cls(
            settings=settings,
            streams=[of_topology[name] for name in sorted(streams)],
            archives=[of_archive[name] for name in sorted(archives)],
            left=sorted(holding - archives),
        )

    def counts(self) -> dict[str, Mapping[str, int]]:
        """By stream the number of rows of each table that would go."""
        found: dict[str, Mapping[str, int]] = {}
        for one in self.streams:
            if objection_to(one.topology) is None:
                found[one.topology.name] = one.counts()
        for archive in self.archives:
            topic = archive.archive.topic.name
            found[archive.archive.name] = {f"archive/{topic}": len(archive.places())}
        return found

    def hindrances(self) -> list[tuple[str, str]]:
        """What stands in the way, by stream."""
        found = [(one.topology.name, text) for one in self.streams for text in one.hindrances()]
        ends_of: dict[str, Ends] = {
            reader.name: _ends_of(self.settings, reader.name) for one in self.archives for reader in one.readers
        }
        for stream in self.streams:
            last = _last_ends(self.settings, stream.topology.name)
            ends_of |= {stream.topology.name: last} if last else {}
        return [*found, *((one.archive.name, text) for one in self.archives for text in one.hindrances(ends_of))]


def _require_told(order: Order) -> None:
    for what, given in (("key", order.key), ("name", order.by), ("reason", order.reason)):
        if not given.strip():
            raise Terminal(
                f"no {what}",
                given=given,
                expected={"key": "the key as text", "name": "who erases", "reason": "why"}[what],
                remedy="recount erase --key KEY --by NAME --reason TEXT",
            )
    if named_in(order.by, order.key) or named_in(order.reason, order.key):
        raise Terminal(
            "the record of the erasure would name the key",
            given=f"--by {order.by} --reason {order.reason}",
            expected="a name and a reason without it: both are kept for ever",
            remedy="name a ticket, or the law",
        )


def _holds(erasure: StreamErasure) -> bool:
    """Whether the stream has rows of the key, or an erasure of it that is not done."""
    left = ErasedKeys.of(erasure.settings, erasure.topology.name).unfinished
    if left is not None and left.is_of(erasure.order.key):
        return True
    if objection_to(erasure.topology) is None:
        return bool(erasure.counts())
    return has_in_state(Tables(erasure.settings.data), erasure.topology, erasure.order.key)


def _ends_of(settings: Settings, stream: str) -> Ends:
    """Where the audits of ``stream`` begin since its newest erasure; nowhere where there is none."""
    newest = ErasedKeys.of(settings, stream).newest
    return {} if newest is None else newest.offsets


def _last_ends(settings: Settings, stream: str) -> Ends:
    try:
        proof = Ledger.newest(Tables(settings.data), stream)
    except Terminal:
        return {}
    ends: dict[str, dict[str, int]] = {}
    for part in proof.partitions if proof else ():
        ends.setdefault(part.topic, {})[str(part.partition)] = part.end
    return ends
