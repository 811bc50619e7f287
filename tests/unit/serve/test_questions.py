"""Texts become a question, or an error that says what was expected; nothing else."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recount.declare.expressions import col
from recount.declare.registry import declared
from recount.declare.schema import LONG, STRING, RecordSchema, list_of
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.runtime.errors import Terminal
from recount.runtime.times import NoTime, instant_ms
from recount.serve.asked_sink import AskedSink, BadQuestion
from recount.serve.question import MOST_ROWS, Question

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


def test_a_key_that_is_declared_as_a_string_is_any_text() -> None:
    assert of(REVENUE, key=" tea/\x00 ").key == " tea/\x00 "


def test_half_a_character_as_a_shell_can_give_it_is_no_key() -> None:
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


@pytest.mark.parametrize(
    ("text", "is_good"), [("1", True), (str(MOST_ROWS), True), ("0", False), ("-1", False), ("", False)]
)
def test_the_number_of_rows_is_bounded(text: str, is_good: bool) -> None:
    if is_good:
        assert of(limit=text).limit == int(text)
        return
    with pytest.raises(BadQuestion):
        of(limit=text)


def test_windows_are_asked_of_windowed_rows_only() -> None:
    assert of(REVENUE, window="0").window_ms == 0
    with pytest.raises(BadQuestion, match="have no windows"):
        of(window="0")


def test_rows_are_counted_by_a_field_that_is_no_list() -> None:
    assert of(count_by="number").count_by == "number"
    for name in ("tags", "nothing", "__key"):
        with pytest.raises(BadQuestion):
            of(count_by=name)


@given(
    sink=st.sampled_from([SINK, REVENUE]),
    texts=st.fixed_dictionaries(
        {}, optional={name: st.text(max_size=40) for name in ("key", "window", "at", "limit", "count_by")}
    ),
)
def test_any_texts_are_a_question_or_an_error_that_a_human_can_mend(sink: AskedSink, texts: dict[str, str]) -> None:
    with suppress(Terminal):
        assert of(sink, **texts).sink is sink
