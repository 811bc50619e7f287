"""What the demo found, and whether all of it held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from recount.audit.certificate import load, verify_file
from recount.audit.expectation_outcomes import expectations_page_of
from recount.audit.row_changes import sides_in_words
from recount.core.certificate import Certificate, Unverified
from recount.core.instants import told_window
from recount.local.dag_runs import DagRun
from recount.local.order_flow import OrderFlow


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The certificate of an audit, and what it says."""

    certificate: Path

    @cached_property
    def document(self) -> Certificate:
        """The certificate's content."""
        return load(self.certificate)

    @property
    def outcome(self) -> str:
        """``match`` or ``violation``."""
        return str(self.document["outcome"])

    @property
    def violations(self) -> int:
        """Differences between the output and the log."""
        return int(self.document["differences_found"])

    @property
    def misses(self) -> int:
        """Results that unlimited grace would change."""
        return int(self.document["grace_misses_found"])

    @property
    def unexplained(self) -> int:
        """Grace misses that the late ledger does not explain."""
        return sum(not miss["explained"] for miss in self.document["grace_misses"])

    @property
    def verifies(self) -> bool:
        """Whether the certificate and its chain hold offline."""
        try:
            verify_file(self.certificate)
        except Unverified:
            return False
        return True


@dataclass(frozen=True, kw_only=True)
class Audited(Judged):
    """A run of the audit DAG and the certificate it issued."""

    run: DagRun


@dataclass(frozen=True, kw_only=True)
class DemoOutcome:
    """The two audits of a demo beside what was planted; ``second`` is None when the first found a violation."""

    flow: OrderFlow
    first: Audited
    second: Audited | None
    injected: bool
    airflow_url: str
    reports: Path
    seconds: float

    @property
    def held(self) -> bool:
        """Whether every check held. With an injection none may: a demo of a tampered output never succeeds."""
        return not self.injected and all(holds for _, _, _, holds in self._checks())

    def summary(self) -> RenderableType:
        """One screen: each check with what was expected and found, and where to look."""
        table = Table("", "expected", "found", "", box=None, title="\nWhat held", title_justify="left")
        for name, expected, found, holds in self._checks():
            table.add_row(name, expected, found, "[green]held[/]" if holds else "[red]DID NOT HOLD[/]")
        last = self.second or self.first
        places = {
            "Airflow": self.airflow_url,
            "expectations": self._expectations(),
            "certificate": last.certificate.with_suffix(".html"),
            "verify it": f"recount verify {last.certificate}",
            "took": f"{self.seconds:.0f} s",
        }
        # A path that is cut or wrapped cannot be copied, so these are lines and no table.
        lines = [Text(f"{name:<12} {place}", no_wrap=True, overflow="ignore") for name, place in places.items()]
        return Group(table, *self._differences(), "", *lines)

    def _checks(self) -> Iterator[tuple[str, str, str, bool]]:
        totals = self.first.document["totals"]
        yield _equal("records in", self.flow.records, totals["records"])
        yield _equal("late records", self.flow.late, totals["late"])
        yield _equal("bad records, dead-lettered", self.flow.bad, totals["dead_lettered"])
        yield _equal("fidelity violations", 0, self.first.violations)
        misses = self.first.misses
        yield (
            "grace misses",
            "some, each explained",
            f"{misses}, {self.first.unexplained} unexplained",
            (misses > 0 and not self.first.unexplained),
        )
        if self.second:
            yield _equal("grace misses after the backfill", 0, self.second.misses)
            yield _equal("violations after the backfill", 0, self.second.violations)
        for name, audited in (("audit in Airflow", self.first), ("audit after the backfill", self.second)):
            if audited:
                yield name, "success", audited.run.state, audited.run.state == "success"
        verifies = (self.second or self.first).verifies
        yield "certificate chain", "verifies offline", "verifies" if verifies else "does not", verifies

    def _differences(self) -> Iterator[RenderableType]:
        if not self.first.violations:
            return
        table = Table(
            "verdict", "where", "key", "window", "expected", "actual", "cause", title="\nDifferences", box=None
        )
        for found in self.first.document["differences"][:10]:
            window = told_window(found["window_start"], found["window_end"])
            expected, actual = sides_in_words(found["expected"], found["actual"])
            table.add_row(
                *(str(found[name]) for name in ("verdict", "place", "key")),
                window,
                *map(str, (expected, actual, found["cause"])),
            )
        yield table

    def _expectations(self) -> Path:
        """A page of ours: the Data Docs load their styles from the internet."""
        last = (self.second or self.first).document
        return expectations_page_of(str(self.reports), last["stream"], last["audit"])


def _equal(name: str, expected: int, found: int) -> tuple[str, str, str, bool]:
    return name, f"{expected:,}", f"{found:,}", expected == found
