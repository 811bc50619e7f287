"""Cases of Python functions, processors and timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from tests.field.case import CLOSING, IDLE_AFTER, Case, Result, Sent, ending, record, source

from recount.declare.aggregates import fold, reduce
from recount.declare.flow import RecordStream, Table, stream
from recount.declare.operators.processing import MOST_FIRINGS, KeyState
from recount.declare.schema import LONG, STRING, list_of
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import tumbling

Row = dict[str, Any]
Rows = list[Row]


def reminding(wait_ms: Callable[[int], Any]) -> Callable[[Mapping[str, Any], KeyState], Rows]:
    """A processor that asks for a timer ``wait_ms`` of its number after each record."""

    def on_record(row: Mapping[str, Any], state: KeyState) -> Rows:
        state.schedule(state.timestamp_ms + wait_ms(row["n"]))
        return [{"said": f"record {row['n']}"}]

    return on_record


def reminded(at_ms: int, state: KeyState) -> Rows:
    """A timer says its time, without that at which a log on a broker begins."""
    return [{"said": f"timer {at_ms % 100_000}"}]


def renewed(at_ms: int, state: KeyState) -> Rows:
    """A timer that sets the next one, for ever."""
    state.schedule(at_ms + 1_000)
    return []


def nearly_at_the_limit(row: Mapping[str, Any], state: KeyState) -> Rows:
    """Sets a timer, of which three more can go off."""
    state.schedule(state.timestamp_ms)
    state.fired = MOST_FIRINGS - 3
    return []


def remembering(what: Any) -> Callable[[Mapping[str, Any], KeyState], Rows]:
    """A processor that remembers ``what``."""

    def on_record(row: Mapping[str, Any], state: KeyState) -> Rows:
        state.remembered["what"] = what
        return [{"said": "remembered"}]

    return on_record


def own_row(row: Row) -> Row:
    """Changes the row that it was given."""
    row["n"] = -row["n"]
    row["w"].append("mine")
    return {"n": row["n"], "size": len(row["w"])}


def read_row(row: Mapping[str, Any]) -> Row:
    """Reads the same row on another branch."""
    return {"n": row["n"], "size": len(row["w"])}


def own_list(row: Mapping[str, Any], state: KeyState) -> Rows:
    """Returns the very list that it goes on changing."""
    state.remembered.setdefault("seen", []).append(row["n"])
    return [{"n": row["n"], "seen": state.remembered["seen"]}]


def emptied(row: Row, state: KeyState) -> Rows:
    """Takes its row apart, and raises for 2 after that."""
    n = row.pop("n")
    state.remembered["sum"] = state.remembered.get("sum", 0) + n
    row["w"].clear()
    if n == 2:
        raise ValueError("two")
    return [{"n": n, "sum": state.remembered["sum"]}]


def separate(row: Mapping[str, Any], state: KeyState) -> Rows:
    """Remembers one list under two names, and changes one."""
    state.remembered.setdefault("one", [])
    state.remembered.setdefault("other", state.remembered["one"])
    state.remembered["one"].append(row["n"])
    return [{"n": row["n"], "sizes": [len(state.remembered["one"]), len(state.remembered["other"])]}]


ALWAYS_THE_SAME: list[str] = []
"""What a fold begins with, and then changes."""


def extended(one: list[str], other: list[str] | None) -> list[str]:
    """Adds to the very list that it was given."""
    one.extend(other or [])
    return one


ONE = stream(source("f9-one", n=LONG, w=list_of(STRING)))
FLOWS: Mapping[str, RecordStream | Table] = {
    "f9-own-row": ONE.map(own_row, n=LONG, size=LONG),
    "f9-read-row": ONE.map(read_row, n=LONG, size=LONG),
    "f9-own-list": ONE.process(own_list, n=LONG, seen=list_of(LONG)),
    "f9-emptied": ONE.process(emptied, n=LONG, sum=LONG),
    "f9-separate": ONE.process(separate, n=LONG, sizes=list_of(LONG)),
    "f9-folded": ONE.aggregate(
        n=reduce("n", lambda one, other: one + other),
        w=fold("w", initial=lambda: ALWAYS_THE_SAME, adder=extended, merger=extended, returns=list_of(STRING)),
    ),
    "f9-reduced": ONE.windowed_by(tumbling("10 s", grace="0 s")).aggregate(w=reduce("w", extended)).emit_final(),
}


def several(name: str, flows: Mapping[str, RecordStream | Table]) -> Topology:
    """The stream ``name``, each of whose ``flows`` is written to the topic and table of its name."""
    sinks = [flow.to(Topic(name=f"{one}-out", key="id", partitions=1, retention_ms=-1)) for one, flow in flows.items()]
    return Topology(name=name, sinks=sinks, idle_after=IDLE_AFTER)


def numbered(name: str, *numbers: int, first_ms: int = 1_000) -> list[Sent]:
    """A record of the topic ``name``-in each second."""
    return [record(name, at_ms=first_ms + 1_000 * at, n=n) for at, n in enumerate(numbers)]


def wordy(at_ms: int, n: int, key: str = "k") -> Sent:
    """A record with a list."""
    return record("f9-one", at_ms=at_ms, key=key, n=n, w=["a"])


def timed(name: str, on_record: Any, on_timer: Any) -> Topology:
    """A processor with timers."""
    return ending(name, stream(source(name, n=LONG)).process(on_record, on_timer=on_timer, said=STRING))


def stopping(name: str, what: Any) -> Case:
    """A processor that remembers ``what`` is no plain JSON."""
    return Case(
        name=f"F9 remembered {what!r}",
        topology=ending(name, stream(source(name, n=LONG)).process(remembering(what), said=STRING)),
        log=[numbered(name, 1)],
        stops="what is no plain JSON",
        on_broker=False,
    )


CASES: tuple[Case, ...] = (
    Case(
        name="F6 timers that are no time",
        topology=timed(
            "f6-times",
            reminding([0, 0.5, float("inf"), float("nan"), None, True, -(10**15), 2**63].__getitem__),
            reminded,
        ),
        log=[
            numbered("f6-times", 0, 1, 2, 3),
            numbered("f6-times", 4, 5, 6, 7, first_ms=5_000),
            numbered("f6-times", 0, first_ms=60_000),
            [record("f6-times", at_ms=90_000, key=CLOSING, n=0)],
        ],
        results={
            "f6-times": [
                Result(key="k", value={"said": said})
                for said in ("record 0", "timer 1000", "record 0", "timer 60000", "record 5", "timer 6001")
            ]
        },
        dead_letters={
            f"f6-times-in-0@{offset}": f"function-raised: {error} in process each __key to said"
            for offset, error in {1: "TypeError", 2: "TypeError", 3: "TypeError", 4: "TypeError"}.items()
        }
        | {f"f6-times-in-0@{offset}": "function-raised: ValueError in process each __key to said" for offset in (6, 7)},
    ),
    Case(
        name="F6 a timer that always sets the next one",
        topology=timed("f6-renewed", nearly_at_the_limit, renewed),
        log=[numbered("f6-renewed", 1), [record("f6-renewed", at_ms=90_000, key=CLOSING, n=1)]],
        stops="more than 1,000,000 timers of one key went off",
        on_broker=False,
    ),
    stopping("f9-number", {7: 1}),
    stopping("f9-tuple", (1, 2)),
    stopping("f9-decimal", Decimal("1.50")),
    stopping("f9-nan", float("nan")),
    stopping("f9-set", {1}),
    Case(
        name="F9 functions that change what they are given",
        topology=several("f9-one", FLOWS),
        log=[
            [wordy(1_000, 1), wordy(2_000, 2), wordy(2_000, 7, key="other")],
            [wordy(3_000, 3), wordy(4_000, 2), wordy(5_000, 4)],
            [wordy(90_000, 1, key=CLOSING)],
        ],
        results={
            "f9-own-row": [
                Result(key=key, value={"n": -n, "size": 2})
                for key, n in (("k", 1), ("k", 2), ("other", 7), ("k", 3), ("k", 2), ("k", 4))
            ],
            "f9-read-row": [
                Result(key=key, value={"n": n, "size": 1})
                for key, n in (("k", 1), ("k", 2), ("other", 7), ("k", 3), ("k", 2), ("k", 4))
            ],
            "f9-own-list": [
                Result(key=key, value={"seen": seen})
                for key, seen in (*(("k", [1, 2, 3, 2, 4][:many]) for many in (1, 2, 3, 4, 5)), ("other", [7]))
            ],
            "f9-emptied": [
                Result(key=key, value={"n": n, "sum": total})
                for key, n, total in (("k", 1, 1), ("k", 3, 4), ("k", 4, 8), ("other", 7, 7))
            ],
            "f9-separate": [
                Result(key=key, value={"n": n, "sizes": sizes})
                for key, n, sizes in (
                    ("k", 1, [1, 1]),
                    ("k", 2, [2, 1]),
                    ("k", 3, [3, 1]),
                    ("k", 2, [4, 1]),
                    ("k", 4, [5, 1]),
                    ("other", 7, [1, 1]),
                )
            ],
            "f9-folded": [
                Result(key="k", value={"n": 12, "w": ["a"] * 5}),
                Result(key="other", value={"n": 7, "w": ["a"]}),
            ],
            "f9-reduced": [
                Result(key="k", window=(0, 10_000), value={"w": ["a"] * 5}),
                Result(key="other", window=(0, 10_000), value={"w": ["a"]}),
            ],
        },
        dead_letters={
            f"f9-one-in-0@{offset}": "function-raised: ValueError in process each __key to n, sum" for offset in (1, 4)
        },
    ),
)
