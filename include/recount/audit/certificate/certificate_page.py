"""A certificate as one self-contained HTML page: no script, no outside file, readable on paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
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
from recount.certificate.document import FATES, Certificate, standing
from recount.runtime.times import quantity, told_time, told_window

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
        "stream": "; ".join(filter(None, [declared["source"], *declared["steps"], declared["aggregation"]])),
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
