"""Prints how many records the topic of orders has, and how many orders.

It runs in the image, as the sender does.
"""

import json
import os

from confluent_kafka import Consumer, TopicPartition

consumer = Consumer(
    {
        "bootstrap.servers": os.environ["RECOUNT_BOOTSTRAP_SERVERS"],
        "group.id": "counter",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
)
partitions = consumer.list_topics("orders", timeout=30).topics["orders"].partitions
consumer.assign([TopicPartition("orders", partition, 0) for partition in partitions])
records, orders, ended = 0, set(), set()
while ended != set(partitions):
    for message in consumer.consume(10_000, timeout=1):
        if message.error():
            ended.add(message.partition())
        else:
            records += 1
            orders.add(json.loads(message.value())["order_id"])
print(json.dumps([records, len(orders)]))
