"""Cases of sessions whose gap is longer than an hour."""

from __future__ import annotations

from tests.field.case import CLOSING, Case, Result, ending, record, source

from recount.declare.aggregates import count
from recount.declare.flow import stream
from recount.declare.schema import LONG
from recount.declare.windows import session

HOUR_MS = 3_600_000


CASES: tuple[Case, ...] = (
    Case(
        # k departs at 10:00; at 13:30 its departure of 07:00 comes, and one more than reach, gap and grace behind
        name="F11 a late record within the gap of an open session",
        topology=ending(
            "f11-session",
            stream(source("f11-session", n=LONG))
            .windowed_by(session("3 h", grace="1 h"))
            .aggregate(n=count())
            .emit_final(),
        ),
        log=[
            [record("f11-session", at_ms=10 * HOUR_MS, n=1), record("f11-session", at_ms=13 * HOUR_MS, key="z", n=1)],
            [
                record("f11-session", at_ms=27 * HOUR_MS // 2, key="y", n=1),
                record("f11-session", at_ms=7 * HOUR_MS, n=1),
                record("f11-session", at_ms=13 * HOUR_MS // 2 - 1, n=1),
            ],
            [record("f11-session", at_ms=40 * HOUR_MS, key=CLOSING, n=1)],
        ],
        results={
            "f11-session": [
                Result(key="k", window=(7 * HOUR_MS, 10 * HOUR_MS), value={"n": 2}),
                Result(key="z", window=(13 * HOUR_MS, 13 * HOUR_MS), value={"n": 1}),
                Result(key="y", window=(27 * HOUR_MS // 2, 27 * HOUR_MS // 2), value={"n": 1}),
            ]
        },
    ),
)
