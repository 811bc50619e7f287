"""One record set aside: a stream that cannot go on with it goes on without it, and every audit lists it.

The order is written while the stream's lease and outputs are held, and a driver reads the orders after it has taken the
lease. So a batch that is planned and not committed, the one that failed among them, is computed with the order in every
later try; and an order for a record that a batch has committed is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Message

from recount.audit.certificate.signing import signed_record, signer_in, trusted_in
from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.kafka.offsets import log_ranges, messages, partitions_of
from recount.kafka.positions import published_offsets
from recount.lifecycle.reset import require_no_driver, standstill
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms, told_time
from recount.tables.decisions import AsideLog, DeclarationLog
from recount.tables.signed_orders import AsideOrder, RecordPlace

Partition = tuple[str, int]
_SHOWN = 120


class AlreadyRead(Terminal):
    """A committed batch has read the record: what it has done is in the state and the results."""


@dataclass(frozen=True, kw_only=True)
class SettingAside:
    settings: Settings
    topology: Topology
    place: RecordPlace

    def checked(self) -> Message:
        """The record; raises ``Terminal`` where it cannot be set aside, so far as that is known beside a driver."""
        connection = Connection.of(self.settings)
        require_no_driver(connection, self.topology)
        record = self._record(connection)
        group = connection.group(self.topology.name)
        self._require_open(published_offsets(connection, group, [self._partition]))
        return record

    def shown(self, record: Message) -> str:
        """The beginning of ``record``: whether it is the one that was meant."""
        kind, at_ms = record.timestamp()
        key, value = (_beginning(part) for part in (record.key(), record.value()))
        return f"{self.place}, {told_time(at_ms) if kind else 'no time'}\n  key   {key}\n  value {value}"

    @property
    def dead_letters(self) -> str:
        return next(
            source.topic.dead_letter_name for source in self.topology.sources if source.topic.name == self.place.topic
        )

    def run(self, *, by: str, because: str) -> AsideOrder:
        """Write the order, signed where there is a key; raises ``Terminal`` while a driver is at work."""
        for name, given in {"--by": by, "--because": because}.items():
            if not given.strip():
                raise Terminal.of("set-aside-without-a-reason", given=f"{name} {given!r}")
        connection = Connection.of(self.settings)
        with standstill(connection, self.topology) as (of_stream, _):
            self._record(connection)
            committed = of_stream.committed([self._partition])
            self._require_open({place: one.offset for place, one in committed.items()})
            order = AsideOrder(
                stream=self.topology.name,
                version=self._version,
                topic=self.place.topic,
                partition=self.place.partition,
                offset=self.place.offset,
                at_ms=clock_ms(),
                by=by.strip(),
                because=because.strip(),
            )
            return self._record_of(order)

    def _record_of(self, order: AsideOrder) -> AsideOrder:
        signer = signer_in(self.settings.keys)
        if signer is None and trusted_in(self.settings.keys).keys:
            raise Terminal.of("order-unsigned", given=f"public keys only in {self.settings.keys}")
        signed = signed_record(order, signer)
        AsideLog(self.settings.data, self.topology.name).append(signed)
        return signed

    @property
    def _partition(self) -> Partition:
        return self.place.topic, self.place.partition

    @property
    def _version(self) -> int:
        return DeclarationLog(self.settings.data, self.topology.name).version()

    def _record(self, connection: Connection) -> Message:
        topics = sorted(source.topic.name for source in self.topology.sources)
        if self.place.topic not in topics:
            raise Terminal.of(
                "topic-not-read",
                given=str(self.place),
                name=self.topology.name,
                topic=self.place.topic,
                topics=", ".join(topics),
            )
        known = partitions_of(connection, self.place.topic)
        there = log_ranges(connection, [self._partition])[self._partition] if self._partition in known else None
        offset = self.place.offset
        if there is None or not there.start <= offset < there.end:
            raise self._no_record(f"offsets {there.start} to {there.end - 1}" if there else f"partitions {known}")
        for record in messages(connection, *self._partition, offset, offset + 1, "read_committed"):
            if record.offset() == offset:
                return record
        raise self._no_record("a transaction marker, an aborted or a compacted record there")

    def _no_record(self, found: str) -> Terminal:
        return Terminal.of("no-such-record", given=f"{self.place}; Kafka has {found}")

    def _require_open(self, committed: Mapping[Partition, int]) -> None:
        name = self.topology.name
        last = DeclarationLog(self.settings.data, name).last()
        begins = (last.starts if last else None) or {}
        reached = max(committed.get(self._partition, 0), begins.get(self._partition, 0))
        if self.place.offset < reached:
            raise AlreadyRead.of(
                "record-already-read", given=f"{self.place}; committed up to offset {reached}", name=name
            )
        for one in AsideLog(self.settings.data, name).orders(self._version):
            if one.place == self.place:
                raise Terminal.of("set-aside-already", given=f"{self.place}, by {one.by}: {one.because}", name=name)


def listed(settings: Settings, topology: Topology) -> list[str]:
    """The orders of the present version of ``topology``, as lines."""
    connection = Connection.of(settings)
    orders = AsideLog(settings.data, topology.name).orders(DeclarationLog(settings.data, topology.name).version())
    partitions = sorted({(one.topic, one.partition) for one in orders})
    read = published_offsets(connection, connection.group(topology.name), partitions) if partitions else {}
    lines = []
    for one in orders:
        is_read = one.offset < read.get((one.topic, one.partition), 0)
        state = "a dead letter" if is_read else "not read yet"
        lines.append(f"{one.place}  {state}  {told_time(one.at_ms)}  {one.by}: {one.because}")
    return lines or [f"{topology.name} has set no record aside"]


def _beginning(part: bytes | None) -> str:
    if part is None:
        return "null"
    shown = part[:_SHOWN].decode(errors="replace")
    return f"{shown!r}" + (f" and {len(part) - _SHOWN:,} bytes more" if len(part) > _SHOWN else "")
