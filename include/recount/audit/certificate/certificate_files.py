"""Certificates on disk: one JSON file per audit, in one folder per stream, and its self-contained HTML page.

The page has no script and no outside file, and can be read on paper.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from recount.audit.certificate.summary import (
    change_in_words,
    counted,
    covered_in_words,
    followed,
    late_in_words,
    life_of,
    sides_in_words,
)
from recount.certificate.document import FATES, Certificate, SignatureFault, standing, verify, verify_alone
from recount.runtime.errors import Terminal
from recount.runtime.installation import bytes_of_file
from recount.runtime.settings import Settings
from recount.runtime.times import quantity, told_time, told_window

_KEPT = 2_000
"""Certificates that hold, of some 40 KB each: those of the audits that are at work at once, a night each for a year."""
_NAME_ONE = "name a file AUDIT.json below certificates/STREAM of the reports"


def certificates_in(folder: Path) -> list[Certificate]:
    """All certificates in ``folder``."""
    return [load(path) for path in sorted(folder.glob("*.json"))]


def load(path: Path) -> Certificate:
    """The certificate in the file ``path``; raises ``Terminal`` when it is none."""
    try:
        document: Any = json.loads(bytes_of_file(path).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Terminal(
            "no certificate", given=f"{path}: {error}", expected="a JSON object", remedy=_NAME_ONE
        ) from error
    if not isinstance(document, Mapping) or "sha256" not in document:
        raise Terminal("no certificate", given=str(path), expected="a JSON object with a sha256", remedy=_NAME_ONE)
    return document


def sound(path: Path) -> Certificate:
    """The certificate in the file ``path``, which holds by itself; raises ``Terminal`` where it does not.

    An audit asks for all of its stream several times. A file that has not changed is read once; do not change what is
    returned.
    """
    try:
        there = path.stat()
    except OSError as error:
        raise Terminal("no certificate", given=str(error), expected="a file", remedy=_NAME_ONE) from error
    return _sound(path, there.st_ino, there.st_size, there.st_mtime_ns)


@lru_cache(maxsize=_KEPT)
def _sound(path: Path, *_of_the_file: int) -> Certificate:
    certificate = load(path)
    verify_alone(certificate)
    return certificate


def verify_file(path: Path, signature_fault: SignatureFault | None = None) -> list[str]:
    """Verify the certificate in ``path`` with the predecessors found beside it (``document.verify``)."""
    return verify(load(path), certificates_in(path.parent), signature_fault)


EXIT_UNTRIED, EXIT_FAILED, EXIT_DISAGREED = 1, 3, 5
"""A stream could not be validated; an expectation failed; the expectations and the audit's judge disagree."""


def expectations_page_of(reports: str, stream: str, audit: str) -> Path:
    """The page that shows it."""
    return outcome_of(reports, stream, audit).with_suffix(".html")


def outcome_of(reports: str, stream: str, audit: str) -> Path:
    """The JSON file with the outcome of ``audit``: ``exit_code``, and ``lines`` for people, among others."""
    return Path(reports) / "expectations" / stream / f"{audit}.json"


def summary_file(settings: Settings, stream: str) -> Path:
    """Where the last dry run of ``stream`` left its summary."""
    return Path(settings.reports) / "backfills" / f"{stream}.json"


def write_summary(settings: Settings, stream: str, audit: str, changes: int, unpublished: int) -> None:
    """Write how many results would change as of ``audit``, and how many earlier backfills were never published."""
    document = {"audit": audit, "changes": changes, "unpublished": unpublished}
    target = summary_file(settings, stream)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_suffix(".draft")
    draft.write_text(json.dumps(document), encoding="utf-8")
    draft.replace(target)


_FATES = (*FATES, "control", "aborted", "compacted", "expired", "unaccounted")
_MAY_LACK = ("warnings", "lookups", "set_aside", "erasures")
"""Sections that a certificate has only where there is something to say."""
_WIDTH, _HEIGHT, _BASE = 1000, 220, 190
_SIDES = ("expected", "published", "complete")


def rendered(template: str, **values: Any) -> str:
    """The page that ``template`` makes of ``values``, which it escapes; a value that is missing is an error."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("recount.audit.certificate"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"count": "{:,}".format, "time": _time, "window": told_window, "share": _share}
    environment.filters |= {"life": life_of, "quantity": quantity}
    environment.filters |= {"sides": sides_in_words, "change": change_in_words, "late": late_in_words}
    return environment


def page(certificate: Certificate) -> str:
    """The page of ``certificate``."""
    made = {
        "cards": _cards(certificate),
        "chart": _chart(certificate["series"]),
        "fates": _FATES,
        "followed": followed(certificate),
        "found": sum(counted(certificate).values()),
        "particulars": _particulars(certificate),
    }
    return rendered("certificate.html", **{**dict.fromkeys(_MAY_LACK), **certificate, **made})


def _cards(certificate: Certificate) -> Mapping[str, int]:
    totals, verdicts = certificate["totals"], certificate["verdicts"]
    return {
        "records read": totals["records"],
        "results judged": certificate["results"],
        "differences": certificate["differences_found"],
        **{f"findings {state}": n for state, n in counted(certificate).items()},
        "late records": totals["late"],
        "dead-lettered": totals["dead_lettered"],
        "grace misses": certificate["grace_misses_found"],
        "repaired": verdicts["completeness"].get("repaired", 0),
    }


def _chart(series: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Expected as bars, published as a line on them; what grace lost as a cap on the bar. None without a window."""
    if not series:
        return None
    numbers = [{side: Decimal(one[side]) for side in _SIDES} for one in series]
    top = max(max(one.values()) for one in numbers) or Decimal(1)
    step = Decimal(_WIDTH) / len(series)
    width = max(step * Decimal("0.8"), Decimal(1))
    bars, line = [], []
    for place, (one, number) in enumerate(zip(series, numbers, strict=True)):
        heights = {side: round(value / top * (_BASE - 12), 2) for side, value in number.items()}
        differs = number["published"] not in (number["expected"], number["complete"])
        x, y = place * step, _BASE - heights["published"]
        bars.append({**one, "x": f"{x:.2f}", "width": f"{width:.2f}", "heights": heights, "differs": differs})
        line.append(f"{x:.2f},{y} {x + width:.2f},{y}")
    return {"width": _WIDTH, "height": _HEIGHT, "base": _BASE, "top": top, "bars": bars, "line": " ".join(line)}


def _particulars(certificate: Certificate) -> Mapping[str, str]:
    declared = certificate["declaration"]
    return {
        "stream": "; ".join(filter(None, [declared["source"], *declared["steps"], declared.get("aggregation")])),
        "outputs": f"topic {declared['sink']}, table {declared['table']}",
        "read from": certificate["source"],
        **({"looked up by arrival": "; ".join(certificate["by_arrival"])} if certificate.get("by_arrival") else {}),
        "covers": covered_in_words(certificate),
        "batches": str(certificate["batches"]),
        "frontier": _time(certificate["cut"]["frontier_ms"]),
        "previous certificate": certificate["previous_sha256"] or "none: this is the first",
        "sha256 of this certificate": certificate["sha256"],
        "signature": standing(certificate),
        **({"ed25519": certificate["signature"]} if certificate.get("signature") else {}),
        "fingerprint of the declaration": declared["fingerprint"],
        **{name.replace("_", " "): str(said) for name, said in certificate.get("versions", {}).items() if said},
    }


def _share(some: int, of: int) -> str:
    return f"{Decimal(100 * some) / of:.2f} %" if of else "none"


def _time(at_ms: int | None) -> str:
    return "none" if at_ms is None else told_time(at_ms)
