"""What ``bench.stream_program`` says about its batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from bench.running import Program


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A committed batch: when (epoch), how many records, the milliseconds of all of it and of its two commits.

    ``lag`` is what was on the broker and not read when it was planned.
    """

    batch: int
    at_ms: int
    records: int
    duration_ms: int
    kafka_ms: int
    delta_ms: int
    lag: int


def batches_of(program: Program) -> Iterator[Batch]:
    """The batches as they are committed; raises ``Transient`` with the end of the program's log when it ends."""
    while True:
        said = program.wait_for("batch")
        yield Batch(**{field.name: said[field.name] for field in fields(Batch)})


def batches_until(program: Program, records: int) -> Iterator[Batch]:
    """The batches up to the one with which ``records`` have been read."""
    left = records
    for batch in batches_of(program):
        yield batch
        left -= batch.records
        if left <= 0:
            return
