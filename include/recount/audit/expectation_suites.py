"""The suites of Recount and of a project, and what a declaration says of a table.

Recount's ``<name>.json`` is put to every stream; a project's ``expectations/<name>.json`` is put to them instead.
``expectations/<stream>/<name>.json`` is added to it for one, where ``<name>`` is ``raw_log``, ``batch_ledger``,
``reconciliation``, or the name of an output table; a table with the name of a suite has ``outputs.<name>.json``. The
setting ``RECOUNT_EXPECTATIONS`` names the project's folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recount.core.errors import Terminal
from recount.core.own_columns import RESULT_TIME, REVISION
from recount.core.settings import Settings
from recount.core.topology import Written
from recount.recompute.columns import spark_type
from recount.shipped import shipped

SUITES = shipped("expectations")
RAW_LOG, BATCH_LEDGER, OUTPUTS, RECONCILIATION = "raw_log", "batch_ledger", "outputs", "reconciliation"
QUERY = "unexpected_rows_query"

Expectation = dict[str, Any]


def suites_of(settings: Settings) -> Path:
    """The folder of the project's suites; Recount's own where none is set."""
    return Path(settings.expectations) if settings.expectations else SUITES


def expectations_of(suites: Path, name: str, stream: str, table: str | None = None) -> list[Expectation]:
    """What the suite ``name`` expects of ``stream``, or of its output ``table``, as Great Expectations takes it."""
    own = suites / stream / f"{name if table is None else _of_table(table)}.json"
    every = suites / f"{name}.json"
    return [*_read(every if every.exists() else SUITES / f"{name}.json"), *(_read(own) if own.exists() else [])]


def _of_table(table: str) -> str:
    return f"{OUTPUTS}.{table}" if table in (RAW_LOG, BATCH_LEDGER, OUTPUTS, RECONCILIATION) else table


def declared_columns(written: Written) -> list[Expectation]:
    """That the sink's table has the declared fields, each of its type.

    Great Expectations takes ``weight.kg`` for a part of ``weight``: of fields with such names it is not asked.
    """
    said = {**{name: str(kind) for name, kind in written.fields.items()}, REVISION: "int", RESULT_TIME: "long"}
    types = {name: type(spark_type(kind)).__name__ for name, kind in written.fields.items()}
    return [
        {
            "type": "expect_column_values_to_be_of_type",
            "kwargs": {"column": name, "type_": kind},
            "meta": {"notes": {"format": "markdown", "content": [f"{said[name]}, as the sink declares it."]}},
        }
        for name, kind in {**types, REVISION: "IntegerType", RESULT_TIME: "LongType"}.items()
        if name.isidentifier()
    ]


def _read(path: Path) -> Sequence[Expectation]:
    try:
        expectations = json.loads(path.read_text(encoding="utf-8"))["expectations"]
        return [_with_query(one) for one in expectations]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Terminal(
            "no suite of expectations",
            given=f"{path}: {error!r}",
            expected='a JSON object with a list "expectations" of objects with "type" and "kwargs"',
            remedy="see docs/audit.md, or take the file away",
        ) from error


def _with_query(expectation: Expectation) -> Expectation:
    """A query may be given as the list of its lines."""
    query = expectation["kwargs"].get(QUERY)
    if not isinstance(query, list):
        return expectation
    return {**expectation, "kwargs": {**expectation["kwargs"], QUERY: "\n".join(query)}}
