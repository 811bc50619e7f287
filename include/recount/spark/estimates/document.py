"""A report for machines: plain values, so that it can be written as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from recount.spark.estimates.operators import StateEstimate
from recount.spark.estimates.report import Report

VERSION = 1


def document(report: Report) -> dict[str, Any]:
    """All figures of ``report``; None is what was not measured, or has no number."""
    batch, found = report.batch, report.measured
    time, target_ms = report.batch_time, report.target_ms
    return {
        "version": VERSION,
        "stream": report.stream,
        "assumed": report.given.document,
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
        "exactly_once": {
            "transactions_per_s": report.exactly_once.per_s,
            "markers_per_transaction": report.exactly_once.markers,
        },
        "batch_time": None if time is None else {**asdict(time), "most_records_per_s": time.most_per_s},
        "recommended": {
            "target_batch_ms": target_ms,
            "records": None if time is None or target_ms is None else time.records_within(target_ms),
        },
        "retained": [{**asdict(one), "rows": one.rows} for one in report.retained],
        "restart": {
            "rows": batch.restart_rows,
            "seconds": report.restart_s,
            "catching_up_s_a_minute": None if time is None else time.caught_up_s(report.records_per_s, 60),
        },
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
