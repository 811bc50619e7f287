"""Item 1.4: which sinks and fields can be added to a stream at work, and the reason for every other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.fingerprint import Declared
from recount.declare.flow import RecordStream, Table
from recount.declare.plain_values import PlainValue
from recount.declare.schema import LONG, STRING, FieldType, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import session, sliding, tumbling
from recount.lifecycle.upgrade import Extension
from recount.tables.decisions import Enacted

CLICKS = Topic(name="clicks", key="user", value=RecordSchema.of(n=LONG))
OTHERS = Topic(name="others", key="user", value=RecordSchema.of(m=LONG))
USERS = Topic(name="users", key="user", value=RecordSchema.of(tier=STRING))
Flows = Mapping[str, RecordStream | Table]


def flows(*, merged: bool = False) -> Flows:
    """What the sinks that there are read, by the names of their topics; all of it can be read by further ones."""
    clicks, users = stream(CLICKS), table(USERS, versioned=True)
    found: dict[str, RecordStream | Table] = {
        "clicks": clicks,
        "looked-up": clicks.left_join_table(users),
        "waiting": clicks.left_join_table(users, grace="1 s"),
        "first": clicks.deduplicate("n", horizon="1 s"),
        "users": users,
        "pairs": clicks.join(stream(OTHERS), before="1 s", after="1 s", grace="1 s"),
        "alone": clicks.left_join(stream(OTHERS), before="1 s", after="1 s", grace="1 s"),
        "windows": clicks.windowed_by(tumbling("1 h", grace="1 min")).aggregate(n=count()).emit_final(),
        "sessions": clicks.windowed_by(session("1 h", grace="1 min")).aggregate(n=count()).emit_each_batch(),
        "sliding": clicks.windowed_by(sliding("1 h", grace="1 min")).aggregate(n=count()).emit_final(),
        "groups": users.group_by(tier=col("tier")).aggregate(n=count()),
        "held": clicks.windowed_by(tumbling("2 h", grace="1 min")).aggregate(n=total("n")).emit_after("1 min"),
    }
    return {**found, "merged": clicks.merge(clicks.filter(col("n") > 3))} if merged else found


def added(made: Flows, further: Mapping[str, RecordStream | Table]) -> Extension | None:
    """``further`` flows beside those that there are."""
    declared = Topology(name="clicks", sinks=[flow.to(Topic(name=f"{n}-out", key="user")) for n, flow in made.items()])
    # in front, so that places and orders would change if those that are added counted
    sinks = [*(flow.to(Topic(name=f"{n}-new", key="user")) for n, flow in further.items()), *declared.sinks]
    return Extension.of(replace(declared, sinks=sinks), enacted(declared))


def enacted(topology: Topology) -> Enacted:
    declared = Declared.of(topology)
    return Enacted(
        sequence=0, kind="first", version=1, fingerprint=declared.fingerprint, document=declared.document, recorded_ms=0
    )


def objections(made: Flows, further: Mapping[str, RecordStream | Table]) -> list[str]:
    found = added(made, further)
    assert found is not None
    return list(found.objections())


@pytest.mark.parametrize("name", ["clicks", "looked-up", "waiting", "first", "users", "pairs", "windows", "sessions"])
def test_a_sink_can_be_added_where_the_log_says_what_left_after_a_batch(name: str) -> None:
    made = flows()
    assert objections(made, {name: made[name]}) == []


@pytest.mark.parametrize(
    "further",
    [
        lambda made: made["clicks"].filter(col("n") > 1).with_fields(m=col("n")).select_key(k=col("m")),
        lambda made: made["windows"].filter(col("n") > 1).select("n"),
        lambda _made: stream(CLICKS).map(lambda row: row, n=LONG),
        lambda made: made["sessions"].select("window_start", "window_end", "n"),
    ],
)
def test_operators_without_state_may_stand_before_it(further: Callable[[Flows], RecordStream]) -> None:
    made = flows()
    assert objections(made, {"further": further(made)}) == []


@pytest.mark.parametrize(
    ("further", "reason"),
    [
        (lambda made: made["alone"], "does not follow from the log"),
        (lambda made: made["sliding"], "does not follow from the log"),
        (lambda made: made["groups"], "does not follow from the log"),
        (lambda made: made["held"], "does not follow from the log"),
        (lambda made: made["sessions"].filter(col("n") > 1), "does not follow from the log"),
        (lambda made: made["sessions"].select("n"), "cannot be audited"),
        (lambda _made: stream(Topic(name="new", key="k", value=RecordSchema.of(n=LONG))), "has a past of its own"),
        (lambda made: made["clicks"].deduplicate("n", horizon="2 s"), "without what the stream has read before"),
        (
            lambda made: made["clicks"].windowed_by(tumbling("1 h", grace="0 s")).aggregate(n=count()).emit_final(),
            "without what the stream has read before",
        ),
    ],
)
def test_every_other_sink_is_refused_with_its_reason(further: Callable[[Flows], RecordStream], reason: str) -> None:
    made = flows()
    assert reason in " ".join(objections(made, {"further": further(made)}))


def test_a_sink_that_changes_the_order_in_which_ways_meet_is_refused() -> None:
    made = flows(merged=True)
    assert any("meet again in a merge" in one for one in objections(made, {"clicks": made["clicks"]}))


def test_a_single_aggregation_with_a_further_sink_is_refused() -> None:
    made = {"windows": flows()["windows"]}
    [objection] = objections(made, made)
    assert "go on from the batch of a change" in objection


def test_nothing_is_added_where_more_has_changed() -> None:
    made = flows()
    assert added(made, {}) is None
    changed = Topology(name="clicks", sinks=[made["windows"].to(Topic(name="out", key="user"))])
    assert Extension.of(changed, enacted(replace(changed, idle_after="1 s"))) is None
    further = replace(changed, sinks=[*changed.sinks, made["clicks"].to(Topic(name="new", key="user"))])
    assert Extension.of(further, enacted(changed)) is not None
    assert Extension.of(further, enacted(replace(changed, idle_after="1 s"))) is None


def clicking(*required: str, **fields: FieldType) -> Topology:
    """Sessions of clicks, and the clicks with a user's tier, which pass the ``fields`` of a click on."""
    clicks = stream(replace(CLICKS, value=RecordSchema.of(n=LONG, required=required, **fields)))
    counted = clicks.windowed_by(session("1 h", grace="1 min")).aggregate(n=count()).emit_final()
    known = clicks.left_join_table(table(USERS, versioned=True), grace="1 s")
    sinks = [counted.to(Topic(name="counted", key="user")), known.to(Topic(name="known", key="user"), table="known")]
    return Topology(name="clicks", sinks=sinks)


def test_a_field_can_be_added_to_what_is_read_and_comes_to_the_tables_of_sinks_that_pass_it_on() -> None:
    found = Extension.of(clicking(m=LONG, w=STRING), enacted(clicking(w=STRING)))
    assert found is not None
    assert (dict(found.fields), found.sinks) == ({"clicks": {"m"}}, ())
    assert found.further_columns == {"known": {"m": LONG}}
    assert list(found.objections()) == []


def test_a_topic_with_a_plain_value_is_no_topic_with_a_further_field() -> None:
    def shouted(value: RecordSchema | PlainValue, out: PlainValue | None = None) -> Topology:
        topic = Topic(name="texts", key="id", value=value)
        return Topology(name="texts", sinks=[stream(topic).select("text").to(Topic(name="out", key="id", value=out))])

    json, plain = RecordSchema.of(text=STRING), PlainValue.of(text=STRING)
    for new, old in (
        (shouted(plain), shouted(json)),
        (shouted(json), shouted(plain)),
        (shouted(json, plain), shouted(json)),
        (shouted(RecordSchema.of(text=STRING, m=LONG)), shouted(plain)),
        (passed_on(PlainValue.of(m=LONG)), passed_on(PlainValue.of(n=LONG))),
        (passed_on(PlainValue.of(m=LONG)), passed_on(RecordSchema.of(n=LONG))),
    ):
        assert Extension.of(new, enacted(old)) is None


def passed_on(value: RecordSchema | PlainValue) -> Topology:
    clicks = stream(replace(CLICKS, value=value))
    return Topology(name="clicks", sinks=[clicks.to(Topic(name="out", key="user"))])


def test_a_field_that_is_required_or_that_a_function_would_see_is_refused() -> None:
    found = Extension.of(clicking("m", m=LONG), enacted(clicking()))
    assert found is not None
    assert any("were taken before" in one for one in found.objections())

    def mapped(**fields: FieldType) -> Topology:
        clicks = stream(replace(CLICKS, value=RecordSchema.of(n=LONG, **fields)))
        sinks = [flow.to(Topic(name=name, key="user")) for name, flow in {"raw": clicks, "made": made(clicks)}.items()]
        return Topology(name="clicks", sinks=sinks)

    def made(clicks: RecordStream) -> RecordStream:
        return clicks.map(_same, n=LONG)

    found = Extension.of(mapped(m=LONG), enacted(mapped()))
    assert found is not None
    assert any("its Python function" in one for one in found.objections())


def _same(row: Mapping[str, int]) -> Mapping[str, int]:
    return {"n": row["n"]}


def test_a_field_that_an_operator_that_there_was_reads_is_another_change() -> None:
    def summed(name: str, **fields: FieldType) -> Topology:
        clicks = stream(replace(CLICKS, value=RecordSchema.of(n=LONG, **fields)))
        flow = clicks.windowed_by(session("1 h", grace="1 min")).aggregate(n=total(name)).emit_final()
        return Topology(name="clicks", sinks=[flow.to(Topic(name="out", key="user"))])

    assert Extension.of(summed("m", m=LONG), enacted(summed("n"))) is None
