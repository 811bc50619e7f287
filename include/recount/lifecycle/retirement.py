"""The end of a stream that is wanted no longer; the name is enough, for its declaration may be deleted.

Steps, each safe to repeat:
1. Its driver is ordered to end after its batch, and waited for.
2. That it is retired is recorded: from here on no driver starts it.
3. Position and consumer groups, of the stream and of its backfills, are deleted.
4. Tables, checkpoint and topics are removed where that was asked for.
5. Its last status says that it is stopped.
What audits have found stays: certificates, the tables of its audits, who accepted what, declarations, erasures, orders.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from recount.declare.fingerprint import Declared, Document
from recount.declare.registry import Declarations, declared
from recount.declare.topology import Topology
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failing
from recount.kafka.leases import driver_of, stop_driver, withdraw_stop
from recount.kafka.status import StatusBoard
from recount.lifecycle.reset import (
    files_at,
    folders_of,
    forget,
    is_there,
    local_path,
    outputs_held,
    say_stopped,
    tables_of,
    written_in,
)
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms
from recount.tables.decisions import DeclarationLog


class Retirement:
    """The retirement of ``stream``; ``topics`` are those of its results that are to be deleted.

    Raises ``Terminal`` where the stream is declared and that was not said, where it has never run, and where what is to
    be removed is another stream's, too.
    """

    def __init__(
        self,
        settings: Settings,
        stream: str,
        *,
        remove_tables: bool = False,
        topics: Sequence[str] = (),
        while_declared: bool = False,
    ) -> None:
        self._settings = settings
        self._stream = stream
        self._remove_tables = remove_tables
        self._topics = list(topics)
        self._connection = Connection.of(settings)
        self._log = DeclarationLog(settings.data, stream)
        declarations = declared(settings.topologies)
        self._is_declared = stream in declarations.streams
        if self._is_declared and not while_declared:
            raise Terminal.of("stream-still-declared", given=f"its declaration in {settings.topologies}", stream=stream)
        rows = [row for row in self._log.all() if row.kind != "reset begun"]
        self._document: Document | None = rows[-1].document if rows else None
        with closing(StatusBoard(self._connection, isolation="read_uncommitted")) as board:
            statuses = board.latest()
        self._status = statuses.get(stream)
        if self._status is None and self._document is None:
            raise Terminal.of(
                "never-ran",
                given=stream,
                expected=f"one of {', '.join(sorted(statuses))}" if statuses else "a stream that has run",
            )
        self._require_unshared({name: one for name, one in declarations.topologies.items() if name != stream})
        self._require_own_topics(declarations)

    def planned(self) -> Iterator[str]:
        at_work = self._status is not None and not self._status.is_over
        if at_work and self._status is not None:
            yield f"stop    its driver: {driver_of(self._status, clock_ms())}"
        groups = (self._connection.group(self._stream), self._connection.backfill_group(self._stream))
        yield f"forget  its position, and the consumer groups {' and '.join(groups)}"
        yield from (f"{'remove ' if self._remove_tables else 'keep   '} {place}" for place in self._places())
        for topic in sorted({one["topic"] for one in written_in(self._document or {})}):
            yield f"{'remove ' if topic in self._topics else 'keep   '} topic {topic}"
        yield f"keep    what was found: certificates, audits/{self._stream}, declarations, acceptances and erasures"

    def run(self, patience_s: float) -> None:
        """Retire it; raises ``Terminal`` where its driver does not end within ``patience_s``."""
        if self._status is not None:
            stop_driver(self._connection, self._stream, patience_s=patience_s)
        with outputs_held(self._connection, self._stream) as outputs:
            last = self._log.last()
            if self._document is not None and (last is None or last.kind != "retired"):
                self._log.enact("retired", Declared(document=self._document))
            forget(self._connection, outputs)
            if self._remove_tables:
                for place in self._places():
                    _remove(place)
            self._delete_topics()
        say_stopped(self._connection, self._stream, self._log.version())
        if not self._is_declared:
            withdraw_stop(self._connection, self._stream)
        (Path(self._settings.run) / "drivers" / f"{self._stream}.json").unlink(missing_ok=True)

    def _places(self) -> list[str]:
        data, name = self._settings.data, self._stream
        folders = folders_of(name, self._document or {})
        places = [*(f"{data}/{folder}" for folder in folders), f"{self._settings.checkpoints}/{name}"]
        return [place for place in places if is_there(place)]

    def _require_unshared(self, others: dict[str, Topology]) -> None:
        """A renamed stream may write the tables of the former one by now."""
        tables = tables_of(self._document or {}) if self._remove_tables else set()
        shared = [
            f"{one.table}, which {name} writes"
            for name, topology in others.items()
            for one in topology.written
            if one.table in tables and DeclarationLog(self._settings.data, name).last() is not None
        ]
        if shared:
            raise Terminal.of("table-of-another-stream", given="; ".join(shared), stream=self._stream)

    def _require_own_topics(self, declarations: Declarations) -> None:
        own = {one["topic"] for one in written_in(self._document or {})}
        used = {
            topic: name
            for name, one in declarations.topologies.items()
            if name != self._stream
            for topic in (*(source.topic.name for source in one.sources), *(sink.topic.name for sink in one.written))
        } | {one.topic.name: one.name for one in declarations.archives.values()}
        refused = [topic for topic in self._topics if topic not in own or topic in used]
        if refused:
            raise Terminal.of(
                "topics-of-others",
                given=", ".join(f"{one} (used by {used[one]})" if one in used else one for one in refused),
                stream=self._stream,
                own=", ".join(sorted(own - used.keys())) or "none: it has no topic to itself",
            )

    def _delete_topics(self) -> None:
        admin = self._connection.admin()
        there = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        asked = [topic for topic in self._topics if topic in there]
        for topic, answer in admin.delete_topics(asked, request_timeout=REQUEST_TIMEOUT_S).items() if asked else ():
            with failing(f"deleting topic {topic}"):
                answer.result()


def _remove(place: str) -> None:
    path = local_path(place)
    if path is not None:
        shutil.rmtree(path)
        return
    files, inside = files_at(place)
    files.delete_dir(inside)
