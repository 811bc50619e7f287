"""The schemas that the registry of all scenes has. The package is not imported, for it is broken by then."""

from __future__ import annotations

import json
from typing import Any

_PRECISE = {"logicalType": "decimal", "precision": 9, "scale": 2}
_TYPES: dict[str, Any] = {
    "s": "string",
    "n": "long",
    "i": "int",
    "b": "boolean",
    "x": "double",
    "u": ["null", "string"],
    "e": {"type": "enum", "name": "E", "symbols": ["OPEN", "PAID"]},
    "d": {"type": "bytes", **_PRECISE},
    "part": {"type": "bytes", **_PRECISE, "precision": 2},
    "whole": {"type": "bytes", **_PRECISE, "scale": 0},
    "raw": {"type": "fixed", "name": "F", "size": 0},
    "many": {"type": "array", "items": "long"},
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "day": {"type": "int", "logicalType": "date"},
    "to": {"type": "map", "values": "string"},
}
"""Of Avro: by field the type; each value is a record with one of them, whose schema has its own id."""
_EMPTY = json.dumps({"type": "record", "name": "Empty", "fields": []})
_FILE = """
syntax = "proto3";
package shop;

import "confluent/type/decimal.proto";
import "google/protobuf/timestamp.proto";
import "google/type/date.proto";

message Ignored {
  string text = 1;
}

message Order {
  message Place {
    string city = 1;
  }
  string name = 1;
  optional string note = 2;
  uint64 big = 3;
  State state = 4;
  google.protobuf.Timestamp at = 5;
  confluent.type.Decimal amount = 6;
  Place to = 7;
  int32 n = 8;
  repeated sint32 many = 9;
  google.type.Date day = 10;
}

enum State {
  OPEN = 0;
  PAID = 1;
  LOST = -1;
}"""
EMPTY_ID = 1
AVRO_IDS = {name: number for number, name in enumerate(_TYPES, 2)}
FILE_ID = len(_TYPES) + 2
SCHEMAS = (
    _EMPTY,
    *(
        json.dumps({"type": "record", "name": "One", "fields": [{"name": name, "type": kind}]})
        for name, kind in _TYPES.items()
    ),
    _FILE,
)
"""What the registry has, from the id 1 on."""
