"""``recount lens`` as it is typed, what it refuses, and the example of docs/lens.md: five orders, four batches."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from tests.batch_proofs import a_proof
from tests.unit.advise.lens.lens_logs import CLICKS, OUT, in_log
from typer.testing import CliRunner

from recount.advise.lens_answer import Figures, looked_at
from recount.advise.lens_command import lens, told
from recount.advise.lens_log import Modelled, NoModel, span_of
from recount.declare.aggregates import count
from recount.declare.registry import declared
from recount.declare.topology import Topology, stream
from recount.declare.windows import session
from recount.profile.home import Project
from recount.runtime.console import print_whole
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.ledger import PartitionProof


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = dict.fromkeys(("data", "checkpoints", "reports", "logs", "run", "jars"), str(tmp_path))
    here = Settings(profile="embedded", bootstrap_servers="nowhere:1", **places)
    for name, value in here.to_environment().items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["archive-orders"], "an archive is no topology"),
        (["section-visits"], "the lens has no model of section-visits"),
        (["revenue-by-region", "--start", "yesterday"], "no time"),
        (["revenue-by-region"], "revenue-by-region has read no record then"),
        (["revenue-by-region", "--start", "1500", "--end", "1499"], "revenue-by-region has read no record then"),
        (["revenue-by-region", "--start", "1500", "--end", "1501"], "revenue-by-region has read no record then"),
    ],
)
def test_what_cannot_be_looked_at_is_refused_before_anything_is_read(arguments: list[str], what: str) -> None:
    app = typer.Typer()
    app.command()(lens)
    ended = CliRunner().invoke(app, arguments)
    assert isinstance(ended.exception, Terminal)
    assert ended.exception.what == what


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("views-sliding-30-s", "sliding 30 s"),
        ("views-last-100", "emit each record: no record is late for it in any engine"),
        ("click-sessions", "at most 1 d, grace 0 ms: neither of the others has a longest duration"),
        ("orders-deduplicated", "first of each order_id by offset within 1 h"),
        ("high-value-orders", "0 windowed aggregations"),
    ],
)
def test_the_operator_that_has_no_model_is_named(name: str, operator: str) -> None:
    with pytest.raises(NoModel) as refused:
        Modelled.of(declared().topologies[name])
    assert operator in str(refused.value.given)


def test_an_action_is_no_step() -> None:
    """Nothing is done to the world when a log is looked at."""
    seen: list[object] = []
    flow = stream(CLICKS).peek(seen.append).windowed_by(session("1 s", grace="0 s")).aggregate(n=count()).emit_final()
    assert Modelled.of(Topology(name="peeking", sinks=[flow.to(OUT)])).steps == ()


ORDERS = {0: [("9:00:10", 10), ("9:06:00", 5), ("9:06:10", 1)], 1: [("9:00:20", 20), ("9:01:00", 30)]}
"""By partition: the time of day, and the amount, of orders from the EU."""
ENDS = [{0: 1, 1: 1}, {0: 2, 1: 1}, {0: 3, 1: 1}, {0: 3, 1: 2}]
"""Up to which offset each batch has read."""


def at_ms(time: str) -> int:
    return int(datetime.strptime(f"2026-11-21 {time}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()) * 1_000


def log() -> Iterator[pa.RecordBatch]:
    for partition, orders in ORDERS.items():
        values = [{"order_id": "o", "region": "EU", "amount": amount} for _, amount in orders]
        places = zip(orders, values, strict=True)
        yield in_log(
            "orders", partition, *((at, at_ms(time), b"o", value) for at, ((time, _), value) in enumerate(places))
        )


def answered() -> Figures:
    modelled = Modelled.of(declared().topologies["revenue-by-region"])
    starts, proofs = {0: 0, 1: 0}, []
    for batch, ends in enumerate(ENDS):
        parts = [
            PartitionProof(topic="orders", partition=p, start=starts[p], end=end, records=end - starts[p])
            for p, end in ends.items()
        ]
        proofs.append(a_proof(batch, *parts, batch_timestamp_ms=at_ms("9:06:30")))
        starts = ends
    return looked_at(modelled, span_of(modelled, proofs[::-1], None, None), log()).said


def test_the_page_shows_what_the_command_shows(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    page = (project.root / "docs" / "lens.md").read_text()
    print_whole(*told(answered()))
    shown = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert f"```\n{shown}\n```" in page, shown
