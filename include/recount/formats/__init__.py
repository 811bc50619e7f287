"""Bytes to columns and rows to bytes: JSON, Avro, Protobuf, keys, headers, schema registry."""
