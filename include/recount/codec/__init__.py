"""Bytes to columns: fast decoding of declared schemas, shared by the stream and the recompute."""
