"""The complete audits of a stream as their certificates say them: what is released is not taken from a row of ``runs``.

The stream deletes what is released, and audits look for it no more; so whoever can write to ``runs`` could have rows
deleted that nobody has judged.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from recount.audit.store import Run, complete_runs
from recount.core.certificate import Certificate
from recount.core.retention import Released, farthest
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.released import held_certificate

_LOG = logging.getLogger(__name__)


def certified_runs(settings: Settings, stream: str) -> list[Run]:
    """All complete audits of ``stream``, oldest first, each with what its certificate has ``released``.

    A certificate of an earlier release does not say it: then the row counts, but for no more than was judged. One
    without a certificate that holds has released nothing.
    """
    return [
        replace(run, released=_released(run, held_certificate(settings.reports, stream, run.audit)))
        for run in complete_runs(Tables(settings.data), stream)
    ]


def removed_by_now(runs: Sequence[Run]) -> Released | None:
    """What the stream may have removed when ``runs`` were complete: what those before the newest had released."""
    return farthest(*(run.released for run in runs[:-1]))


def within(found: Released, certificate: Certificate) -> Released | None:
    """``found``, but no more than the audit of ``certificate`` had judged; None: that is nothing."""
    frontier_ms = certificate["cut"]["frontier_ms"]
    if frontier_ms is None:
        return None
    ends = {(part["topic"], part["partition"]): part["end"] for part in certificate["partitions"]}
    offsets = {
        topic: {partition: min(end, ends.get((topic, partition), 0)) for partition, end in parts.items()}
        for topic, parts in found.offsets.items()
    }
    return replace(found, before_ms=min(found.before_ms, frontier_ms), offsets=offsets)


def _released(run: Run, certificate: Certificate | None) -> Released | None:
    if certificate is not None and "released" in certificate:
        told = Released.from_document(certificate["released"])
    elif certificate is not None and run.released is not None:
        told = within(run.released, certificate)
    else:
        told = None
    if told != run.released:
        _LOG.warning("what the row of the audit %s in runs has released counts only as its certificate says", run.audit)
    return told
