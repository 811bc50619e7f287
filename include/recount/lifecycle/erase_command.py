"""``recount erase``: the streams and archives that have one key, what hinders its erasure, and what stays of it."""

import json
import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

import typer

from recount.declare.groups import Archive
from recount.declare.registry import Declarations, declared
from recount.declare.topology import Topology
from recount.lifecycle.archived_records import ArchiveErasure, readers_of
from recount.lifecycle.erasing import KeyErasure, Order, Step, StreamErasure, unobserved
from recount.runtime.errors import Terminal
from recount.runtime.log_lines import write_log
from recount.runtime.settings import Settings
from recount.runtime.times import quantity

_MAX_FILES = 50


@dataclass(frozen=True, kw_only=True)
class Asked:
    """``streams`` and ``archives`` are those that the key is erased from; ``left`` names archives that keep it.

    A stream that reads the topic of an archive takes part though it may have no row of the key: its audits must not
    look behind the erasure, for the archive does not say any more what they would recompute there.
    """

    streams: Sequence[StreamErasure]
    archives: Sequence[ArchiveErasure]
    left: Sequence[str] = ()

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
        topologies = declarations.topologies.values()
        given = [declarations.stream(name) for name in dict.fromkeys(named)]
        streams = {
            one.name: StreamErasure(settings=settings, declared=one, order=order, observer=observer)
            for one in topologies
        }
        archives = {
            one.name: ArchiveErasure(
                settings=settings, declared=one, readers=readers_of(one, topologies), order=order, observer=observer
            )
            for one in declarations.archives.values()
        }
        holding = {name for name, one in archives.items() if one.is_begun or one.places()}
        wanted = {one.name for one in given if isinstance(one, Topology)}
        asked = {one.name for one in given if isinstance(one, Archive)} if given else holding
        if not given:
            wanted = {name for name, one in streams.items() if _holds(one)}
        for archive in (archives[name] for name in asked):
            wanted |= {reader.name for reader in archive.readers if archive.is_read_by(reader)}
        return cls(
            streams=[streams[name] for name in sorted(wanted)],
            archives=[archives[name] for name in sorted(asked)],
            left=sorted(holding - asked),
        )

    @property
    def erasures(self) -> list[KeyErasure]:
        return [*self.streams, *self.archives]

    def counts(self) -> dict[str, dict[str, int]]:
        """The number of rows of each table that would be deleted, by stream."""
        return {one.name: one.counts() for one in self.erasures if one.objection is None}

    def hindrances(self) -> list[tuple[str, str]]:
        return [(one.name, text) for one in self.erasures for text in one.hindrances()]


def _require_told(order: Order) -> None:
    for what, given, expected in (
        ("key", order.key, "the key as text"),
        ("name", order.by, "who erases"),
        ("reason", order.reason, "why"),
    ):
        if not given.strip():
            raise Terminal.of("erasure-lacks-a-word", given=given, what=what, expected=expected)
    word = rf"(?<!\w){re.escape(order.key)}(?!\w)"
    if re.search(word, order.by) or re.search(word, order.reason):
        raise Terminal.of("erasure-would-name-the-key", given=f"--by {order.by} --reason {order.reason}")


def _holds(erasure: StreamErasure) -> bool:
    """Whether the stream has rows of the key, or an erasure of it that is not done.

    One from which no key can be erased counts too where rows of other keys name it: they may have been made of it.
    """
    if erasure.is_begun or erasure.counts():
        return True
    return erasure.objection is not None and bool(erasure.held.named())


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
    counts = asked.counts()
    for name, tables in counts.items():
        print(f"{name}: {', '.join(f'{table} {n}' for table, n in sorted(tables.items())) or 'no rows'}")
    if not counts:
        print("no stream has this key")
    found = asked.hindrances()
    for name, text in found:
        print(f"{name}: hindered: {text}")
    if dry_run:
        print("dry run: nothing was erased")
    elif found:
        raise Terminal.of(
            "nothing-erased", given=f"{len(found)} hindrances in {', '.join(sorted({name for name, _ in found}))}"
        )
    else:
        for one in asked.erasures:
            done = one.run()
            print(f"{done.stream}: erasure {done.erasure} is done, {quantity(sum(done.counts.values()), 'row')}")
    for place in _left(settings, asked, key):
        print(f"stays in {place}")


def _left(settings: Settings, asked: Asked, key: str) -> list[str]:
    read = [source.topic for one in asked.streams for source in one.declared.sources]
    topics = {name for topic in read for name in (topic.name, topic.dead_letter_name)}
    topics |= {node.topic.name for one in asked.streams for node in one.declared.written}
    topics |= {one.declared.topic.name for one in asked.archives}
    found = [f"Kafka until its retention: {', '.join(sorted(topics))}"] if topics else []
    found += [f"{name}, which was not named" for name in asked.left]
    for one in asked.streams:
        for table, number in one.held.named().items():
            found.append(f"{one.name}, {table}: {number} rows of other keys have it: erase those keys too")
    files = reports_naming(settings, key)
    found += files[:_MAX_FILES]
    if len(files) > _MAX_FILES:
        found.append(f"{len(files) - _MAX_FILES} more files below {settings.reports}")
    return found


def reports_naming(settings: Settings, key: str) -> list[str]:
    """The files below the reports that hold ``key``: certificates are never rewritten, nor are pages."""
    told = {key.encode(), json.dumps(key)[1:-1].encode(), json.dumps(key, ensure_ascii=False)[1:-1].encode()}
    files = [path for path in sorted(Path(settings.reports).rglob("*")) if path.is_file()]
    return [str(path) for path in files if any(one in path.read_bytes() for one in told)]
