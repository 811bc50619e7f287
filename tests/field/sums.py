"""Cases of sums and averages, and of the texts of small decimals."""

from __future__ import annotations

from decimal import Decimal

from tests.field.case import CLOSING, Case, Result, Sent, ending, record, source

from recount.declare.aggregates import average, count, first, largest, last, smallest, total
from recount.declare.flow import RecordStream, stream
from recount.declare.schema import DOUBLE, LONG, LONG_MAX, FieldType, decimal
from recount.declare.windows import session, tumbling

NINES, NEGATIVE = Decimal("9" * 38), Decimal("-" + "9" * 38)
BIG, MANY = 1.7e308, Decimal(9 * 10**19)
EXACT = 1.5 * 2.0**1023
"""Sums and means of a few of these are not rounded."""
WINDOW = (0, 10_000)
ALL_PLACES = Decimal(f"{MANY}.{'0' * 18}")


def in_windows(name: str, **fields: FieldType) -> RecordStream:
    """Windows of the records of ``name``, of which the last lets all leave."""
    return stream(source(name, **fields)).windowed_by(tumbling("10 s", grace="0 s"))  # type: ignore[return-value]


def log(name: str, field: str, *values: object) -> list[list[Sent]]:
    """A record of each of ``values`` in a batch of its own, and one that closes their window."""
    sent = [record(name, at_ms=1_000 + place, **{field: value}) for place, value in enumerate(values)]
    return [*([one] for one in sent), [record(name, at_ms=90_000, key=CLOSING, **{field: None})]]


CASES: tuple[Case, ...] = (
    Case(
        name="F3 average of decimals whose sum has more than 38 digits",
        topology=ending(
            "f3", in_windows("f3", q=decimal(38, 18)).aggregate(n=count(), q=average("q"), m=largest("q")).emit_final()
        ),
        log=log("f3", "q", MANY, MANY, MANY),
        results={"f3": [Result(key="k", window=WINDOW, value={"n": 3, "q": 9e19, "m": ALL_PLACES})]},
    ),
    Case(
        name="F3 average of DOUBLE and LONG near their ends",
        topology=ending(
            "f3-ends", in_windows("f3-ends", x=DOUBLE, n=LONG).aggregate(x=average("x"), n=average("n")).emit_final()
        ),
        log=[
            [record("f3-ends", at_ms=at, x=EXACT, n=LONG_MAX) for at in (1_000, 2_000)],
            [record("f3-ends", at_ms=3_000, x=EXACT, n=LONG_MAX)],
            [record("f3-ends", at_ms=90_000, key=CLOSING, x=0.0, n=0)],
        ],
        results={"f3-ends": [Result(key="k", window=WINDOW, value={"x": EXACT, "n": 2.0**63})]},
        on_broker=False,
    ),
    Case(
        name="F5 small decimals",
        topology=ending(
            "f5-small",
            in_windows("f5-small", e=decimal(15, 8))
            .aggregate(s=total("e"), a=first("e"), z=last("e"), m=smallest("e"))
            .emit_final(),
        ),
        log=log("f5-small", "e", Decimal("0.00000003"), Decimal("0.00000001"), Decimal("0.00000000")),
        results={
            "f5-small": [
                Result(
                    key="k",
                    window=WINDOW,
                    value={
                        "s": Decimal("0.00000004"),
                        "a": Decimal("0.00000003"),
                        "z": Decimal("0E-8"),
                        "m": Decimal("0E-8"),
                    },
                )
            ]
        },
    ),
    Case(
        name="F7 sum of DOUBLE that is infinite only on the way",
        topology=ending("f7", in_windows("f7", d=DOUBLE).aggregate(d=total("d")).emit_final()),
        log=log("f7", "d", BIG, BIG, -BIG),
        results={"f7": [Result(key="k", window=WINDOW, value={"d": BIG})]},
    ),
    Case(
        name="F7 sum of DOUBLE that is infinite",
        topology=ending("f7-stops", in_windows("f7-stops", d=DOUBLE).aggregate(d=total("d")).emit_final()),
        log=log("f7-stops", "d", BIG, BIG),
        stops="the sum d is too large",
    ),
    Case(
        name="F10 sum of decimals that has 39 digits only on the way",
        topology=ending("f10", in_windows("f10", m=decimal(38, 0)).aggregate(m=total("m")).emit_final()),
        log=log("f10", "m", NINES, NINES, NEGATIVE),
        results={"f10": [Result(key="k", window=WINDOW, value={"m": NINES})]},
    ),
    Case(
        name="F10 the same in sessions",
        topology=ending(
            "f10-sessions",
            stream(source("f10-sessions", m=decimal(38, 0)))
            .windowed_by(session("10 s", grace="0 s"))
            .aggregate(m=total("m"), a=average("m"))
            .emit_final(),
        ),
        log=log("f10-sessions", "m", NINES, NINES, NEGATIVE),
        results={"f10-sessions": [Result(key="k", window=(1_000, 1_002), value={"m": NINES})]},
    ),
    Case(
        name="F10 sum of decimals that has 39 digits",
        topology=ending("f10-stops", in_windows("f10-stops", m=decimal(38, 0)).aggregate(m=total("m")).emit_final()),
        log=log("f10-stops", "m", NINES, Decimal(1)),
        stops="100000000000000000000000000000000000000 for",
    ),
)
