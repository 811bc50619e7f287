"""Payments in Protobuf, by the files of three writers, and a stream of them."""

from __future__ import annotations

from tests.formats.payment_sinks import amounts_in, amounts_to, copied_in

from recount.declare.schema import BYTES, DATE, LONG, STRING, TIMESTAMP, RecordSchema, decimal, list_of, nested
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream

payments = Topic(
    name="protobuf-payments",
    key="payment_id",
    value=RecordSchema.of(
        customer=STRING,
        amount=decimal(20, 2),
        note=STRING,
        at=TIMESTAMP,
        day=DATE,
        receipt=BYTES,
        state=STRING,
        pieces=list_of(LONG),
        city=nested("to", "city", kind=STRING),
        points=nested("points", "bonus", kind=LONG),
        required=("customer", "amount", "at"),
    ),
    event_time="at",
    encoding="protobuf",
    partitions=1,
    retention_ms=-1,
)
READ = ("at", "day", "receipt", "state", "pieces", "note", "city", "points")
paid = Topology(
    name="protobuf-paid",
    sinks=[
        amounts_to(Topic(name="protobuf-paid", key="customer", partitions=1, retention_ms=-1), payments),
        stream(payments)
        .select(*READ)
        .to(Topic(name="protobuf-payments-read", key="payment_id", partitions=1, retention_ms=-1)),
    ],
)
amounts = amounts_in("protobuf", payments)
copied = copied_in("protobuf", payments)

FIRST = """
syntax = "proto3";
package shop;

import "google/protobuf/timestamp.proto";

message Ignored {
  string text = 1;
}

message Payment {
  enum State {
    OPEN = 0;
    PAID = 1;
  }
  message Address {
    string city = 1;
  }
  string customer = 1;
  string amount = 2;
  google.protobuf.Timestamp at = 3;
  string day = 4;
  bytes receipt = 5;
  State state = 6;
  repeated sint64 pieces = 7;
  Address to = 8;
  map<string, int64> points = 9;
}
"""
COMPATIBLE = FIRST.replace("  string customer = 1;", "  string customer = 1;\n  optional string note = 10;")
INCOMPATIBLE = FIRST.replace("  string amount = 2;", "  double amount = 2;")
