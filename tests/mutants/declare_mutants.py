"""Rules of ``declare`` made wrong: the stream and the interpreter have these both, the recompute has its own."""

from __future__ import annotations

from collections.abc import Iterator

from tests.mutants.mutant import Mutant, bound, comparison, other

_SPAN = "self.before_ms + self.after_ms + self.grace_ms"


def declare_mutants() -> Iterator[Mutant]:
    """Of declarations and what follows from them."""
    yield from _of_windows()
    yield from _of_time_above()
    yield from _of_keys()
    yield from _of_values()
    yield from _of_defaults()


def _of_windows() -> Iterator[Mutant]:
    windows = "declare/windows.py"
    yield from bound(windows, "TimeWindows.closes_ms", "a time window closes", "self.grace_ms")
    yield from bound(windows, "SlidingWindows.closes_ms", "a sliding window closes", "self.grace_ms")
    yield from bound(windows, "SessionWindows.closes_ms", "a session closes", "self.grace_ms")
    yield from other(windows, "SessionWindows.closes_ms", "a session waits for its gap", "self.gap_ms + ", "")
    yield from comparison(windows, "TimeWindows.is_closed", "a time window is closed", "<= clock_ms")
    oldest = "timestamp_ms - self.size_ms + advance"
    yield from bound(windows, "TimeWindows.starts", "the oldest window of what may be revised", oldest)
    aligned = "timestamp_ms - (timestamp_ms - first) % advance"
    yield from bound(windows, "TimeWindows.starts", "the newest window of what may be revised", aligned)
    newest = "newest + 1"
    yield from other(windows, "TimeWindows.starts", "the newest window of what may be revised", newest, "newest")
    yield from other(
        windows, "TimeWindows.starts", "none of what may be revised begins before 0", "max(first, ", "max(-9, "
    )
    yield from other(
        windows, "TimeWindows.first_start_ms", "where windows start", "-self.origin_ms %", "self.origin_ms %"
    )
    yield from comparison(windows, "SlidingWindows.is_closed", "a sliding window is closed", "<= clock_ms")
    yield from comparison(windows, "SessionWindows.is_closed", "a session is closed", "<= clock_ms")
    yield from bound(windows, "SlidingWindows.left_of", "the left window begins", "timestamp_ms - self.difference_ms")
    yield from other(windows, "SlidingWindows.left_of", "none begins before 0", "max(0, ", "max(-9, ")
    yield from bound(windows, "SlidingWindows.left_of", "the left window ends", "start + self.difference_ms")
    yield from other(
        windows, "SlidingWindows.right_of", "the right window begins", "return timestamp_ms + 1", "return timestamp_ms"
    )
    yield from bound(windows, "SlidingWindows.right_of", "the right window ends", "1 + self.difference_ms")
    cut, gap = "timestamp_ms - start_ms <= self.max_duration_ms", "timestamp_ms - end_ms <= self.gap_ms"
    yield from comparison(windows, "SessionWindows.continues", "a session is cut", cut)
    yield from bound(windows, "SessionWindows.continues", "a session is cut", cut)
    yield from comparison(windows, "SessionWindows.continues", "a session goes on", gap)
    for kind in ("TimeWindows", "SlidingWindows", "SessionWindows"):
        yield from bound(windows, f"{kind}.delay_ms", "how long windows below wait", "self.grace_ms")


def _of_time_above() -> Iterator[Mutant]:
    times, joins = "declare/operators/event_time.py", "declare/operators/joins.py"
    processing = "declare/operators/processing.py"
    yield from bound(joins, "StreamStreamJoin.delay_ms", "a record leaves a join alone", _SPAN)
    yield from other(joins, "StreamTableJoin.delay_ms", "what waits for a table", "self.grace_ms or 0", "0")
    yield from other(processing, "Deduplicate.delay_ms", "what waits for a first", "self.horizon_ms", "0")
    yield from bound(processing, "Deduplicate.delay_ms", "what waits for a first", "self.horizon_ms")
    yield from other(processing, "InOrder.delay_ms", "what waits for its turn", "self.grace_ms", "0")
    yield from other(processing, "KeyState.schedule", "when a timer goes off", "add(at_ms)", "add(at_ms + 1)")
    yield from other(times, "delay_above_ms", "the longest wait counts", "max((", "min((")
    yield from other(times, "judges_above", "waits add up", "delay_ms + further_ms", "further_ms")
    yield from other(times, "holds_back", "who holds back: a lookup", "is not None", "is None")
    yield from other(times, "holds_back", "who holds back: an order", "Suppress | InOrder", "Suppress")
    yield from other(times, "holds_back", "who holds back: a first", "not node.partitioned", "node.partitioned")
    yield from other(times, "is_held_back", "who is held back", "any(", "not any(")
    yield from other(
        times, "topics_of", "whose time counts", "for above in waits_for(node)", "for above in waits_for(node)[:1]"
    )
    without = "node.left,) if isinstance(node, StreamTableJoin) and node.grace_ms is None"
    yield from other(
        times, "waits_for", "a lookup waits for its table", without, without.replace("is None", "is not None")
    )
    refusing = "Deduplicate | Process"
    yield from other(times, "_refusing", "who keeps a record without a key from others", refusing, "Process")
    judges = "(WindowedAggregate, StreamStreamJoin, Deduplicate, InOrder, Process)"
    yield from other(times, "", "no frontier runs ahead of one above", judges, "(StreamStreamJoin, Process)")


def _of_keys() -> Iterator[Mutant]:
    keys = "declare/operators/keys_and_fields.py"
    yield from other(
        "declare/operators/tables.py",
        "is_versioned",
        "which tables have versions",
        "and table.versioned",
        "and not table.versioned",
    )
    yield from other(
        "declare/flow.py",
        "RecordStream.deduplicate",
        "how the first is chosen",
        "<= _partition_keys",
        "> _partition_keys",
    )
    yield from other(keys, "_keyed_inputs", "aggregations need keys", "WindowedAggregate() | ", "")
    yield from other(keys, "_keyed_inputs", "tables need keys", "ToTable() | ", "")
    yield from other(keys, "_keyed_inputs", "processors need keys", " | Process()", "")
    lookup = 'StreamTableJoin(kind="inner", by=None)'
    yield from other(keys, "_keyed_inputs", "lookups that drop need keys", lookup, lookup.replace("inner", "left"))
    yield from other(keys, "_keyed_inputs", "inner joins need keys", 'kind="inner"):', 'kind="outer"):')
    yield from other(keys, "_keyed_inputs", "a left join needs keys on the right", "(node.right,)", "(node.left,)")


def _of_values() -> Iterator[Mutant]:
    schema = "declare/schema.py"
    long = "LONG_MIN <= given <= LONG_MAX"
    yield from other(schema, "_typed", "a LONG has 64 bits", long, "LONG_MIN < given <= LONG_MAX")
    yield from other(schema, "_typed", "a LONG has 64 bits", long, "LONG_MIN <= given < LONG_MAX")
    yield from other(schema, "_typed", "a LONG has 64 bits", long, "LONG_MIN <= given <= LONG_MAX + 1")
    double = "field_type.precision <= DOUBLE_DIGITS"
    yield from comparison(schema, "exact_decimal", "the double of a decimal", double)
    digits = "made.adjusted() < field_type.precision - field_type.scale"
    yield from comparison(schema, "exact_decimal", "the digits of a decimal", digits)
    yield from bound(schema, "exact_decimal", "the digits of a decimal", "field_type.precision - field_type.scale")
    plain, alone = "declare/plain_values.py", "a plain number stands alone"
    yield from other(plain, "PlainValue.as_json", alone, "_SCALAR.fullmatch", "_SCALAR.match")
    yield from _of_readings()
    # one digit more has no room in Polars: the stream stops
    places = "kind.precision - kind.scale"
    yield from other("declare/aggregates.py", "fits", "the digits of a product", places, f"({places} - 1)")


def _of_readings() -> Iterator[Mutant]:
    readings, schema, zone = "declare/values.py", "declare/schema.py", "the offset of a zone"
    yield from comparison(readings, "milliseconds", zone, "int(hours) > _HOURS")
    yield from comparison(readings, "milliseconds", zone, "int(minutes) > _MINUTES")
    yield from other(readings, "milliseconds", zone, 'sign == "+"', 'sign == "-"')
    part, filled = "the part of a second", 'ljust(3, "0")'
    yield from other(readings, "milliseconds", part, filled, 'rjust(3, "0")')
    yield from other(readings, "milliseconds", part, "[:3]", "[-3:]")
    invalid = "except ValueError:\n        return False"
    yield from other(readings, "_is_date", "a day of the calendar", invalid, invalid.replace("False", "True"))
    yield from other(readings, "_is_base64", "base64 as it is written", " == text.encode()", " != b''")
    yield from other(schema, "_at", "a path to a value", "in path", "in path[-1:]")
    yield from other(schema, "_at", "a path to a value", "document is None", "not isinstance(document, dict)")
    last, there = "the last header counts", "a header that must be there"
    yield from other(schema, "RecordSchema.of_headers", last, "dict(headers)", "dict([*headers][::-1])")
    missing = "given is None and name in self.required"
    yield from other(schema, "RecordSchema.of_headers", there, missing, "False", "given is None")
    yield from other(readings, "of_header", "the bytes of a header", "b64encode", "urlsafe_b64encode")
    keys, whole = "declare/operators/keys_and_fields.py", "a key of several fields"
    yield from other(keys, "key_text", "a key of bytes", "b64encode", "urlsafe_b64encode")
    yield from other(keys, "key_of", whole, "encode_value(fields).decode()", "str(values)")
    yield from other(keys, "key_of", whole, "is None for", "is not None for")
    yield from other(keys, "key_of", whole, "if all(", "if any(")
    yield from other(keys, "key_of", "a key of one field", "len(values) == 1", "len(values) == 2")


def _of_defaults() -> Iterator[Mutant]:
    topology, flow = "declare/topology.py", "declare/flow.py"
    yield from other(topology, "Topology", "a quiet partition is idle", '= "5 min"', '= "299999 ms"', '= "300001 ms"')
    yield from other(topology, "Topology", "no absurd time", '= "1 h"', '= "3599999 ms"', '= "3600001 ms"')
    far = '= "400 d"'
    yield from other("declare/operators/placement.py", "", "how far a lookup sees", far, '= "9599 h"', '= "9601 h"')
    arrival = '= "arrival"'
    yield from other(flow, "RecordStream.join_table", "as of when a lookup is", '= "event"', arrival)
    yield from other(flow, "RecordStream.left_join_table", "as of when a left lookup is", '= "event"', arrival)
    yield from other(flow, "RecordStream.to_table", "whether a stream's table is versioned", "= False", "= True")
    yield from other(flow, "table", "whether a topic's table is versioned", "= False", "= True")
