"""Several audits in one Spark application: each stream is judged alone, or a line says why it was not judged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from recount.audit.audit_session import FEW_OFFSETS, session_for
from recount.audit.certificate.certificate_files import load
from recount.audit.cut.auditable import Auditable, AuditRequest
from recount.audit.night import audited
from recount.certificate.document import Certificate
from recount.declare.topology import Topology
from recount.runtime.errors import RecountError
from recount.runtime.log_lines import about
from recount.runtime.settings import Settings

_AT_A_TIME = 4
"""While some audits of few records plan or wait for the brokers, others compute. One of many takes all cores."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Outcome of the audit of ``stream``: its ``certificate``, or ``refusal``, the reason why there is none."""

    stream: str
    certificate: Path | None = None
    refusal: Exception | None = None

    @property
    def document(self) -> Certificate | None:
        """The certificate as it was issued."""
        return load(self.certificate) if self.certificate else None


def audited_together(
    settings: Settings,
    topologies: Sequence[Topology],
    request: AuditRequest,
    application: Callable[[int], SparkSession],
) -> Iterator[Outcome]:
    """The outcome of each audit, as soon as it is known.

    ``application`` starts Spark for audits that read so many offsets at most. It is called once, and only when a stream
    can be audited; its session is the caller's to stop.
    """
    found = Auditable.of(settings, topologies, request)
    for stream, refusal in found.refusals.items():
        yield Outcome(stream=stream, refusal=refusal)
    if not found.offsets:
        return
    most = max(found.offsets.values())
    spark = application(most)

    def outcome(topology: Topology) -> Outcome:
        session = session_for(spark, found.offsets[topology.name])
        with about(stream=topology.name, audit=request.audit):
            try:
                done = audited(
                    session,
                    settings,
                    topology,
                    audit=request.audit,
                    interval=request.interval,
                    source=request.source,
                    from_the_beginning=request.from_the_beginning,
                )
            except Exception as refusal:
                # whatever it is, the others are audited
                if not isinstance(refusal, RecountError):
                    _LOG.exception("the audit of %s failed", topology.name)
                return Outcome(stream=topology.name, refusal=refusal)
            return Outcome(stream=topology.name, certificate=done.certificate)

    # the longest first, so that no core is left idle in the end
    todo = [one for one in topologies if one.name in found.offsets]
    todo.sort(key=lambda topology: -found.offsets[topology.name])
    with ThreadPoolExecutor(_AT_A_TIME if most <= FEW_OFFSETS else 1) as threads:
        for audit in as_completed([threads.submit(outcome, topology) for topology in todo]):
            yield audit.result()
