"""What ``recount topics`` says of each topic, before and after the changes; the broker is in tests/integration."""

from __future__ import annotations

from recount.declare.topics import Topic
from recount.kafka.topic_drift import Action, TopicChange
from recount.kafka.topics_on_cluster import table_of
from recount.runtime.errors import RecountError, Terminal, Transient

NO_LEADER = Transient("no leader")
MISSING = Terminal("topic bookings does not exist")


def change(name: str, action: Action, problem: RecountError | None = None) -> TopicChange:
    return TopicChange(topic=Topic(name=name, key="id", owned=True), action=action, problem=problem)


CHANGES = [
    change("orders", "create"),
    change("rides", "repair"),
    change("zones", "in step"),
    change("taxis", "create"),
    change("bookings", "missing", MISSING),
]


def told(problems: dict[str, RecountError] | None = None) -> dict[str, tuple[str, str]]:
    """Action and reason by topic."""
    columns = [list(column.cells) for column in table_of(CHANGES, problems).columns]
    return {str(row[0]): (str(row[4]), str(row[5])) for row in zip(*columns, strict=True)}


def test_a_plan_says_what_is_to_be_done() -> None:
    actions = {name: action for name, (action, _) in told().items()}
    assert actions == {change.topic.name: change.action for change in CHANGES}


def test_after_the_changes_it_says_what_was_done() -> None:
    shown = told({"taxis": NO_LEADER, "bookings": MISSING})
    assert shown == {
        "orders": ("created", ""),
        "rides": ("repaired", ""),
        "zones": ("in step", ""),
        "taxis": ("create", "no leader"),
        "bookings": ("missing", "topic bookings does not exist"),
    }
