"""The lag on Recount's pages beside what the broker's own tool says before and after."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape

import httpx
from tests.consumer_groups import Described, described

from recount.airflow.links import PAGES
from recount.kafka.connection import Connection
from recount.profile.dag_runs import USERNAME
from recount.profile.home import Home, Project
from recount.runtime.times import quantity, roughly

_ROW = re.compile(r'<tr class="[^"]*">\s*<th scope="row"><a href="[^"]*/streams/([a-z0-9-]+)">.*?</tr>', re.DOTALL)
_BEHIND = re.compile(r'data-label="records behind".*?</span>\s*([0-9,]+)', re.DOTALL)
_PARTITION = re.compile(
    r'<th scope="row">([a-z0-9-]+)-(\d+)</th>((?:<td class="n">[^<]*(?:<span[^<]*</span>)?</td>){3})'
)
_NOT_KNOWN = "How far streams are behind is not known now"
_POLL_S = 2.0
"""What a page says may be as old as that."""
Parts = Mapping[tuple[str, int], Described]


@dataclass(frozen=True, kw_only=True)
class Look:
    """One comparison: how many streams had which largest lag, and each figure that lies outside of what it can be.

    ``streams`` is 0 where the pages said that they do not know the lag now: what they show then is an older one.
    """

    at_s: float
    streams: int
    largest: int
    exact: int
    differing: list[str] = field(default_factory=list)


class Pages:
    """The pages of an Airflow at ``url``, as its user sees them."""

    def __init__(self, url: str, home: Home) -> None:
        self._url, self._home = url, home
        self._client = httpx.Client(timeout=120)
        self._token = ""

    def text(self, path: str) -> str:
        """The page at ``path``."""
        for _ in range(2):
            headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            answer = self._client.get(f"{self._url}{PAGES}{path}", headers=headers)
            if answer.status_code not in (302, 303, 307, 401, 403):
                answer.raise_for_status()
                return unescape(answer.text)
            password = json.loads(self._home.airflow_passwords.read_text())[USERNAME]
            login = self._client.post(f"{self._url}/auth/token", json={"username": USERNAME, "password": password})
            login.raise_for_status()
            self._token = login.json()["access_token"]
        raise RuntimeError(f"{path} answers {answer.status_code}")

    def behind(self) -> dict[str, int] | None:
        """Of each stream on the overview how many records it is behind; None where it says that it does not know."""
        found, text = {}, self.text("/")
        if _NOT_KNOWN in text:
            return None
        for row in _ROW.finditer(text):
            behind = _BEHIND.search(row[0])
            if behind:
                found[row[1]] = int(behind[1].replace(",", ""))
        return found

    def partitions(self, stream: str) -> dict[tuple[str, int], tuple[int, int, int]]:
        """Of each partition on the page of ``stream``: read up to, end, behind."""
        found = {}
        for topic, number, cells in _PARTITION.findall(self.text(f"/streams/{stream}")):
            numbers = [int(one.replace(",", "")) for one in re.findall(r'class="n">([0-9,]+)', cells)]
            if len(numbers) == 3:
                found[topic, int(number)] = (numbers[0], numbers[1], numbers[2])
        return found


def looked(pages: Pages, project: Project, connection: Connection, streams: list[str], shown: str, at_s: float) -> Look:
    """The tool, a poll later the pages, then the tool again: offsets only grow, so each figure has to lie between.

    ``shown`` is the stream whose page is looked at as well, partition by partition.
    """
    before = described(project, connection.bootstrap_servers)
    time.sleep(_POLL_S)
    behind, parts = pages.behind(), pages.partitions(shown)
    after = described(project, connection.bootstrap_servers)
    if behind is None:
        return Look(at_s=at_s, streams=0, largest=0, exact=0)
    differing, exact, largest = [], 0, 0
    for stream in streams:
        group = connection.group(stream)
        least, most = bounds(before.get(group, {}), after.get(group, {}))
        lag = behind.get(stream)
        if lag is None or not least <= lag <= most:
            differing.append(f"{stream}: the page says {lag}, the tool {least} to {most}")
        exact += least == most == lag
        largest = max(largest, lag or 0)
    group = connection.group(shown)
    for place, one in before.get(group, {}).items():
        later, said = after[group][place], parts.get(place)
        if said is None or not (
            one.committed <= said[0] <= later.committed
            and one.end <= said[1] <= later.end
            and said[2] == said[1] - said[0]
        ):
            differing.append(f"{shown} {place}: the page says {said}, the tool {one}, then {later}")
    return Look(at_s=at_s, streams=len(streams), largest=largest, exact=exact, differing=differing)


def bounds(before: Parts, after: Parts) -> tuple[int, int]:
    """The least and the largest lag of a stream that can be seen between two calls of the tool.

    >>> one, two = Described(committed=3, end=10, lag=7), Described(committed=8, end=15, lag=7)
    >>> bounds({("a", 0): one}, {("a", 0): two})
    (2, 12)
    """
    least = sum(max(0, one.end - after[place].committed) for place, one in before.items())
    most = sum(max(0, after[place].end - one.committed) for place, one in before.items())
    return least, most


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a run of ``minutes`` has shown; ``wake_ups`` count a stream each time that it is woken."""

    minutes: float
    rate: float
    silent_s: float
    sent: int
    streams: int
    wake_ups: int
    ended: list[str]
    unhealthy: list[str]
    by_the_former_rule: list[str]
    looks: list[Look]

    @property
    def holds(self) -> bool:
        """Whether no driver was ended or called unhealthy, and each lag was true."""
        differing = any(one.differing for one in self.looks)
        return any(one.streams for one in self.looks) and not (self.ended or self.unhealthy or differing)


def page_of(measured: Measured) -> str:
    """The page in Markdown."""
    looks = measured.looks
    figures = sum(one.streams for one in looks)
    exact = sum(one.exact for one in looks)
    unknown = sum(not one.streams for one in looks)
    wrong = [said for one in looks for said in one.differing]
    lines = [
        "# Streams that are silent and woken",
        "",
        'Generated by `make wake ARGS="--publish"`; do not edit.',
        "",
        f"{measured.streams} streams in two drivers, launched and watched by Airflow, get {measured.rate:g} records a",
        f"second in turns with {roughly(1_000 * measured.silent_s)} of silence: longer than `progress_age_ms`, 3 min.",
        "The statuses are looked at every two seconds. At each comparison `kafka-consumer-groups.sh --describe` runs",
        "before and after a look at the overview and a page of a stream: committed offsets and ends only grow, so each",
        "figure of a page has to lie between those of the tool; while nothing moves, it has to be the same.",
        "",
        "| | |",
        "| --- | --- |",
        f"| time | {roughly(60_000 * measured.minutes)}, {measured.sent:,} records |",
        f"| streams woken | {measured.wake_ups} |",
        f"| drivers or streams ended or started again | {len(measured.ended)} |",
        f"| looks in which a stream was unhealthy | {len(measured.unhealthy)} |",
        f"| of the woken, unhealthy at a look by the rule of commit 5fe5348 | {len(measured.by_the_former_rule)} |",
        f"| comparisons of a stream's lag | {figures}, of which {exact} while nothing moved: exactly equal |",
        f"| comparisons at which the page said that it does not know the lag now | {unknown} |",
        f"| lags beyond one poll | {len(wrong)} |",
        f"| the largest lag | {quantity(max((one.largest for one in looks), default=0), 'record')} |",
        "",
    ]
    for title, found in (("Ended", measured.ended), ("Unhealthy", measured.unhealthy), ("Beyond one poll", wrong)):
        if found:
            lines += [f"## {title}", "", *(f"- {one}" for one in found[:20]), ""]
    return "\n".join(lines)
