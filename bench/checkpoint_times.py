"""When a Structured Streaming query planned its first batch and committed its last, read from its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path


def processing_span_ms(checkpoint: Path, records: int, *, to_the_end: bool = False) -> tuple[int, int]:
    """From the planning of batch 0 to the commit of the batch that ends at record ``records``; epoch milliseconds.

    ``to_the_end``: to the commit of the last batch, which may be one without records: Spark lets go there what the
    records before it have made due. Spark writes ``offsets/<batch>`` before it runs a batch and ``commits/<batch>``
    when all of it is done.
    """
    batches = sorted(int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal())
    last = next(batch for batch in batches if _end(checkpoint / "offsets" / str(batch)) >= records)
    last = batches[-1] if to_the_end else last
    return _written_ms(checkpoint / "offsets" / "0"), _written_ms(checkpoint / "commits" / str(last))


def _end(offsets: Path) -> int:
    """The sum of the end offsets: a line of the file for each source, after its version and the batch's metadata."""
    sources: list[dict[str, dict[str, int]]] = [json.loads(line) for line in offsets.read_text().splitlines()[2:]]
    return sum(offset for topics in sources for partitions in topics.values() for offset in partitions.values())


def _written_ms(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000
