"""``recount erase``: the streams and archives that have one key, and what hinders its erasure."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Self

import typer

from recount.audit.carry.erased_keys import ErasedKeys
from recount.audit.cut.audited_ledger import Ledger
from recount.declare.groups import Archive
from recount.declare.registry import Declarations, declared
from recount.declare.topology import Topology
from recount.lifecycle.erasure.archived_records import ArchiveErasure, Ends, readers_of
from recount.lifecycle.erasure.erasing import Order, Step, StreamErasure, named_in, unobserved
from recount.lifecycle.erasure.hindrances import MAX_FILES, has_in_state, reports_naming, under_other_keys
from recount.lifecycle.erasure.holdings import objection_to
from recount.runtime.errors import Terminal
from recount.runtime.log_lines import write_log
from recount.runtime.settings import Settings
from recount.runtime.times import quantity
from recount.tables.places import Tables


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
        """The number of rows of each table that would be deleted, by stream."""
        found: dict[str, Mapping[str, int]] = {}
        for one in self.streams:
            if objection_to(one.topology) is None:
                found[one.topology.name] = one.counts()
        for archive in self.archives:
            topic = archive.archive.topic.name
            found[archive.archive.name] = {f"archive/{topic}": len(archive.places())}
        return found

    def hindrances(self) -> list[tuple[str, str]]:
        """Hindrances, each with its stream."""
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


def erase(
    key: Annotated[str, typer.Option("--key", help="The key as text: the key of sinks, and of archived records.")],
    by: Annotated[str, typer.Option("--by", help="Who erases it; goes into the certificate.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; goes into the certificate. Do not name the key.")],
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", help="A stream or archive; again for several. Without it: all that have the key."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go, and what hinders it.")] = False,
) -> None:
    """Erase one key from the tables, the state, the audits and the archives of streams that stand still.

    Each stream must have been audited up to its last batch, and nothing may be open. Later audits go on from there.
    A run that was killed is completed by running the same again.
    """
    settings = Settings.from_environment(os.environ)
    write_log(settings.log_format, level=logging.WARNING)
    asked = Asked.of(settings, declared(settings.topologies), Order(key=key, by=by, reason=reason), stream or [])
    _show(asked)
    found = asked.hindrances()
    for name, text in found:
        print(f"{name}: hindered: {text}")
    if dry_run:
        print("dry run: nothing was erased")
    elif found:
        raise Terminal(
            "nothing was erased",
            given=f"{len(found)} hindrances in {', '.join(sorted({name for name, _ in found}))}",
            expected="streams that stand still, whose newest audit is a match up to their last batch",
            remedy="do what is said above, then run this again; --stream erases from the streams that it names only",
        )
    else:
        for run in [*(one.run for one in asked.streams), *(one.run for one in asked.archives)]:
            done = run()
            print(f"{done.stream}: erasure {done.erasure} is done, {quantity(sum(done.counts.values()), 'row')}")
    _show_what_stays(settings, asked, key)


def _show(asked: Asked) -> None:
    counts = asked.counts()
    for name, tables in counts.items():
        print(f"{name}: {', '.join(f'{table} {n}' for table, n in sorted(tables.items())) or 'no rows'}")
    if not counts:
        print("no stream has this key")


def _show_what_stays(settings: Settings, asked: Asked, key: str) -> None:
    tables = Tables(settings.data)
    topics = {source.topic.name for one in asked.streams for source in one.topology.sources}
    letters = {source.topic.dead_letter_name for one in asked.streams for source in one.topology.sources}
    written = {node.topic.name for one in asked.streams for node in one.topology.written}
    archived = {one.archive.topic.name for one in asked.archives}
    if topics | written | archived:
        print(f"stays in Kafka until its retention: {', '.join(sorted(topics | letters | written | archived))}")
    for name in asked.left:
        print(f"stays in {name}, which was not named")
    for one in asked.streams:
        for line in under_other_keys(tables, one.topology, key):
            print(f"stays in {line}")
    files = reports_naming(settings, key)
    for file in files[:MAX_FILES]:
        print(f"stays in {file}")
    if len(files) > MAX_FILES:
        print(f"stays in {len(files) - MAX_FILES} more files below {settings.reports}")
