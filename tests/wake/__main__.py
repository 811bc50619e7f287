"""``make wake``: streams fall silent and are woken, again and again; none may be ended, and every lag is true."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from subprocess import SubprocessError
from typing import Annotated

import httpx
import typer
from bench.report import Place
from tests.wake.compared import Look, Measured, Pages, looked, page_of
from tests.wake.flow import Flow

from recount.airflow.health import health_of
from recount.declare.limits import Health
from recount.declare.registry import declared
from recount.kafka.connection import Connection
from recount.kafka.status import StatusBoard, StreamStatus
from recount.kafka.topic_drift import all_topics
from recount.kafka.topics_on_cluster import apply, plan
from recount.profile.dag_runs import DagRuns
from recount.profile.embedded import Profile
from recount.profile.home import Home
from recount.runtime.errors import Transient

MODULE = "tests.wake.streams"
_START_LIMIT_S = 1_500.0
_LIMIT_MS = Health().progress_age_ms


@dataclass
class Watch:
    """What is seen of the drivers, by looking at their statuses every two seconds."""

    board: StatusBoard
    streams: list[str]
    epochs: dict[str, int] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    unhealthy: list[str] = field(default_factory=list)
    by_the_former_rule: set[str] = field(default_factory=set)

    def look(self, round_: int, at_s: float) -> None:
        """Note which streams have another lease, are not well, or would not have been by the rule of 5fe5348."""
        now_ms = time.time_ns() // 1_000_000
        for name, status in said(self.board).items():
            if name not in self.streams:
                continue
            if status.lease_epoch != self.epochs.setdefault(name, status.lease_epoch) or status.is_over:
                self.ended.add(f"{name} in round {round_}")
            health = health_of(status, Health(), now_ms)
            if health.state == "failed":
                self.unhealthy.append(f"{at_s:.0f} s: {name}: {'; '.join(health.problems)}")
            if stood_by_the_former_rule(status, now_ms):
                self.by_the_former_rule.add(f"{name} in round {round_}")


def said(board: StatusBoard) -> Mapping[str, StreamStatus]:
    """The last statuses; none where a busy broker does not answer."""
    try:
        return board.latest()
    except Transient:
        return {}


def stood_by_the_former_rule(status: StreamStatus, now_ms: int) -> bool:
    """Progress counted from the last batch that was begun or committed, while there was lag."""
    progress_ms = max(status.last_progress_ms or status.started_at_ms, status.batch_begun_ms or 0)
    return bool(status.lag) and now_ms - progress_ms > _LIMIT_MS + status.trigger_interval_ms


def rounds(minutes: float, awake_s: float, silent_s: float) -> Iterator[tuple[int, bool, float]]:
    """Phases until the time is over: the number of the round, whether records come, for how many seconds."""
    left_s, number = 60 * minutes, 0
    while left_s > 0:
        for awake, length_s in ((True, awake_s), (False, silent_s)):
            yield number, awake, min(length_s, left_s)
            left_s -= length_s
            if left_s <= 0:
                return
        number += 1


def main(
    minutes: Annotated[float, typer.Option(min=1, help="How long, once every stream runs.")] = 30,
    rate: Annotated[float, typer.Option(min=1, help="Records a second, over all topics.")] = 300,
    silent: Annotated[float, typer.Option(help="Seconds without a record; more than the limit of progress.")] = 245,
    awake: Annotated[float, typer.Option(help="Seconds with records.")] = 150,
    every: Annotated[float, typer.Option(help="Seconds between two looks at the lag.")] = 30,
    publish: Annotated[bool, typer.Option("--publish", help="Write the page to docs/operations.")] = False,
) -> None:
    """Wake twenty streams that were silent, and compare their lag with what the broker's own tool says."""
    place = Place.new()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(place.project.root), *filter(None, [os.environ.get("PYTHONPATH")])])
    declarations = declared(MODULE)
    home = Home(path=place.folder)
    streams = sorted(declarations.streams)
    looks: list[Look] = []
    with Profile(home=home, project=place.project, topologies=MODULE) as profile:
        assert profile.airflow is not None
        connection = Connection.of(profile.settings)
        admin = connection.admin()
        apply(admin, plan(admin, all_topics(declarations, connection.own), "embedded"))
        began_s = time.monotonic()
        DagRuns(profile.airflow.api).unpause_streams(streams)
        with closing(StatusBoard(connection)) as board:
            watch = Watch(board, streams)
            flow = Flow(connection.producer({"linger.ms": 20}), rate)
            with flow.running():
                flow.wake()
                _until_all_run(board, streams)
                place.tell(f"{len(streams)} streams run after {time.monotonic() - began_s:.0f} s")
                pages = Pages(profile.airflow.url, home)
                zero_s = look_due_s = time.monotonic()
                number = woken = 0
                for number, is_awake, length_s in rounds(minutes, awake, silent):
                    (flow.wake if is_awake else flow.silence)()
                    woken += len(streams) if is_awake and number else 0
                    place.tell(f"round {number}: {'records come' if is_awake else 'silence'} for {length_s:.0f} s")
                    end_s = time.monotonic() + length_s
                    while time.monotonic() < end_s:
                        watch.look(number, time.monotonic() - zero_s)
                        if time.monotonic() >= look_due_s:
                            at_s = time.monotonic() - zero_s
                            shown = streams[len(looks) % len(streams)]
                            look_due_s += every
                            try:
                                look = looked(pages, place.project, connection, streams, shown, at_s)
                            except (httpx.TransportError, SubprocessError) as error:
                                place.tell(f"{at_s:5.0f} s: no answer: {error}")
                                continue
                            looks.append(look)
                            place.tell(
                                f"{at_s:5.0f} s: largest lag {look.largest:,}, {look.exact} streams exactly equal, "
                                f"{len(look.differing)} beyond one poll {look.differing[:3] or ''}"
                            )
                        time.sleep(2)
            measured = Measured(
                minutes=(time.monotonic() - zero_s) / 60,
                rate=rate,
                silent_s=silent,
                sent=flow.sent,
                streams=len(streams),
                wake_ups=woken,
                ended=sorted(watch.ended),
                unhealthy=watch.unhealthy,
                by_the_former_rule=sorted(watch.by_the_former_rule),
                looks=looks,
            )
    page = page_of(measured)
    (place.folder / "wake.json").write_text(json.dumps(asdict(measured), indent=1))
    place.console.print(page)
    if publish:
        (Path(place.project.root) / "docs" / "operations" / "wake.md").write_text(page)
    raise SystemExit(0 if measured.holds else 1)


def _until_all_run(board: StatusBoard, streams: list[str]) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while True:
        statuses = said(board)
        running = [name for name in streams if name in statuses and statuses[name].batch is not None]
        if len(running) == len(streams):
            return
        if time.monotonic() > deadline:
            raise Transient("not all streams run", given=running, remedy="read the logs of the drivers")
        time.sleep(2)


if __name__ == "__main__":
    typer.run(main)
