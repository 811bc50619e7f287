"""What a certificate of an audit's findings says, before it has a number."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from recount.audit.by_arrival import lookups_by_arrival
from recount.audit.certified_findings import covered, findings_section, listed_differences
from recount.audit.code_versions import code_versions
from recount.audit.findings import Findings
from recount.audit.shape import flow_of
from recount.audit.shares import unsigned_orders, warnings_of, warnings_of_lookups
from recount.core.event_units import warnings_of_seconds
from recount.core.fingerprint import SEMANTICS_VERSION, Declared
from recount.core.nodes import Sink, Source
from recount.core.topology import Topology

MAX_LISTED = 1_000
_FATES = ("records", "counted", "late", "filtered", "null_key", "null_value", "deduplicated", "dead_lettered")


def document_of(findings: Findings) -> dict[str, Any]:
    """The document of ``findings``, which is still to be numbered, hashed and signed."""
    parts = [{**asdict(part), "records": part.records, "unaccounted": part.unaccounted} for part in findings.accounts]
    verdicts: dict[str, dict[str, int]] = {"kafka": {}, "delta": {}, "completeness": {}}
    for name, n in sorted(findings.counts.items()):
        place, verdict = name.split(" ")
        verdicts[place][verdict] = n
    cut = findings.cut
    return {
        "audit": findings.audit,
        "stream": findings.topology.name,
        "outcome": findings.outcome,
        "warnings": [
            *warnings_of(findings.topology.health, findings.accounts, findings.ledger.proofs),
            *warnings_of_lookups(findings.topology.health, findings.lookups),
            *warnings_of_seconds(part for proof in findings.ledger.proofs for part in proof.partitions).values(),
            *findings.short_lived,
            *unsigned_orders(findings.set_aside, findings.ledger),
        ],
        "interval_ms": [findings.interval.start_ms, findings.interval.end_ms],
        "source": findings.source,
        "seed": findings.seed.run.audit if findings.seed.run else None,
        "cut": {
            "generation": cut.generation,
            "batch": cut.batch,
            "batch_timestamp_ms": cut.batch_timestamp_ms,
            "frontier_ms": findings.frontier_ms,
        },
        "batches": 0 if findings.ledger.stands else len(findings.ledger.proofs),
        "erasures": [one.to_document() for one in findings.erasures],
        "begins_after_erasure": findings.begins_after,
        "set_aside": [one.to_document() for one in findings.set_aside],
        "lookups": [asdict(one) for one in findings.lookups],
        "by_arrival": lookups_by_arrival(findings.topology),
        "declaration": {
            **_declaration(findings.topology),
            "fingerprint": Declared.of(findings.topology).fingerprint,
            **(findings.in_force.section(findings.ledger) if findings.in_force else {}),
        },
        "digests": findings.evidence.as_document(),
        "versions": code_versions() | {"semantics": SEMANTICS_VERSION},
        "partitions": parts,
        "totals": {name: sum(part[name] for part in parts) for name in _FATES},
        "published_ends": {str(partition): end for partition, end in findings.published_ends.items()},
        "results": sum(verdicts["kafka"].values()),
        "verdicts": verdicts,
        "differences_found": sum(findings.found.values()),
        "differences": listed_differences(findings, MAX_LISTED),
        "findings": findings_section(findings, MAX_LISTED),
        "covers": covered(findings),
        "snapshot": findings.snapshot_sha256,
        "released": None if findings.released is None else asdict(findings.released),
        "built_on": [asdict(one) for one in findings.built_on],
        "grace_misses_found": len(findings.misses),
        "grace_misses": [asdict(miss) for miss in findings.misses[:MAX_LISTED]],
        "beyond_look_back_found": findings.beyond_found,
        "beyond_look_back": list(findings.beyond),
        "charted": findings.charted,
        "series": [
            {"window_start": one.window_start, **{side: format(getattr(one, side).normalize(), "f") for side in _SIDES}}
            for one in findings.series
        ],
    }


def _declaration(topology: Topology) -> dict[str, Any]:
    """What was audited, in words; ``aggregation`` is that of a topology that is a single one."""
    written = topology.written
    places = {
        "source": ", ".join(source.topic.name for source in topology.sources),
        "sink": ", ".join(node.topic.name for node in written),
        "table": ", ".join(node.table for node in written),
    }
    flow = flow_of(topology)
    if flow is not None:
        return {**places, "steps": [str(step) for step in flow.steps], "aggregation": str(flow.aggregate)}
    steps = [str(node) for node in topology.nodes() if not isinstance(node, Source | Sink)]
    return {**places, "steps": steps, "aggregation": None}


_SIDES = ("expected", "published", "complete")
