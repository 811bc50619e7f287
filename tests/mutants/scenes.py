"""All scenes by name."""

from __future__ import annotations

from collections.abc import Callable

from tests.mutants.scene import Scene
from tests.mutants.scenes_of_formats import avro_values, protobuf_values
from tests.mutants.scenes_of_histories import HISTORIES, of_history
from tests.mutants.scenes_of_time import (
    FLOWS,
    a_quiet_partition,
    event_times,
    records_in_order,
    records_side_by_side,
    scene_of_time,
    totals_in_order,
)
from tests.mutants.scenes_of_values import (
    SUMS,
    a_full_sketch,
    headers,
    keys_of_bytes,
    keys_with_a_field,
    keys_with_fields,
    long_numbers,
    of_sums,
    paths,
    plain_nulls,
    plain_numbers,
    plain_texts,
    prices,
    products,
    readings,
    values,
)

from recount.declare.flow import RecordStream, Table

_QUIET: dict[str, tuple[Callable[[], RecordStream | Table], bool]] = {
    "a quiet partition": (FLOWS["hopping"], False),
    "a quiet partition of records in order": (totals_in_order, False),
    "a quiet side of a join": (FLOWS["outer join"], False),
    "a partition that comes back": (FLOWS["hopping, kept as a graph"], True),
    "a quiet partition of a lookup with a history": (FLOWS["lookups with a history"], False),
}
"""The flow of each, and whether the partition falls back."""
_OTHERS: dict[str, Callable[[], Scene]] = {
    "event times": event_times,
    "records in order": records_in_order,
    "sliding, side by side": records_side_by_side,
    "values": values,
    "prices": prices,
    "readings": readings,
    "paths": paths,
    "headers": headers,
    "keys of bytes": keys_of_bytes,
    "keys with fields": keys_with_fields,
    "keys with a field": keys_with_a_field,
    "products": products,
    "long numbers": long_numbers,
    "plain numbers": plain_numbers,
    "plain texts": plain_texts,
    "plain nulls": plain_nulls,
    "a full sketch": a_full_sketch,
    "avro values": avro_values,
    "protobuf values": protobuf_values,
}


def scene(name: str) -> Scene:
    """The scene ``name``; others are not even declared, for a mutant may refuse their declaration."""
    if name in SUMS:
        return of_sums(name)
    if name in HISTORIES:
        return of_history(name)
    if name in _QUIET:
        flow, falls_back = _QUIET[name]
        return a_quiet_partition(name, flow, falls_back=falls_back)
    return scene_of_time(name) if name in FLOWS else _OTHERS[name]()


def names() -> list[str]:
    """Of all scenes."""
    return [*FLOWS, *SUMS, *HISTORIES, *_QUIET, *_OTHERS]
