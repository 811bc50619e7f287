"""A night of the shop by one command, ``recount audit --all --end T``, and the certificates that it issues."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from recount.audit.certificate import load
from recount.core.errors import Terminal
from recount.local.daemon import Daemon, end_of
from recount.local.demo_outcome import Judged
from recount.local.home import Home

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
        arguments = ("audit", *which, "--end", _in_words(through))
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


def _in_words(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
