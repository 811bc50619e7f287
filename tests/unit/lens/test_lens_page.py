"""The example of docs/lens.md: five orders, four batches, and what is shown of them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Console
from tests.batch_proofs import a_proof

from recount.core.ledger import PartitionProof
from recount.core.registry import declared
from recount.lens.lens_answer import LensAnswer
from recount.lens.looking import looked_at
from recount.lens.modelled import Modelled
from recount.lens.raw_log_reading import Records
from recount.lens.stretch import stretch_of
from recount.lens.told_answer import show
from recount.local.project import Project

ORDERS = {0: [("9:00:10", 10), ("9:06:00", 5), ("9:06:10", 1)], 1: [("9:00:20", 20), ("9:01:00", 30)]}
"""By partition: the time of day, and the amount, of orders from the EU."""
ENDS = [{0: 1, 1: 1}, {0: 2, 1: 1}, {0: 3, 1: 1}, {0: 3, 1: 2}]
"""Up to which offset each batch has read."""


def at_ms(time: str) -> int:
    return int(datetime.strptime(f"2026-11-21 {time}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()) * 1_000


def log() -> Iterator[Records]:
    for partition, orders in ORDERS.items():
        values = [{"order_id": "o", "region": "EU", "amount": amount} for _, amount in orders]
        yield Records(
            partition=partition,
            offsets=range(len(orders)),
            timestamps_ms=[at_ms(time) for time, _ in orders],
            keys=[b"o"] * len(orders),
            values=[json.dumps(value).encode() for value in values],
        )


def answered() -> LensAnswer:
    modelled = Modelled.of(declared().topologies["revenue-by-region"])
    starts, proofs = {0: 0, 1: 0}, []
    for batch, ends in enumerate(ENDS):
        parts = [
            PartitionProof(topic="orders", partition=p, start=starts[p], end=end, records=end - starts[p])
            for p, end in ends.items()
        ]
        proofs.append(a_proof(batch, *parts, batch_timestamp_ms=at_ms("9:06:30")))
        starts = ends
    return looked_at(modelled, stretch_of(modelled, proofs[::-1], None, None), log())


def shown() -> str:
    text = io.StringIO()
    show(answered(), Console(file=text, width=140))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def test_the_page_shows_what_the_command_shows(project: Project) -> None:
    page = (project.root / "docs" / "lens.md").read_text()
    assert f"```\n{shown()}\n```" in page, shown()
