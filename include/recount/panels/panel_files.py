"""The advice on the grace of a stream, and what other engines would have answered, as files that its page shows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recount.audit.certificate import certificates_in
from recount.audit.issuing import certificates_of, write_whole
from recount.core.errors import RecountError
from recount.core.quantities import quantity
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.grace.advice import Advice, advice
from recount.grace.advice_shown import HEADS, action_of, cells_of
from recount.lens.lens_answer import LensAnswer
from recount.lens.lens_of_stream import lens_of
from recount.lens.modelled import Modelled
from recount.lens.told_answer import RESULT_HEADS, engine_name, heading, result_cells, told_counts
from recount.spark.estimates.workload import workload

MOST_RECORDS = 2_000_000
"""The lens of a night reads no more: of sessions it would read the log from its beginning."""

Panel = Mapping[str, Sequence[Any]]


def write_panels(settings: Settings, topology: Topology) -> dict[str, Panel]:
    """Write both files of ``topology``, as of now and about the interval of its newest audit; returns what they hold.

    What cannot be told is a sentence in the file: no audit yet, no model of the topology, a log that has expired.
    """
    found = {"grace": _told(lambda: _grace(settings, topology)), "lens": _told(lambda: _lens(settings, topology))}
    for kind, panel in found.items():
        file = Path(settings.reports) / kind / f"{topology.name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(panel, ensure_ascii=False))
    return found


def of_advice(found: Advice) -> Panel:
    """A row for each longer grace of each operator that judges records by one."""
    said = [f"Not ready: {found.not_ready}."] if found.not_ready else []
    for one in found.operators:
        title = " and ".join(one.titles)
        missing = "" if one.results is None else f", missing from {quantity(one.results, 'result')}"
        late = quantity(one.records, "late record")
        said.append(f"{title}: {late}{missing}; {action_of(one)}: {one.recommendation.reason}.")
    if not found.not_ready and not found.operators:
        said.append("No operator judges records by a grace.")
    rows = [[" and ".join(one.titles), *cells_of(step, one, found)] for one in found.operators for step in one.steps]
    return {"said": said, "columns": ["operator", *HEADS] if rows else [], "rows": rows}


def of_answer(answer: LensAnswer) -> Panel:
    """The counts of each engine in a sentence; a row for each of the first results that it lacks or has otherwise."""
    said = [*heading(answer), *(f"{engine_name(one)}: {told_counts(one)}." for one in answer.engines)]
    rows = [[engine_name(one), *cells] for one in answer.engines for cells in result_cells(one)]
    return {"said": said, "columns": ["engine", *RESULT_HEADS] if rows else [], "rows": rows}


def _grace(settings: Settings, topology: Topology) -> Panel:
    now_ms = time.time_ns() // 1_000_000
    return of_advice(advice(Tables(settings.data), topology, workload(topology), now_ms))


def _lens(settings: Settings, topology: Topology) -> Panel:
    Modelled.of(topology)
    certificates = certificates_in(certificates_of(settings.reports, topology.name))
    newest = max(certificates, key=lambda one: int(one["sequence"]), default=None)
    if newest is None:
        return _said("Not audited yet: the newest audit says about which night other engines are asked.")
    start_ms, end_ms = (newest["covers"][bound]["batch_timestamp_ms"] for bound in ("from", "to"))
    answer = lens_of(settings, topology, start_ms=start_ms, end_ms=end_ms + 1, most_records=MOST_RECORDS)
    return of_answer(answer)


def _told(make: Callable[[], Panel]) -> Panel:
    try:
        return make()
    except RecountError as reason:
        return _said(str(reason))


def _said(sentence: str) -> Panel:
    return {"said": [sentence], "columns": [], "rows": []}
