"""Rules of the stream's tasks and clock made wrong; those of operators: ``operator_mutants``."""

from __future__ import annotations

from collections.abc import Iterator

from tests.mutants.mutant import Mutant, bound, comparison, other


def engine_mutants() -> Iterator[Mutant]:
    """Of the tasks, and of whole batches."""
    yield from _of_stages()
    yield from _of_partitions()
    yield from _of_decoding()
    yield from _of_sums()


def _of_stages() -> Iterator[Mutant]:
    stage = "engine/stage/intake.py"
    reduction, certain = "engine/stage/reduction.py", "a record that may be late is judged"
    yield from comparison(reduction, "Reduction.begun", certain, "pl.col(WINDOW_END) <= passed")
    yield from other(reduction, "Reduction.begun", certain, "- windows.closes_ms(0)", "- windows.closes_ms(1)")
    starts, at = "engine/operators/windowed_state.py", "with_windows"
    yield from bound(starts, at, "the oldest window of a record", "time - windows.size_ms + advance")
    first = "lower_bound=first"
    yield from other(starts, at, "the first window of all", first, f"{first} + 1", f"{first} - 1")
    yield from bound(starts, at, "where windows start", "(time - first)")
    yield from other(starts, at, "the newest window of a record", "newest + 1", "newest", "newest + 2")
    yield from bound(starts, at, "a window ends", "pl.col(WINDOW_START) + windows.size_ms")
    yield from other(stage, "Intake._tests", "whose records need a key", "if self.needs_key", "if False")
    latest = "span.timestamp_ms + self.topology.max_future_ms"
    yield from bound("engine/exchange/graph_part.py", "GraphPlan.stage", "no absurd time", latest)
    yield from other(stage, "Intake._tests", "no time before the epoch", "time < 0", "time <= 0", "time < -1")
    yield from comparison(stage, "Intake._tests", "no absurd time", "time > self.latest_ms")
    yield from bound(stage, "Intake._tests", "no absurd time", "            time > self.latest_ms")


def _of_partitions() -> Iterator[Mutant]:
    clock, idle = "engine/operators/partition_clock.py", "a quiet partition is idle"
    yield from comparison(clock, "PartitionClock.advanced", idle, ">= idle_after_ms")
    yield from bound(clock, "PartitionClock.advanced", idle, "span.timestamp_ms - last_read_ms")
    yield from other(clock, "_unasked", "which partitions can be idle", "layers[asked + 1 :]", "layers[asked:]")
    awake = "if not proof.idle"
    yield from other(clock, "PartitionClock._frontier", "an idle partition holds nothing back", awake, "if True")
    frontier = "PartitionClock._frontier"
    yield from other(clock, frontier, "the slowest partition is the frontier", "min(time for", "max(time for")
    never = "max(self.frontier_ms, reached)"
    yield from other(clock, frontier, "the frontier never falls back", never, "reached")


def _of_decoding() -> Iterator[Mutant]:
    decoder = "formats/json_values.py"
    digits = "np.abs(scaled) < 10.0**field_type.precision"
    yield from comparison(decoder, "ValueDecoder._decimals", "the digits of a decimal", digits)
    exact = "(unscaled / factor == numbers) & "
    yield from other(decoder, "ValueDecoder._decimals", "the places of a decimal", exact, "")
    shape, carried = "formats/json_values.py", "DOUBLE_DIGITS"
    yield from other(shape, "json_shape", "decimals that a double cannot carry", carried, "(DOUBLE_DIGITS + 1)")
    yield from other(shape, "_shape", "a path to a value", "in field.path[:-1]", "in field.path[:0]")
    bad = "None if index in bad else value"
    rule = "the texts beside a bad one"
    yield from other("formats/record_decoder.py", "PlainDecoder._texts", rule, bad, "None if value else value")


def _of_sums() -> Iterator[Mutant]:
    sums = "engine/stage/exact_sums.py"
    yield from comparison(sums, "Sum._plain", "a sum of nothing", "self.values.count() > 0")
    missing = "made.is_null() & found.is_not_null()"
    yield from other(sums, "fitted", "a sum of LONG is exact", missing, "made.is_null() & found.is_null()")
    more = "rows[beyond].is_not_null()"
    yield from other(sums, "fitted", "the digits of a sum", more, "rows[beyond].is_null() & rows[beyond].is_not_null()")
