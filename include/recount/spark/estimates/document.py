"""A report for machines: plain values, so that it can be written as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from recount.spark.estimates.operators import StateEstimate
from recount.spark.estimates.report import Report
from recount.spark.estimates.workload import UNIQUE

VERSION = 1


def document(report: Report) -> dict[str, Any]:
    """All figures of ``report``; None is what was not measured, or has no number."""
    given, batch, found = report.given, report.batch, report.measured
    return {
        "version": VERSION,
        "stream": report.stream,
        "assumed": {
            "rate": given.rate,
            "rates": dict(given.rates),
            "keys": _keys(given.keys),
            "keys_by_name": {name: _keys(keys) for name, keys in given.keys_by_name.items()},
            "record_bytes": given.record_bytes,
            "trigger_ms": given.trigger_ms,
            "late_by_ms": given.late_by_ms,
        },
        "operators": [
            {
                "number": operator.number,
                "operator": operator.title,
                "rows_per_s": operator.rows_per_s,
                "cost": operator.cost or None,
                "states": [_state(report, state) for state in operator.states],
            }
            for operator in report.operators
        ],
        "batch": {
            "per_s": batch.per_s,
            "records": batch.records,
            "emitted": batch.emitted,
            "state_rows_changed": batch.changed,
            "state_rows_appended_a_day": batch.appended_a_day,
        },
        "retained": [{**asdict(one), "rows": one.rows} for one in report.retained],
        "restart": {"rows": batch.restart_rows, "seconds": report.restart_s},
        "measured": None if found is None else asdict(found),
        "status": None if report.status is None else asdict(report.status),
        "benchmark": None if report.benchmark is None else asdict(report.benchmark),
    }


def _state(report: Report, state: StateEstimate) -> dict[str, Any]:
    held = report.held(state)
    return {
        "state": state.title,
        "rows": state.kept.rows,
        "bytes": state.bytes,
        "rows_for_ever_per_s": state.kept.grows_per_s,
        "bytes_for_ever_a_day": state.bytes_a_day,
        "formula": state.kept.formula,
        "measured": None if held is None else asdict(held),
    }


def _keys(number: float) -> float | str:
    return UNIQUE if math.isinf(number) else number
