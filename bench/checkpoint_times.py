"""When a Structured Streaming query planned its first batch and committed its last, read from its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path


def processing_span_ms(checkpoint: Path, records: int) -> tuple[int, int]:
    """From the planning of batch 0 to the commit of the batch that ends at record ``records``; epoch milliseconds.

    Spark writes ``offsets/<batch>`` before it runs a batch and ``commits/<batch>`` when all of it is done.
    """
    batches = sorted(int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal())
    last = next(batch for batch in batches if _end(checkpoint / "offsets" / str(batch)) >= records)
    return _written_ms(checkpoint / "offsets" / "0"), _written_ms(checkpoint / "commits" / str(last))


def _end(offsets: Path) -> int:
    """The sum of the end offsets: the third line of the file, after its version and the batch's metadata."""
    partitions: dict[str, dict[str, int]] = json.loads(offsets.read_text().splitlines()[2])
    return sum(offset for topic in partitions.values() for offset in topic.values())


def _written_ms(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000
