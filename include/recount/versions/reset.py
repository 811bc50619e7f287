"""A new version of a stream: state, outputs, ledger and audit begin anew, and what was before is kept aside.

Steps, each safe to repeat: the intent is recorded, with where the version begins and where the topics that the stream
writes end; the tables are moved aside; positions and consumer groups are deleted; the stream's status says that the new
version is stopped, whatever the former one said last; the new version is recorded. Between the first and the last no
driver starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from recount.core.archive import Archive
from recount.core.fingerprint import Declared, Document
from recount.core.registry import Stream
from recount.core.settings import Settings
from recount.core.topics import Topic
from recount.core.topology import Topology
from recount.declarations import DeclarationLog, Enacted
from recount.kafka.connection import Connection
from recount.kafka.offsets import ends_of, spans_of
from recount.versions.aside import Move, moves, put_aside
from recount.versions.standstill import forget, say_stopped, standstill

From = Literal["beginning", "now"]


@dataclass(frozen=True, kw_only=True)
class NewVersion:
    """The version that a reset made, and the folders that it moved."""

    enacted: Enacted
    moved: tuple[Move, ...]


class Reset:
    """The reset of ``stream``, which reads from the ``beginning`` of the log or from ``now`` on."""

    def __init__(self, settings: Settings, stream: Stream, begin_at: From) -> None:
        self._settings = settings
        self._stream = stream
        self._begin_at = begin_at
        self._connection = Connection.of(settings)
        self._log = DeclarationLog(settings.data, stream.name)
        self._declared = Declared.of(stream)

    def planned(self) -> list[Move]:
        """What will be moved aside, as far as it is there."""
        last = self._log.last()
        version = self._version_that_ends(last)
        former = self._former()
        return moves(self._settings.data, self._stream.name, version, self._folders(former))

    def run(self) -> NewVersion:
        """Make the new version; raises ``Terminal`` while a driver is at work."""
        with standstill(self._connection, self._stream) as outputs:
            last = self._log.last()
            planned = self.planned()
            begun = last if last and last.kind == "reset begun" else self._begin(last)
            moved = put_aside(planned)
            forget(self._connection, outputs)
            say_stopped(self._connection, self._stream.name, begun.version)
            enacted = self._log.enact(
                "reset", self._declared, version=begun.version, begins=begun.begins, published=begun.published
            )
            return NewVersion(enacted=enacted, moved=tuple(moved))

    def _begin(self, last: Enacted | None) -> Enacted:
        topics = {*_written_by(self._former()), *_written_by(self._declared.document)}
        return self._log.enact(
            "reset begun",
            self._declared,
            version=self._version_that_ends(last) + 1,
            begins=self._now() if self._begin_at == "now" else None,
            published=ends_of(self._connection, sorted(topics)),
        )

    def _now(self) -> dict[str, dict[int, int]]:
        """Where the topics end; a table's from its first record, for it is what its records of all times make it."""
        layers = self._stream.layers if isinstance(self._stream, Topology) else ()
        of_tables = {topic for topics in layers[:-1] for topic in topics}
        spans = spans_of(self._connection, read_by(self._declared.document))
        return {
            topic: {part: span.start if topic in of_tables else span.end for part, span in found.items()}
            for topic, found in spans.items()
        }

    def _version_that_ends(self, last: Enacted | None) -> int:
        if last is None:
            return 1
        return last.version - 1 if last.kind == "reset begun" else last.version

    def _former(self) -> Document:
        """The document of the version that ends: the last that was in force, else the deployed one."""
        rows = [row for row in self._log.all() if row.kind != "reset begun"]
        return rows[-1].document if rows else self._declared.document

    def _folders(self, former: Document) -> list[str]:
        if isinstance(self._stream, Archive):
            return [f"archive/{self._stream.topic.name}"]
        name = self._stream.name
        tables = sorted({*tables_of(former), *tables_of(self._declared.document)})
        written = [f"{kind}/{table}" for table in tables for kind in ("outputs", "corrections")]
        return [f"streams/{name}", f"audits/{name}", *written]


def read_by(document: Document) -> list[str]:
    """The topics that a stream reads."""
    if document["kind"] == "archive":
        return [document["topic"]]
    return sorted({one["topic"] for one in document["operators"] if one["operator"] == "source"})


def _written_by(document: Document) -> list[str]:
    """The topics of the sinks and of dead letters."""
    sinks = {one["topic"] for one in written_in(document)}
    letters = {Topic(name=name, key="key").dead_letter_name for name in read_by(document)}
    return sorted(sinks | letters)


def tables_of(document: Document) -> set[str]:
    """The tables of its sinks."""
    return {one["table"] for one in written_in(document)}


def written_in(document: Document) -> list[Mapping[str, str]]:
    """Its sinks, each with its topic and table."""
    return [one for one in document.get("operators", ()) if one["operator"] in ("sink", "through")]
