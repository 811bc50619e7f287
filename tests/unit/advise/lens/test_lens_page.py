"""The example of docs/lens.md: five orders, four batches, and what is shown of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.batch_proofs import a_proof

from recount.advise.lens_answer import LensAnswer, looked_at
from recount.advise.lens_command import told
from recount.advise.lens_log import Records
from recount.advise.lens_model import Modelled, span_of
from recount.declare.registry import declared
from recount.profile.project import Project
from recount.runtime.console import print_whole
from recount.tables.ledger import PartitionProof

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
    return looked_at(modelled, span_of(modelled, proofs[::-1], None, None), log())


def test_the_page_shows_what_the_command_shows(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    page = (project.root / "docs" / "lens.md").read_text()
    print_whole(*told(answered()))
    shown = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert f"```\n{shown}\n```" in page, shown


def test_a_long_key_and_field_are_whole_where_output_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    key, field = "region-" * 60, "amount_of_" * 60
    answer = answered()
    differing = next(one for one in answer.engines if one.results)
    row = {field: 1}
    result = replace(differing.results[0], key=key, ours=row, theirs_at_most_dropped=[row])
    record = replace(differing.records[0], key=key)
    print_whole(*told(replace(answer, engines=[replace(differing, results=[result], records=[record])])))
    lines = capsys.readouterr().out.splitlines()
    assert [line.count(key) for line in lines if key in line] == [1, 1]
    assert [line.count(f"{field} 1") for line in lines if field in line] == [2]
