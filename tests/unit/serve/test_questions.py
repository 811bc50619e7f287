"""Texts, a caller's or those of ``recount query``, become a question, or an error that says what was expected."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from click.testing import Result
from tests.unit.serve.test_answers import ask, order
from tests.unit.serve.written_streams import WrittenStream, as_arrivals, recorded_ms
from typer.testing import CliRunner

from recount.declare.expressions import col
from recount.declare.registry import declared
from recount.declare.schema import LONG, STRING, RecordSchema, list_of
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.runtime.times import NoTime, instant_ms
from recount.serve.asked_sink import AskedSink, BadQuestion, asked_sink
from recount.serve.question import MOST_ROWS, Question, query

NUMBERED = Topic(name="numbered", key="id", value=RecordSchema.of(number=LONG, tags=list_of(STRING)))
BY_NUMBER = Topology(
    name="by-number",
    sinks=[stream(NUMBERED).select_key(number=col("number")).to(Topic(name="by-number", key="number"))],
)
SINK = AskedSink(BY_NUMBER, BY_NUMBER.written[0])
REVENUE = AskedSink(declared().topologies["product-revenue"], declared().topologies["product-revenue"].written[0])
NOW_MS = 1_000_000


def of(sink: AskedSink = SINK, **texts: str) -> Question:
    return Question.of(sink, now_ms=NOW_MS, **texts)


@pytest.mark.parametrize("text", ["0", "-1", str(2**63 - 1), str(-(2**63))])
def test_a_key_that_is_declared_as_a_long_is_a_whole_number(text: str) -> None:
    assert of(key=text).key == int(text)


@pytest.mark.parametrize("text", ["", "1.0", "1_000", " 1", "+1", "٣", "one", "9" * 5_000, str(2**63), "1\n"])
def test_anything_else_is_no_such_key(text: str) -> None:
    with pytest.raises(BadQuestion) as refused:
        of(key=text)
    assert refused.value.expected == "a LONG: number is a whole number of 64 bits"


def test_a_key_that_is_declared_as_a_string_is_any_text_but_no_half_a_character_as_a_shell_can_give_it() -> None:
    assert of(REVENUE, key=" tea/\x00 ").key == " tea/\x00 "
    with pytest.raises(BadQuestion):
        of(REVENUE, key="\udcff")


@pytest.mark.parametrize("text", ["1970-01-01", "19700101", "1970-01-01T00:00:00Z", "1970-01-01T01:00+01:00", "0"])
def test_a_time_is_in_iso_8601_or_in_milliseconds(text: str) -> None:
    assert instant_ms(text) == 0


@pytest.mark.parametrize("text", ["", "now", "1970-13-01", "1e3", "-", "²", "1970-01-01T00:00:00Zulu", "9" * 30])
def test_anything_else_is_no_time(text: str) -> None:
    with pytest.raises(NoTime):
        instant_ms(text)


def test_a_question_is_about_the_past() -> None:
    assert of(at=str(NOW_MS)).at_ms == NOW_MS
    with pytest.raises(BadQuestion, match="that time has not come"):
        of(at=str(NOW_MS + 1))


@pytest.mark.parametrize("text", ["0", "-1", "", str(MOST_ROWS + 1)])
def test_the_number_of_rows_is_bounded(text: str) -> None:
    assert [of(limit=str(rows)).limit for rows in (1, MOST_ROWS)] == [1, MOST_ROWS]
    with pytest.raises(BadQuestion):
        of(limit=text)


def test_rows_are_counted_by_a_field_that_is_no_list() -> None:
    assert of(count_by="number").count_by == "number"
    for name in ("tags", "nothing", "__key"):
        with pytest.raises(BadQuestion):
            of(count_by=name)


LONG_NAME = "a-long-name-" * 40


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two products, one of them with a long name that a terminal would obey."""
    root = tmp_path_factory.mktemp("data")
    orders = [
        ("o1", 1, {"order_id": "o1", "product": "tea", "amount": "1.50"}),
        ("o2", 3_600, {"order_id": "o2", "product": "\x1b[31m[red]" + LONG_NAME, "amount": "2"}),
    ]
    WrittenStream(declared().topologies["product-revenue"], root).write([as_arrivals("orders", *orders)])
    return root


@pytest.fixture
def typed(data: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """``recount query`` with these arguments."""
    for name, value in replace(settings, data=str(data)).to_environment().items():
        monkeypatch.setenv(name, value)
    app = typer.Typer()
    app.command()(query)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_rows_are_shown_as_a_table_with_the_batch_that_they_are_from_or_as_json(typed: Callable[..., Result]) -> None:
    ended = typed("product-revenue", "--key", "tea")
    assert ended.exit_code == 0, ended.exception
    lines = ended.output.splitlines()
    [row] = [line for line in lines if "tea" in line]
    assert "1970-01-01 01:00:00" in row and "1.50" in row
    assert lines[-3] == "rows: 1"
    assert lines[-2].startswith("as of batch 0/0, recorded 2023-11-14 22:13:20 UTC")
    assert lines[-1] == "never audited"
    assert json.loads(typed("product-revenue", "--key", "tea", "--json").output)["total"] == 1
    shown = typed("product-revenue").output
    assert ("\x1b" in shown, rf"'\x1b[31m[red]{LONG_NAME}'" in shown) == (False, True), "whole, and nothing to obey"


def test_that_nothing_is_known_yet_is_an_answer(typed: Callable[..., Result]) -> None:
    ended = typed("product-revenue", "--at", str(recorded_ms(0) - 1))
    assert (ended.exit_code, ended.output) == (0, "not ready: product-revenue had not committed a batch by then\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["high-value-orders"], "one of high-value-orders, vip-orders"),
        (["archive-orders"], "product-revenue"),
        (["product-revenue", "--limit", "all"], "1 to 10000"),
        (["product-revenue", "--at", "yesterday"], "a time in ISO 8601"),
    ],
)
def test_a_question_that_means_nothing_is_an_error_that_says_what_does(
    typed: Callable[..., Result], arguments: list[str], expected: str
) -> None:
    ended = typed(*arguments)
    assert isinstance(ended.exception, Terminal)
    assert expected in ended.exception.expected


DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "asking.md").read_text()
QUERIES = re.findall(r"^recount query (.*?)(?:  .*)?$", PAGE + (DOCS / "tables.md").read_text(), re.MULTILINE)
QUERIES += re.findall(r"`recount query (.*?)`", (DOCS / "systems.md").read_text())
TEXTS = ("key", "window", "at", "limit", "count_by")
LATER_MS = 1_900_000_000_000


@pytest.mark.parametrize("arguments", QUERIES)
def test_each_command_is_a_question_that_can_be_asked(arguments: str) -> None:
    app = typer.Typer()
    app.command()(query)
    given = typer.main.get_command(app).make_context("query", shlex.split(arguments)).params
    sink = asked_sink(declared().topology(given["stream"]), given["sink"])
    texts = {name: given[name] for name in TEXTS if given[name] is not None}
    assert Question.of(sink, now_ms=LATER_MS, **texts).sink is sink


def test_the_answer_on_the_page_has_the_fields_of_an_answer(tmp_path: Path) -> None:
    audited = WrittenStream(declared().topologies["product-revenue"], tmp_path)
    audited.write([as_arrivals("orders", order("tea", 1))])
    audited.audit(0)
    [shown] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    told, real = json.loads(shown), json.loads(ask(audited, key="tea").to_json())
    for document, other in ((told, real), *((told[name], real[name]) for name in ("as_of", "audit"))):
        assert list(document) == list(other)
    assert list(told["rows"][0]) == list(real["rows"][0])
