"""A new version of a stream: state, outputs, ledger and audit begin again, and the former tables are kept aside.

Steps, each safe to repeat: the intent is recorded, with where the version begins and where the topics that the stream
writes end; the tables are moved aside; positions and consumer groups are deleted; the stream's status says that the new
version is stopped, whatever the former one said last; the new version is recorded. Between the first and the last no
driver starts. Tables are moved whole to ``former/<stream>/<version>`` below the data root, and never deleted.

A reset needs a standstill: no driver is at work, and one that wakes up can neither publish nor commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlparse

from confluent_kafka import KafkaError, KafkaException
from pyarrow.fs import FileSystem, FileType

from recount.declare.fingerprint import Declared, Document
from recount.declare.registry import Stream
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.kafka.connection import BACKFILL_SLOT, REQUEST_TIMEOUT_S, Connection, failure
from recount.kafka.leases import Lease
from recount.kafka.offsets import ends_of, spans_of
from recount.kafka.status import StreamStatus, status_of
from recount.kafka.transaction import OutputTransaction
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms, readable
from recount.tables.decisions import DeclarationLog, Enacted

From = Literal["beginning", "now"]


@contextmanager
def standstill(connection: Connection, stream: Stream) -> Iterator[tuple[OutputTransaction, OutputTransaction]]:
    """Holds the stream's lease and its outputs, as ``outputs_held`` does.

    Raises ``Terminal`` while a driver is at work: nothing is stopped here.
    """
    require_no_driver(connection, stream)
    with outputs_held(connection, stream.name) as outputs:
        yield outputs


@contextmanager
def outputs_held(connection: Connection, name: str) -> Iterator[tuple[OutputTransaction, OutputTransaction]]:
    """Holds the lease and the outputs of the stream ``name``, which may be declared no longer.

    Whatever a killed driver left behind is decided when this begins. Yields the outputs of the stream and of its
    backfills, by which they count what they have read and published.
    """
    lease = Lease.acquire(connection, name)
    with ExitStack() as held:
        held.callback(lease.release)
        of_stream = held.enter_context(closing(OutputTransaction(connection, name)))
        group = connection.backfill_group(name)
        of_backfills = OutputTransaction(connection, name, BACKFILL_SLOT, group=group)
        yield of_stream, held.enter_context(closing(of_backfills))


def require_no_driver(connection: Connection, stream: Stream) -> None:
    """Raise ``Terminal`` when the last driver has not said that it ended and was heard of lately.

    Its statuses are read uncommitted: an open transaction on the topic must not hide that it is at work.
    """
    status = status_of(connection, stream.name)
    if status is None or status.is_over:
        return
    silent_ms = clock_ms() - status.heartbeat_ms
    if silent_ms <= stream.health.heartbeat_age_ms:
        raise Terminal.of(
            "stream-is-running",
            given=f"driver {status.driver_id} on {status.host}, heard of {readable(max(0, silent_ms))} ago",
            name=stream.name,
        )


def forget(connection: Connection, outputs: Sequence[OutputTransaction]) -> None:
    """Forget up to where a stream has read, and what its backfills have published: positions and consumer groups."""
    for output in outputs:
        output.forget_position()
    groups = [output.group for output in outputs]
    answers = connection.admin().delete_consumer_groups(groups, request_timeout=REQUEST_TIMEOUT_S)
    for group, answer in answers.items():
        try:
            answer.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise failure(f"deleting the group {group}", error) from error


def say_stopped(connection: Connection, name: str, version: int) -> None:
    """Let the last status of the stream be that it is stopped, at ``version``.

    What its last driver said is over: a driver that was killed, or has failed, cannot say so itself.
    """
    lease = Lease.acquire(connection, name)
    with ExitStack() as held:
        held.callback(lease.release)
        lease.publish(replace(StreamStatus.first(name, lease.epoch), state="stopped", stream_version=version))


@dataclass(frozen=True, kw_only=True)
class Move:
    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


def put_aside(planned: Sequence[Move]) -> list[Move]:
    """Make the moves that are not made yet; returns what was moved.

    A rename of a folder is whole or not at all, so that this can be repeated after a crash. An object store has no such
    rename: there it says what to move.
    """
    left = [move for move in planned if is_there(move.source)]
    twice = [move for move in left if is_there(move.target)]
    if twice:
        raise Terminal.of("table-in-two-places", given="; ".join(map(str, twice)))
    remote = [move for move in left if local_path(move.source) is None]
    if remote:
        raise Terminal.of("store-cannot-rename", given="; ".join(map(str, remote)))
    for move in left:
        source, target = local_path(move.source), local_path(move.target)
        assert source is not None
        assert target is not None
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
    return left


def local_path(place: str) -> Path | None:
    """The folder ``place`` of this machine; None where it is an object store's."""
    parsed = urlparse(place)
    return Path(parsed.path if parsed.scheme == "file" else place) if parsed.scheme in ("", "file") else None


def is_there(place: str) -> bool:
    path = local_path(place)
    if path is not None:
        return path.exists()
    files, inside = files_at(place)
    return bool(files.get_file_info(inside).type != FileType.NotFound)


def files_at(place: str) -> tuple[FileSystem, str]:
    """The object store of ``place``, and the path within it."""
    files, inside = FileSystem.from_uri(place.replace("s3a://", "s3://", 1))
    return files, inside


@dataclass(frozen=True, kw_only=True)
class NewVersion:
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
        """Moves of its folders, as far as they are there."""
        root, name = self._settings.data, self._stream.name
        kept = f"{root}/former/{name}/{self._version_that_ends(self._log.last())}"
        folders = [*folders_of(name, self._former(), self._declared.document), f"audits/{name}"]
        return [Move(source=f"{root}/{folder}", target=f"{kept}/{folder}") for folder in folders]

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


def folders_of(stream: str, *documents: Document) -> list[str]:
    """The folders below the data root that ``stream`` writes, by ``documents`` of its declaration."""
    archives = [f"archive/{one['topic']}" for one in documents if one.get("kind") == "archive"]
    if archives:
        return archives[:1]
    tables = sorted(set().union(*map(tables_of, documents)))
    return [f"streams/{stream}", *(f"{kind}/{table}" for table in tables for kind in ("outputs", "corrections"))]


def read_by(document: Document) -> list[str]:
    if document["kind"] == "archive":
        return [document["topic"]]
    return sorted({one["topic"] for one in document["operators"] if one["operator"] == "source"})


def _written_by(document: Document) -> list[str]:
    sinks = {one["topic"] for one in written_in(document)}
    letters = {Topic(name=name, key="key").dead_letter_name for name in read_by(document)}
    return sorted(sinks | letters)


def tables_of(document: Document) -> set[str]:
    return {one["table"] for one in written_in(document)}


def written_in(document: Document) -> list[Mapping[str, str]]:
    return [one for one in document.get("operators", ()) if one["operator"] in ("sink", "through")]
