"""How many backfills of a stream are on Kafka: the offset that their group commits with each of them.

It is committed for ``recount.positions``, to which no sink may write.
"""

from __future__ import annotations

from collections.abc import Iterable

from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.kafka.dead_letters import KafkaRecord
from recount.kafka.offsets import Partition
from recount.kafka.positions import published_offsets
from recount.kafka.topic_drift import POSITIONS
from recount.kafka.transaction import OutputTransaction


def backfill_counter(connection: Connection) -> Partition:
    """The partition for which the number of backfills on Kafka is committed."""
    return connection.own(POSITIONS), 0


def published_backfills(connection: Connection, topology: Topology) -> int:
    """Ask this before the ends of the sinks' topics: the topics hold these backfills then."""
    counter = backfill_counter(connection)
    return published_offsets(connection, connection.backfill_group(topology.name), [counter]).get(counter, 0)


def backfills_of(output: OutputTransaction, connection: Connection) -> int:
    """The same count, read by ``output``, the outputs of the backfills. Nobody else can publish one meanwhile."""
    return max((one.offset for one in output.committed([backfill_counter(connection)]).values()), default=0)


def publish_backfill(
    output: OutputTransaction, connection: Connection, number: int, name: str, records: Iterable[KafkaRecord]
) -> None:
    """Publish the backfill ``name`` and count it, in one transaction; do nothing where it has been published."""
    counter = backfill_counter(connection)
    output.commit_once(records, start_offsets={counter: number}, end_offsets={counter: number + 1}, batch=name)
