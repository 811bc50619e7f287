"""A certificate as one self-contained HTML page: no script, no outside file, readable on paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from html import escape
from typing import Any

from recount.audit.certificate.summary import counted, covered_in_words, followed, life_of
from recount.audit.explain.row_changes import change_in_words, late_in_words, sides_in_words
from recount.certificate.document import FATES, Certificate, standing
from recount.runtime.times import quantity, told_time, told_window

STYLE = """
:root{--ink:#1d2433;--soft:#5b6578;--line:#dfe3ea;--good:#12805c;--bad:#b3261e;--late:#b7791f;--ground:#fff}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9f0;--soft:#9aa4b5;--line:#333b4a;--good:#4cc38a;--bad:#ff8a80;
--late:#e3b341;--ground:#151a23}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1060px;padding:40px 24px;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}h1{font-size:26px;margin:0 0 4px}h2{font-size:17px;margin:36px 0 8px}
p{margin:6px 0}.soft{color:var(--soft)}.badge{display:inline-block;padding:3px 12px;border-radius:99px;color:#fff;
font-weight:600}.match{background:var(--good)}.violation{background:var(--bad)}.cards{display:grid;gap:12px;
grid-template-columns:repeat(auto-fit,minmax(160px,1fr));margin:20px 0}.card{border:1px solid var(--line);
border-radius:10px;padding:12px 14px}.card b{display:block;font-size:22px;font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:13px}th{text-align:left;color:var(--soft);
font-weight:600}th,td{padding:5px 10px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}code{font:12px/1.4 ui-monospace,monospace;
overflow-wrap:anywhere}.bad{color:var(--bad)}
.late{color:var(--late)}svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);
font:11px system-ui,sans-serif}
"""
_WIDTH, _HEIGHT, _BASE = 1000, 220, 190
_SIDES = ("expected", "published", "complete")


def digests(certificate: Certificate) -> str:
    """The digests; a certificate of the first format has none."""
    told = certificate.get("digests")
    if told is None:
        return '<h2>Digests</h2><p class="soft">None: a certificate of the first format.</p>'
    records = (
        (
            f"{what} {escape(one['topic'])}-{one['partition']}",
            f"[{one['start']:,}, {one['end']:,})",
            f"{one['records']:,}",
            code(one["sha256"]),
        )
        for what, section in (("log", "log"), ("output", "published"))
        for one in told[section]
    )
    tables = (
        (f"table {escape(one['table'])}", _batches(one), f"{one['rows']:,}", code(one["sha256"]))
        for one in told["tables"]
    )
    return "<h2>Digests</h2>" + table(("of", "offsets or batches", "rows", "sha256"), (*records, *tables))


def _batches(one: Mapping[str, Any]) -> str:
    if "backfills" in one:
        return escape(", ".join(one["backfills"]))
    after = "the first" if one["after"] is None else "after {}/{}".format(*one["after"])
    return "{} to {}/{}".format(after, *one["up_to"])


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """An HTML table; heads are text, cells HTML."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def code(text: str | None) -> str:
    """``text`` as code, or that there is nothing."""
    return f"<code>{escape(text)}</code>" if text is not None else '<span class="soft">nothing</span>'


def page(certificate: Certificate) -> str:
    """The page of ``certificate``."""
    outcome, stream = certificate["outcome"], escape(certificate["stream"])
    said = {
        "match": "Every output record is there exactly once, as the raw log says.",
        "violation": "The outputs differ from what the raw log says.",
    }[outcome]
    sections = [
        _warnings(certificate),
        _cards(certificate),
        _chart(certificate),
        _findings(certificate),
        _misses(certificate["grace_misses"], certificate["grace_misses_found"]),
        _partitions(certificate["partitions"]),
        _lookups(certificate.get("lookups", [])),
        _set_aside(certificate.get("set_aside", [])),
        _erasures(certificate.get("erasures", [])),
        digests(certificate),
        _particulars(certificate),
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width">'
        f"<title>{stream}: {outcome}</title><style>{STYLE}</style></head><body>"
        f'<h1>{stream} <span class="badge {outcome}">{outcome}</span></h1>'
        f'<p>{said}</p><p class="soft">Audit {escape(certificate["audit"])}, certificate {certificate["sequence"]} '
        f"of this stream, up to batch {certificate['cut']['generation']}/{certificate['cut']['batch']} of "
        f"{_time(certificate['cut']['batch_timestamp_ms'])}</p>{''.join(sections)}</body></html>\n"
    )


def _erasures(erasures: Sequence[Mapping[str, Any]]) -> str:
    """Which keys the stream has forgotten: nobody can say by this which they were."""
    rows = "".join(
        f"<tr><td><code>{escape(one['erasure'])}</code></td><td>{one['generation']}/{one['batch']}</td>"
        f"<td>{escape(one['by'])}: {escape(one['reason'])}</td><td class=n>{sum(one['counts'].values()):,}</td></tr>"
        for one in erasures
    )
    head = "<tr><th>erasure</th><th>after batch</th><th>who, why</th><th class=n>rows</th></tr>"
    return f'<h2>Erased keys</h2><div class="scroll"><table>{head}{rows}</table></div>' if rows else ""


def _lookups(lookups: Sequence[Mapping[str, Any]]) -> str:
    """How many records of each lookup found no row of its table."""
    rows = (
        (escape(one["lookup"]), f"{one['records']:,}", f"{one['misses']:,} ({_share(one['misses'], one['records'])})")
        for one in lookups
    )
    return "<h2>Lookups</h2>" + table(("lookup", "records", "of these without a row"), rows) if lookups else ""


def _share(some: int, of: int) -> str:
    return f"{Decimal(100 * some) / of:.2f} %" if of else "none"


def _set_aside(orders: Sequence[Mapping[str, Any]]) -> str:
    """Which records the stream goes on without, by whose order and why."""
    rows = (
        (
            f"<code>{escape(one['topic'])}-{one['partition']}@{one['offset']}</code>",
            _time(one["at_ms"]),
            escape(f"{one['by']}: {one['because']}"),
            escape(f"signed with key {one['key_id']}" if one["signature"] else "nobody has signed it"),
        )
        for one in orders
    )
    heads = ("record", "ordered", "who, why", "order")
    return "<h2>Records set aside by order</h2>" + table(heads, rows) if orders else ""


def _warnings(certificate: Certificate) -> str:
    warnings = certificate.get("warnings", [])
    listed = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    return f'<h2 class="late">Warnings</h2><ul>{listed}</ul>' if warnings else ""


def _cards(certificate: Certificate) -> str:
    totals, verdicts = certificate["totals"], certificate["verdicts"]
    cards = {
        "records read": totals["records"],
        "results judged": certificate["results"],
        "differences": certificate["differences_found"],
        **{f"findings {state}": n for state, n in counted(certificate).items()},
        "late records": totals["late"],
        "dead-lettered": totals["dead_lettered"],
        "grace misses": certificate["grace_misses_found"],
        "repaired": verdicts["completeness"].get("repaired", 0),
    }
    items = (f'<div class="card"><span class="soft">{name}</span><b>{n:,}</b></div>' for name, n in cards.items())
    return f'<div class="cards">{"".join(items)}</div>'


def _chart(certificate: Certificate) -> str:
    """Expected as bars, published as a line on them; what grace lost as a cap on the bar."""
    series = [{**one, **{side: Decimal(one[side]) for side in _SIDES}} for one in certificate["series"]]
    if not series:
        return ""
    top = max(max(one[side] for side in _SIDES) for one in series) or Decimal(1)
    step = Decimal(_WIDTH) / len(series)
    bars, steps = [], []
    for place, one in enumerate(series):
        x, width = place * step, max(step * Decimal("0.8"), Decimal(1))
        expected, published, complete = (_BASE - one[side] / top * (_BASE - 12) for side in _SIDES)
        title = f"{_time(one['window_start'])}: expected {one['expected']}, published {one['published']}, "
        title += f"with unlimited grace {one['complete']}"
        differs = "var(--bad)" if one["published"] not in (one["expected"], one["complete"]) else "var(--good)"
        bars.append(
            f"<g><title>{escape(title)}</title>"
            f"{_bar(x, complete, width, 'var(--late)')}{_bar(x, expected, width, differs)}</g>"
        )
        steps.append(f"{x:.2f},{published:.2f} {x + width:.2f},{published:.2f}")
    first, last = (_time(one["window_start"]) for one in (series[0], series[-1]))
    return (
        f"<h2>{escape(str(certificate['charted']))} per window, over all keys</h2>"
        '<p class="soft">Bars: expected, red where the published total is another one. Line: published. '
        "Caps: what unlimited grace would add.</p>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="expected and published totals per window">'
        f'{"".join(bars)}<polyline points="{" ".join(steps)}" fill="none" stroke="var(--ink)" stroke-width="1.5"/>'
        f'<text x="0" y="{_HEIGHT - 8}">{first}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT - 8}" text-anchor="end">{last}</text>'
        f'<text x="0" y="10">{top}</text></svg>'
    )


def _bar(x: Decimal, y: Decimal, width: Decimal, fill: str) -> str:
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{_BASE - y:.2f}" fill="{fill}" />'


def _findings(certificate: Certificate) -> str:
    """The differences of this and of earlier audits, and what has become of them."""
    found, listed = sum(counted(certificate).values()), followed(certificate)
    found = found or certificate["differences_found"]
    if not found:
        return '<h2>Differences</h2><p class="soft">None, and no finding of an earlier audit is open.</p>'
    rows = (
        (
            f"{escape(one['kind'])}<br><code>{escape(one.get('finding', ''))}</code>",
            escape(life_of(one)),
            f'<b class="bad">{escape(one["verdict"])}</b><br>{escape(one["place"])}',
            _row(one),
            *map(code, sides_in_words(one["expected"], one["actual"])),
            escape(one["cause"]) + "<br>" + _evidence(one["evidence"]),
        )
        for one in listed
    )
    return f"<h2>Differences ({found:,})</h2>" + table(
        ("checked", "state", "verdict", "key and window", "expected", "actual", "cause"), rows
    )


def _misses(misses: Sequence[Mapping[str, Any]], found: int) -> str:
    """Which rows, which of their fields, and the records that would have changed them."""
    if not found:
        return '<h2>Grace misses</h2><p class="soft">None: unlimited grace would change nothing.</p>'
    rows = (
        (
            _row(one, " "),
            code(change_in_words(one["published"], one["complete"])),
            f"{quantity(one['late_records'], 'late record')}: {_evidence([*map(late_in_words, one['late'])])}"
            + ("" if one["explained"] else ' <b class="bad">unexplained</b>'),
        )
        for one in misses
    )
    return f"<h2>Grace misses ({found:,})</h2>" + table(
        ("key and window", "published → with unlimited grace", "because of: topic-partition@offset +margin"), rows
    )


def _partitions(parts: Sequence[Mapping[str, Any]]) -> str:
    names = (*FATES, "control", "aborted", "compacted", "expired", "unaccounted")
    rows = (
        (
            f"{escape(part['topic'])}-{part['partition']}",
            f"[{part['start']:,}, {part['end']:,})",
            *(f"{part.get(name, 0):,}" for name in names),
            _time(part["stream_time_ms"]),
        )
        for part in parts
    )
    heads = ("partition", "offsets", *(name.replace("_", " ") for name in names), "stream time")
    return "<h2>Every offset, once</h2>" + table(heads, rows)


def _particulars(certificate: Certificate) -> str:
    declared = certificate["declaration"]
    parts = {
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
        "fingerprint of the declaration": declared.get("fingerprint") or "not told",
        **{name.replace("_", " "): str(said) for name, said in certificate.get("versions", {}).items() if said},
    }
    rows = ((escape(name), code(text)) for name, text in parts.items())
    how = "Verify the JSON beside this page offline: <code>recount verify FILE.json</code>"
    return f'<h2>Particulars</h2>{table(("", ""), rows)}<p class="soft">{how}</p>'


def _row(one: Mapping[str, Any], between: str = "<br>") -> str:
    """Which row it is about: sink (of a grace miss), key, window, origin."""
    key, start = one["key"], one["window_start"]
    bounds = "" if start is None else escape(told_window(start, one["window_end"]))
    name = f"<b>{escape(str(key))}</b>" if key is not None or bounds else ""
    parts = (escape(one.get("sink") or ""), name, bounds, escape(one.get("origin") or ""))
    return between.join(filter(None, parts))


def _evidence(places: Sequence[str]) -> str:
    shown = ", ".join(escape(place) for place in places[:10])
    more = f" and {len(places) - 10} more" if len(places) > 10 else ""
    return f"<code>{shown}{more}</code>"


def _time(at_ms: int | None) -> str:
    return "none" if at_ms is None else told_time(at_ms)
