"""A driver that gets as far as its commit, says so, and waits to be killed: BOOTSTRAP STREAM SOURCE OUTPUT."""

from __future__ import annotations

import sys
import time

from confluent_kafka import TopicPartition

from recount.kafka.connection import Connection


def main(bootstrap_servers: str, stream: str, source: str, output: str) -> None:
    connection = Connection(bootstrap_servers=bootstrap_servers)
    group = connection.consumer(f"recount.{stream}").consumer_group_metadata()
    producer = connection.producer({"transactional.id": f"recount.{stream}.0"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(output, key=b"key", value=b"of the dead")
    producer.flush(10)
    producer.send_offsets_to_transaction([TopicPartition(source, 0, 100)], group, 10)
    print("before commit", flush=True)
    time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
