"""docs/asking.md: its commands, and those of systems.md, are questions; its answer and list of metrics are whole."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import typer
from tests.statuses import a_status
from tests.unit.serve.test_answers import ask, order
from tests.unit.serve.written_streams import WrittenStream, as_arrivals

from recount.declare.registry import declared
from recount.kafka.status import StreamStatus
from recount.serve.asked_sink import asked_sink
from recount.serve.broker_reading import BrokerReading
from recount.serve.exposition import Exposition
from recount.serve.question import Question, query

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "asking.md").read_text()
QUERIES = re.findall(r"^recount query (.*?)(?:  .*)?$", PAGE + (DOCS / "tables.md").read_text(), re.MULTILINE)
QUERIES += re.findall(r"`recount query (.*?)`", (DOCS / "systems.md").read_text())
TEXTS = ("key", "window", "at", "limit", "count_by")
LATER_MS = 1_900_000_000_000


@pytest.fixture
def audited(tmp_path: Path) -> WrittenStream:
    stream = WrittenStream(declared().topologies["product-revenue"], tmp_path)
    stream.write([as_arrivals("orders", order("tea", 1))])
    stream.audit(0)
    return stream


@pytest.mark.parametrize("arguments", QUERIES)
def test_each_command_is_a_question_that_can_be_asked(arguments: str) -> None:
    typed = typer.Typer()
    typed.command()(query)
    context = typer.main.get_command(typed).make_context("query", shlex.split(arguments))
    given = context.params
    sink = asked_sink(declared().topology(given["stream"]), given["sink"])
    texts = {name: given[name] for name in TEXTS if given[name] is not None}
    assert Question.of(sink, now_ms=LATER_MS, **texts).sink is sink


def test_the_answer_on_the_page_has_the_fields_of_an_answer(audited: WrittenStream) -> None:
    [shown] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    told, real = json.loads(shown), json.loads(ask(audited, key="tea").to_json())
    for document, other in ((told, real), *((told[name], real[name]) for name in ("as_of", "audit"))):
        assert list(document) == list(other)
    assert list(told["rows"][0]) == list(real["rows"][0])


def test_the_page_lists_every_metric(audited: WrittenStream) -> None:
    status: StreamStatus = a_status(stream="product-revenue")
    exposition = Exposition(
        tables=audited.tables,
        streams=[audited.topology],
        ask=lambda: BrokerReading(statuses={"product-revenue": status}),
    )
    families = re.findall(r"^# TYPE (\S+) ", exposition.rendered().decode(), re.MULTILINE)
    page = (DOCS / "metrics.md").read_text()
    of_server = page.partition("## From recount serve")[2].partition("\n## ")[0]
    assert sorted(set(re.findall(r"`(recount_[a-z_]+)`", of_server))) == sorted(families)
