"""Sends orders of one product at a steady rate, and fails unless the brokers have all of them: COUNT RATE NAME.

It runs in the image, which has none of the tests: the standard library and confluent-kafka are all it may use.
"""

import json
import os
import sys
import time

from confluent_kafka import Producer

count, rate, name = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
producer = Producer(
    {
        "bootstrap.servers": os.environ["RECOUNT_BOOTSTRAP_SERVERS"],
        "enable.idempotence": True,
        "delivery.timeout.ms": 600_000,
    }
)
refused: list[str] = []
began = time.monotonic()
for number in range(count):
    while (left_s := began + number / rate - time.monotonic()) > 0:
        producer.poll(left_s)
    order = {"order_id": f"{name}-{number}", "product": "tea", "region": "north", "amount": "1.50"}
    producer.produce(
        "orders",
        json.dumps(order),
        key=order["order_id"],
        on_delivery=lambda error, _: refused.append(str(error)) if error else None,
    )
    producer.poll(0)
left = producer.flush(600)
print(f"sent {count - left - len(refused)} of {count}: {refused[:3]}")
sys.exit(bool(left or refused))
