"""How many backfills of a stream are on Kafka: the offset that their group commits with each of them.

It is committed for ``recount.positions``, to which no sink may write. Earlier it was committed for the topic of the
first sink, which is another one once the sinks are declared in another order. Those counts are read too.
"""

from __future__ import annotations

from collections.abc import Iterable

from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.kafka.dead_letters import KafkaRecord
from recount.kafka.offsets import Partition, committed_offsets
from recount.kafka.positions import last_ends
from recount.kafka.topic_drift import POSITIONS
from recount.kafka.transaction import OutputTransaction


def backfill_counter(connection: Connection) -> Partition:
    """The partition for which the number of backfills on Kafka is committed."""
    return connection.own(POSITIONS), 0


def published_backfills(connection: Connection, topology: Topology) -> int:
    """Ask this before the ends of the sinks' topics: the topics hold these backfills then."""
    group, places = connection.backfill_group(topology.name), _places(connection, topology)
    found = committed_offsets(connection, group, places) or last_ends(connection, group, places)
    return max(found.values(), default=0)


def backfills_of(output: OutputTransaction, connection: Connection, topology: Topology) -> int:
    """The same count, read by ``output``, the outputs of the backfills. Nobody else can publish one meanwhile."""
    return max((one.offset for one in output.committed(_places(connection, topology)).values()), default=0)


def publish_backfill(
    output: OutputTransaction, connection: Connection, number: int, name: str, records: Iterable[KafkaRecord]
) -> None:
    """Publish the backfill ``name`` and count it, in one transaction; do nothing where it has been published."""
    counter = backfill_counter(connection)
    output.commit_once(records, start_offsets={counter: number}, end_offsets={counter: number + 1}, batch=name)


def _places(connection: Connection, topology: Topology) -> set[Partition]:
    return {backfill_counter(connection), *((written.topic.name, 0) for written in topology.written)}
