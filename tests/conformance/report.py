"""Every case run and judged: passed, failed, or not expressible, with the rule that says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.conformance.by_design import rule_for
from tests.conformance.cases import Case, UnknownCase, documents
from tests.conformance.outcome import Outcome, first_difference

from recount.runtime.errors import RecountError, require

Run = Callable[[Case], Outcome]
"""How an engine runs a case."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of one case, and why if it did not pass."""

    id: str
    result: Literal["passed", "failed", "not expressible"]
    why: str = ""

    def __str__(self) -> str:
        return f"{self.id}: {self.result}: {self.why}"


def verdicts(folder: Path, *, run: Run, only: str | None = None) -> Iterator[Verdict]:
    """Judge every case of ``folder``, or the one whose id is ``only``; ``InvalidDeclaration`` if there is none."""
    found = False
    for document in documents(folder):
        if only in (None, document["id"]):
            found = True
            yield judged(document, run)
    require(found, "case", given=only, expected=f"the id of a case in {folder}", remedy="look into the files for ids")


def judged(document: Mapping[str, Any], run: Run) -> Verdict:
    """Run one case; an error while running it is a failure that says so."""
    name = str(document.get("id"))
    try:
        case = Case.of(document)
        outcome = run(case)
        difference = first_difference(case, outcome)
        rule = rule_for(case, outcome) if difference else None
    except UnknownCase as unknown:
        return Verdict(id=name, result="failed", why=f"{unknown.what} {unknown.given}")
    except (RecountError, LookupError, TypeError, ValueError) as error:
        return Verdict(id=name, result="failed", why=f"{type(error).__name__}: {error}")
    if difference is None:
        return Verdict(id=name, result="passed")
    if rule is not None:
        return Verdict(id=name, result="not expressible", why=f"{rule} ({difference})")
    return Verdict(id=name, result="failed", why=str(difference))
