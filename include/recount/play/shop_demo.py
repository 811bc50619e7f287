"""``recount demo --all``: two nights of the whole shop with known numbers planted, and what held, stream by stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from recount.core.registry import declared
from recount.core.tables import Tables
from recount.local.demo_outcome import Judged
from recount.local.profile import Profile
from recount.play.arrival import Arrival
from recount.play.expected_backfill import with_late_records
from recount.play.expected_shop import Rows
from recount.play.planted_days import DAYS, PlantedDays
from recount.play.shop_demo_steps import ShopDemoSteps
from recount.play.shop_held import archived, corrected, held
from recount.play.shop_kinds import SHARES
from recount.play.shop_lie import ShopLie
from recount.play.shop_outcome import Check, ShopOutcome, StreamOutcome, number_check
from recount.play.shop_reference import ShopReference

TOPOLOGIES = "topologies"
"""All that is declared in this deployment, whatever the environment names."""
KILLED, LIED_ABOUT, BACKFILLED = "orders", "page-view-counts", "revenue-by-region"
"""The group whose driver is killed, and the streams that are lied about and backfilled."""
_LIED_FIELD = "views"


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
