"""What a batch costs an operator that holds many rows: ``python -m bench.held_rows [ROWS ...]``.

In each batch 1,000 rows are put, half of them new, 500 removed and 1,000 found, by their identity and by another
column. Printed for each number of rows held: the median and the longest batch in milliseconds, and by how much the
memory of the process peaked above what it held before the batches.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl

from recount.engine.state.keyed_rows import KeyedRows

_TYPES = (pl.Int64(), pl.String(), pl.String(), pl.Float64())
_SCHEMA: dict[str, pl.DataType] = dict(zip(("number", "key", "text", "amount"), _TYPES, strict=True))
_BATCHES, _TOUCHED = 100, 1_000
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def main() -> None:
    """Measure each number of rows in turn."""
    print(f"{'rows':>12} {'median ms':>10} {'longest ms':>10} {'peak MiB':>9}")
    for rows in [int(given) for given in sys.argv[1:]] or [10_000, 100_000, 1_000_000, 5_000_000]:
        median_ms, longest_ms, peak_bytes = _measured(rows)
        print(f"{rows:>12,} {median_ms:>10.1f} {longest_ms:>10.1f} {peak_bytes / 2**20:>9.0f}")


def _measured(held: int) -> tuple[float, float, int]:
    state, dice = KeyedRows(_SCHEMA, ["number"]), np.random.default_rng(1)
    state.load(_rows(np.arange(held)))
    gc.collect()
    _RESET.write_text("5")
    before = _kilobytes("VmRSS")
    took_ms = []
    for batch in range(_BATCHES):
        begun_s = time.perf_counter()
        end = held + (batch + 1) * _TOUCHED // 2
        known = dice.integers(0, held, _TOUCHED // 2)
        touched = _rows(np.concatenate([np.unique(known), np.arange(end - _TOUCHED // 2, end)]))
        state.put(touched)
        state.of(touched, ["number"])
        state.of(touched.head(_TOUCHED // 10), ["key"])
        state.remove(_rows(np.unique(dice.integers(0, held, _TOUCHED // 2))))
        state.changes()
        took_ms.append((time.perf_counter() - begun_s) * 1_000)
    return statistics.median(took_ms), max(took_ms), (_kilobytes("VmHWM") - before) * 1_024


def _rows(numbers: np.ndarray) -> pl.DataFrame:
    number = pl.Series("number", numbers, pl.Int64)
    texts = [("k" + (number // 10).cast(pl.String)).alias("key"), ("a text of " + number.cast(pl.String)).alias("text")]
    return pl.DataFrame([number, *texts, pl.Series("amount", numbers * 0.5)])


def _kilobytes(name: str) -> int:
    return next(int(line.split()[1]) for line in _STATUS.read_text().splitlines() if line.startswith(name))


if __name__ == "__main__":
    main()
