"""``make shop-demo``: two nights of the whole shop with known numbers planted, and what held, stream by stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import polars as pl
from deltalake import DeltaTable
from examples.shop.expected_shop import DAYS, Expected, PlantedDays, Rows, counted, expected
from examples.shop.shop_demo_steps import ShopDemoSteps
from examples.shop.shop_outcome import Check, ShopOutcome, StreamOutcome, number_check
from examples.shop.shop_records import CLOSING, SHARES, Arrival

from recount.advise.grace_judges import lengthened
from recount.declare.groups import Archive
from recount.declare.operators.nodes import KEY, WINDOW_START, WindowedAggregate
from recount.declare.registry import declared
from recount.declare.topology import Topology, Written
from recount.profile.demo_steps import Judged
from recount.profile.embedded import Profile
from recount.runtime.times import milliseconds
from recount.serve.answer import answer
from recount.serve.asked_sink import AskedSink
from recount.serve.question import Question
from recount.tables.places import Tables

TOPOLOGIES = "topologies"
"""All that is declared in this deployment, whatever the environment names."""
KILLED, LIED_ABOUT, BACKFILLED = "orders", "page-view-counts", "revenue-by-region"
"""The group whose driver is killed, and the streams that are lied about and backfilled."""
_LIED_FIELD = "views"
_LONG_MS = milliseconds("1 d")
"""More than any planted record is late, and less than lies between the second day and the last records."""
_ALL = 10_000_000


class ShopDemo:
    """The demo on ``profile``, of which nothing runs yet, with its streams; ``say`` is told each step."""

    def __init__(self, profile: Profile, say: Callable[[str], None]) -> None:
        self._profile, self._say = profile, say
        self._shop = declared(profile.settings.topologies)
        self._tables = Tables(profile.settings.data)
        topics = self._shop.topics
        self._partitions = {name: topics[name].partitions for name in SHARES if name in topics}
        self._days = PlantedDays(partitions=self._partitions, end_ms=time.time_ns() // 1_000_000)

    def run(self) -> ShopOutcome:
        """All of it; what it started is left running."""
        begun_s = time.monotonic()
        with ShopReference(self._shop.topologies, self._log, self._partitions, self._say) as reference:
            return self._run(reference, begun_s)

    def _run(self, reference: ShopReference, begun_s: float) -> ShopOutcome:
        self._profile.start(report=self._say)
        steps = ShopDemoSteps(self._profile, self._shop, self._say)
        self._say(f"Airflow: {steps.airflow.url}  user {steps.airflow.username}, password {steps.airflow.password}")
        steps.start()
        others = [self._first_day(steps)]
        first_night = steps.begin_night(1)
        # what comes next is no part of the night that is at work: it ends with what was recorded before
        steps.produce(self._days, 1)
        steps.read_all(1)
        held_by = {name: held(self._tables, topology) for name, topology in self._shop.topologies.items()}
        others += self._archives()
        judged = [steps.end_night(1, first_night)]
        # it shows what it would change, and then waits for who approves it, while the second night is at work
        backfill = steps.begin_backfill(BACKFILLED)
        lie = self._told_lie()
        judged.append(steps.end_night(2, steps.begin_night(2)))
        others.append(_found_lie(lie, judged[1].get(LIED_ABOUT)))
        lie.take_back()
        self._say(f"the lie in {lie.place} is taken back")
        # beside the repair of the backfill
        audit = steps.begin_audit(LIED_ABOUT)
        backfilled = list(self._backfilled(steps, backfill, reference, judged))
        others += [*_repaired(steps.end_audit(LIED_ABOUT, audit)), *backfilled]
        return ShopOutcome(
            streams=[
                StreamOutcome(
                    stream=name,
                    expected=reference.of(name),
                    held=held_by[name],
                    nights=[night.get(name) for night in judged],
                    is_lied_about=name == LIED_ABOUT,
                )
                for name in self._shop.topologies
            ],
            others=others,
            airflow_url=steps.airflow.url,
            reports=Path(self._profile.settings.reports),
            seconds=time.monotonic() - begun_s,
        )

    def _first_day(self, steps: ShopDemoSteps) -> Check:
        """Let the streams read the first day through a kill; says whether they were launched again."""
        steps.produce(self._days, 0)
        relaunched = steps.relaunched(steps.kill_driver(KILLED))
        steps.read_all(0)
        return relaunched

    @cached_property
    def _log(self) -> list[list[Arrival]]:
        return [self._days.day(number) for number in range(DAYS)]

    def _archives(self) -> Iterator[Check]:
        for archive in self._shop.archives.values():
            planted = sum(one.topic == archive.topic.name for day in self._log for one in day)
            yield number_check(f"records in {archive.name}", planted, archived(self._tables, archive))

    def _told_lie(self) -> ShopLie:
        lie = ShopLie.about(self._tables, self._shop.topologies[LIED_ABOUT], _LIED_FIELD)
        lie.tell()
        self._say(f"a lie in {lie.place}: {lie.field} of {lie.key} is one more than it is")
        return lie

    def _backfilled(
        self, steps: ShopDemoSteps, run: str, reference: ShopReference, judged: Sequence[Mapping[str, Judged]]
    ) -> Iterator[Check]:
        """Approve the backfill; whether it has corrected all that was late in both nights, and nothing else."""
        topology = self._shop.topologies[BACKFILLED]
        [(sink, on_time)] = reference.of(BACKFILLED).rows.items()
        whole: Rows = with_late_records(topology, self._log, self._partitions)[sink]
        due = (whole - on_time).total()
        misses = sum(night[BACKFILLED].misses for night in judged if BACKFILLED in night)
        yield number_check(f"grace misses of {BACKFILLED}", due, misses)
        after = steps.end_backfill(BACKFILLED, run)
        yield number_check("corrections of its backfill", due, corrected(self._tables, topology))
        now = held(self._tables, topology)[sink]
        yield number_check("its rows that are as if nothing were late", whole.total(), (now & whole).total())
        yield number_check("its grace misses after the backfill", 0, after.misses)
        yield Check(name="its audit after the backfill", expected="match", found=after.outcome)


def _found_lie(lie: ShopLie, found: Judged | None) -> Check:
    """Whether the night has named it and nothing else."""
    said = found.document["findings"]["open"] if found else []
    named = ", ".join(f"{one['key']} in {one['place']}" for one in said) or "nothing"
    return Check(name=f"the lie about {lie.stream}", expected=f"{lie.key} in {lie.place}", found=named)


def _repaired(again: Judged) -> Iterator[Check]:
    """Whether the lie is gone."""
    yield Check(name="its audit after the repair", expected="match", found=again.outcome)
    yield number_check("its open findings after the repair", 0, len(again.document["findings"]["open"]))


def with_late_records(
    topology: Topology, days: Iterable[Sequence[Arrival]], partitions: Mapping[str, int]
) -> Mapping[str, Rows]:
    """The rows of each sink of ``topology`` had its windows waited for every record."""
    windowed = [node for node in topology.nodes() if isinstance(node, WindowedAggregate)]
    return expected(lengthened(topology, windowed, _LONG_MS), days, partitions).rows


class ShopReference:
    """The interpreter at work on ``days``, one of ``topologies`` after the other, in a thread.

    A context manager: it begins on entry and tells ``say`` when it is done; on exit it gives up what it has not begun.
    """

    def __init__(
        self,
        topologies: Mapping[str, Topology],
        days: Sequence[Sequence[Arrival]],
        partitions: Mapping[str, int],
        say: Callable[[str], None],
    ) -> None:
        self._topologies, self._days, self._partitions, self._say = topologies, days, partitions, say
        self._thread = ThreadPoolExecutor(1, "reference interpreter")
        self._found: dict[str, Future[Expected]] = {}

    def __enter__(self) -> Self:
        for name, topology in self._topologies.items():
            self._found[name] = self._thread.submit(expected, topology, self._days, self._partitions)
        self._thread.submit(self._tell)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def of(self, stream: str) -> Expected:
        """What the interpreter has said of ``stream``, or raised; waits for it."""
        return self._found[stream].result()

    def _tell(self) -> None:
        if not any(found.exception() for found in self._found.values()):
            self._say(f"the reference interpreter has said what {len(self._found)} streams must hold")


@dataclass(frozen=True, kw_only=True)
class ShopLie:
    """That the count ``field`` of the result of ``key`` in the window from ``start_ms`` on is one more than it is."""

    stream: str
    table: str
    path: str
    field: str
    key_field: str
    key: str
    start_ms: int

    @classmethod
    def about(cls, tables: Tables, topology: Topology, field: str) -> Self:
        """A lie about the newest result of the only sink of ``topology``."""
        [written] = topology.written
        rows = [row for row in rows_of(tables, topology, written) if CLOSING not in row[written.key]]
        newest: Any = max(rows, key=lambda row: (row[WINDOW_START], row[written.key]))
        return cls(
            stream=topology.name,
            table=written.table,
            path=tables.output(written.table),
            field=field,
            key_field=written.key,
            key=newest[written.key],
            start_ms=newest[WINDOW_START],
        )

    @property
    def place(self) -> str:
        """Where an audit must see it."""
        return f"table outputs/{self.table}"

    def tell(self) -> None:
        """Write it to the table of results, as somebody who may write there could."""
        self._add("+ 1")

    def take_back(self) -> None:
        """Repair the row."""
        self._add("- 1")

    def _add(self, change: str) -> None:
        where = f'"{self.key_field}" = \'{self.key}\' AND "{WINDOW_START}" = {self.start_ms}'
        done = DeltaTable(self.path).update(updates={self.field: f'"{self.field}" {change}'}, predicate=where)
        assert done["num_updated_rows"] == 1, where


def held(tables: Tables, topology: Topology) -> Mapping[str, Rows]:
    """The rows of each sink, to be compared with those expected."""
    found = {}
    for written in topology.written:
        names = [name for name in written.fields if name != KEY]
        rows = rows_of(tables, topology, written)
        key = AskedSink(topology, written).key
        found[written.topic.name] = counted((row[key], {name: row[name] for name in names}) for row in rows)
    return found


def rows_of(tables: Tables, topology: Topology, written: Written) -> Sequence[Mapping[str, Any]]:
    """All rows of a sink; none before the first."""
    question = Question(sink=AskedSink(topology, written), limit=_ALL)
    return answer(tables, question, time.time_ns() // 1_000_000).rows


def archived(tables: Tables, archive: Archive) -> int:
    """How many records an archive has."""
    return _height(tables.archive(archive.topic.name))


def corrected(tables: Tables, topology: Topology) -> int:
    """How many rows backfills have corrected in the sinks of ``topology``."""
    return sum(_height(tables.corrections(written.table)) for written in topology.written)


def _height(path: str) -> int:
    return int(pl.scan_delta(path).select(pl.len()).collect().item())
