"""What the demo of the whole shop found, stream by stream, and whether all of it held.

A night of the shop by one command, ``recount audit --all --end T``, and the certificates that it issues.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from examples.shop.expected_shop import Expected, Rows
from rich.console import Group, RenderableType
from rich.text import Text

from recount.audit.certificate.certificate_files import load
from recount.profile.daemon import Daemon, end_of
from recount.profile.demo_steps import Judged
from recount.profile.home import Home
from recount.runtime.errors import Terminal

_COUNTED = ("records", "late", "dead_lettered")

NOT_JUDGED = "not judged"

_FAILED = "DID NOT HOLD"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One number or word that was expected, and what was found."""

    name: str
    expected: str
    found: str

    @property
    def holds(self) -> bool:
        """Whether it is what was expected."""
        return self.expected == self.found


def number_check(name: str, expected: int, found: int) -> Check:
    """A check of a number."""
    return Check(name=name, expected=f"{expected:,}", found=f"{found:,}")


@dataclass(frozen=True, kw_only=True)
class StreamOutcome:
    """What the interpreter expects of a stream beside what its sinks ``hold``, and the audit of each night.

    ``is_lied_about``: its second night must be a violation.
    """

    stream: str
    expected: Expected
    held: Mapping[str, Rows]
    nights: Sequence[Judged | None]
    is_lied_about: bool

    @property
    def checks(self) -> Sequence[Check]:
        """Records, late ones and bad ones by the certificates of all nights, rows of all sinks, and the verdicts."""
        return [*self._counts(), self._rows(), *self._verdicts()]

    @property
    def holds(self) -> bool:
        """Whether all of it held."""
        return all(check.holds for check in self.checks)

    def _counts(self) -> Iterator[Check]:
        """Of each night; a number that moved from one night to the other does not hold."""
        for name in _COUNTED:
            expected = [sum(day.values()) if name == "records" else day.get(name, 0) for day in self.expected.fates]
            found = [night.document["totals"][name] if night else 0 for night in self.nights]
            yield Check(name=name, expected=_in_words(expected), found=_in_words(found))

    def _rows(self) -> Check:
        """A row that is not as expected is one that is missing, and may be one that should not be there."""
        differing = {
            sink: sum((rows - self.held[sink]).values()) + sum((self.held[sink] - rows).values())
            for sink, rows in self.expected.rows.items()
        }
        count = sum(sum(rows.values()) for rows in self.expected.rows.values())
        wrong = ", ".join(f"{many:,} rows of {sink} differ" for sink, many in differing.items() if many)
        empty = ", ".join(f"{sink} has no rows" for sink, rows in self.expected.rows.items() if not rows)
        return Check(name="rows", expected=f"{count:,}", found=wrong or empty or f"{count:,}")

    def _verdicts(self) -> Iterator[Check]:
        for number, night in enumerate(self.nights, start=1):
            is_wrong = self.is_lied_about and number == len(self.nights)
            expected = "violation" if is_wrong else "match"
            yield Check(name=f"night {number}", expected=expected, found=night.outcome if night else NOT_JUDGED)


@dataclass(frozen=True, kw_only=True)
class ShopOutcome:
    """``others`` are the checks that concern one stream or none: archives, the crash, the lie, the backfill."""

    streams: Sequence[StreamOutcome]
    others: Sequence[Check]
    airflow_url: str
    reports: Path
    seconds: float

    @property
    def held(self) -> bool:
        """Whether every check held."""
        return all(stream.holds for stream in self.streams) and all(check.holds for check in self.others)

    def summary(self) -> RenderableType:
        """A line for each stream, one for each other check, and where to look."""
        streams = [[one.stream, *map(_cell, one.checks), _held(holds=one.holds)] for one in self.streams]
        others = [[one.name, one.expected, one.found, _held(holds=one.holds)] for one in self.others]
        wrong = sum(not stream.holds for stream in self.streams) + sum(not check.holds for check in self.others)
        places = {
            "Airflow": self.airflow_url,
            "certificates": self.reports / "certificates",
            "took": f"{self.seconds:.0f} s",
        }
        return Group(
            "\nWhat held, stream by stream",
            *_aligned([["", "records", "late", "bad", "rows", "night 1", "night 2", ""], *streams]),
            "\nWhat else held",
            *_aligned([["", "expected", "found", ""], *others]),
            "",
            *_aligned([[name, str(place)] for name, place in places.items()]),
            "",
            f"{wrong} did not hold" if wrong else "all of it held",
        )


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[Text]:
    """The columns of ``rows`` below each other, as lines: a table would cut names and paths to fit a terminal."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        text = Text(line, no_wrap=True, overflow="ignore")
        text.highlight_words([_FAILED], "red")
        yield text


def _in_words(nights: Sequence[int]) -> str:
    return " + ".join(f"{count:,}" for count in nights)


def _cell(check: Check) -> str:
    return check.found if check.holds else f"{check.found}, not {check.expected}"


def _held(*, holds: bool) -> str:
    return "held" if holds else _FAILED


RECOUNT = Path(sys.executable).with_name("recount")

"""The command, beside the Python that runs this."""


@dataclass(frozen=True, kw_only=True)
class ShopNight:
    """``process`` audits what was recorded before ``through``; ``known`` are the certificates that were there before.

    It belongs to ``home``: whoever ends that ends it, with the JVM that it has started. Nobody else may audit
    meanwhile, or the certificates of both would be taken for those of the night.
    """

    home: Home
    through: datetime
    environment: Mapping[str, str]
    recount: Path
    arguments: tuple[str, ...]
    process: Daemon
    known: frozenset[Path]

    @classmethod
    def begin(
        cls,
        home: Home,
        name: str,
        through: datetime,
        environment: Mapping[str, str],
        *,
        streams: Collection[str] = (),
        recount: Path = RECOUNT,
    ) -> Self:
        """Start the command for ``streams``, or for all where none is named; its log has the ``name``.

        ``environment`` is all that it gets.
        """
        which = [word for stream in streams for word in ("--stream", stream)] or ["--all"]
        arguments = ("audit", *which, "--end", _shortened(through))
        return cls(
            home=home,
            through=through,
            environment=environment,
            recount=recount,
            arguments=arguments,
            known=frozenset(_issued(home)),
            process=Daemon.start(home, name, [recount, *arguments], environment),
        )

    @property
    def command(self) -> str:
        """As a user types it."""
        return " ".join(("recount", *self.arguments))

    def end(self, streams: Collection[str], limit_s: float, say: Callable[[str], None]) -> Mapping[str, Judged]:
        """Wait for it; what it has judged of ``streams``. Why it could not judge the others is in its log.

        Those are audited once more, as Airflow would do: a stream can be between its two commits. Raises ``Terminal``
        where it has judged nothing, or takes longer than ``limit_s``; then it is ended.
        """
        judged = dict(self._judged(limit_s))
        if missing := sorted(set(streams) - judged.keys()):
            say(f"{self.process.name}: not judged: {', '.join(missing)}; once more (why: {self.process.log})")
            again = self.begin(
                self.home,
                f"{self.process.name}-again",
                self.through,
                self.environment,
                streams=missing,
                recount=self.recount,
            )
            with suppress(Terminal):
                judged |= again._judged(limit_s)
        return judged

    def _judged(self, limit_s: float) -> Mapping[str, Judged]:
        code = self.process.exit_code(self.home, limit_s)
        found = {path.parent.name: Judged(certificate=path) for path in _issued(self.home) if path not in self.known}
        if not found:
            raise Terminal(
                "the audit of a night has judged no stream",
                given=f"exit code {code}: {end_of(Path(self.process.log))}",
                expected="a certificate of each stream",
                remedy=f"read {self.process.log}",
            )
        return found


def newest_of(home: Home, stream: str) -> Judged | None:
    """The newest certificate of ``stream``; None before the first."""
    folder = home.reports / "certificates" / stream
    newest = max(folder.glob("*.json"), key=lambda path: int(load(path)["sequence"]), default=None)
    return None if newest is None else Judged(certificate=newest)


def _issued(home: Home) -> list[Path]:
    return list(home.reports.glob("certificates/*/*.json"))


def _shortened(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
