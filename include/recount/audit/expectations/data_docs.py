"""Great Expectations' side: a file context in ``<reports>/gx``, a checkpoint for each suite, Data Docs.

One process at a time is in the folder. Great Expectations is imported when it is opened, for that takes seconds.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from recount.audit.expectations.suites import QUERY, Expectation
from recount.recompute.raw_log import once
from recount.runtime.installation import missing_extras_named

EXAMPLES = 20
_SOURCE = "audited"


@dataclass(frozen=True, kw_only=True)
class Checked:
    """One expectation of a suite and what came of it; ``unexpected`` rows are None where it could not be evaluated.

    ``column`` names the columns that it is about, empty where it is about rows; ``type`` is Great Expectations' name of
    it. ``examples`` are the first rows that a query found, or what went wrong.
    """

    expectation: str
    column: str = ""
    type: str = ""
    judged_as: str | None
    holds: bool
    is_warning: bool
    unexpected: int | None
    examples: Sequence[str]


class DataDocs:
    """The context while it is open, for one run: an audit."""

    def __init__(self, context: Any, gx: Any, audit: str) -> None:
        self._context = context
        self._gx = gx
        self._audit = audit
        # without persist: Spark would go on to see a Delta table as it was when delta-rs writes to it
        self._source = context.data_sources.add_or_update_spark(_SOURCE, persist=False)

    def checked(self, name: str, frame: DataFrame, expectations: Sequence[Expectation]) -> list[Checked]:
        """Put ``expectations`` to ``frame`` as the checkpoint ``name``, whose action updates the Data Docs.

        The frame is computed once.
        """
        gx, context = self._gx, self._context
        suite = context.suites.add_or_update(gx.ExpectationSuite(name=name, expectations=list(expectations)))
        batch = self._source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("whole")
        definition = gx.ValidationDefinition(name=name, data=batch, suite=suite)
        checkpoint = gx.Checkpoint(
            name=name,
            validation_definitions=[context.validation_definitions.add_or_update(definition)],
            actions=[gx.checkpoint.UpdateDataDocsAction(name="update data docs")],
            result_format="BASIC",  # more would count values, or bring every unexpected one to this process
        )
        run = gx.RunIdentifier(run_name=self._audit)
        rows = once(frame)
        found = context.checkpoints.add_or_update(checkpoint).run(batch_parameters={"dataframe": rows}, run_id=run)
        [result] = found.run_results.values()
        return [_checked(one, rows) for one in result.results]


@contextmanager
def data_docs_of(reports: str, audit: str) -> Iterator[DataDocs]:
    """The Data Docs for a new run ``audit``."""
    gx = great_expectations()
    folder = Path(reports) / "gx"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        context: Any = gx.get_context(mode="file", project_root_dir=reports)
        context.variables.progress_bars = {"globally": False, "metric_calculations": False}
        yield DataDocs(context, gx, audit)


def great_expectations() -> Any:
    """The library, whose import takes seconds."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    # it would tell of every field of an expectation that it does not know
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    with missing_extras_named():
        import great_expectations as gx
    return gx


def data_docs(reports: str) -> Path:
    """The first page of the Data Docs."""
    return Path(reports) / "gx" / "uncommitted" / "data_docs" / "local_site" / "index.html"


def _checked(result: Any, frame: DataFrame) -> Checked:
    configuration = result.expectation_config
    holds, found = bool(result.success), result.result or {}
    failure = _failure(result.exception_info or {})
    is_query = QUERY in configuration.kwargs
    unexpected = found.get("observed_value" if is_query else "unexpected_count")
    examples = [] if holds else [failure] if failure else _examples(frame, configuration.kwargs) if is_query else []
    meta = configuration.meta or {}
    notes = meta.get("notes")
    said = notes.get("content") if isinstance(notes, Mapping) else notes
    columns = configuration.kwargs.get("column_list") or [configuration.kwargs.get("column")]
    return Checked(
        column=", ".join(map(str, filter(None, columns))),
        type=str(configuration.type),
        expectation=str((said[0] if isinstance(said, list) and said else said) or configuration.type),
        judged_as=meta.get("judged_as"),
        holds=holds,
        is_warning=str(getattr(configuration.severity, "value", configuration.severity)) != "critical",
        unexpected=unexpected if isinstance(unexpected, int) else (0 if holds else None),
        examples=examples,
    )


def _failure(told: Mapping[str, Any]) -> str | None:
    """Why the expectation could not be evaluated: said of it, or of each of its metrics."""
    each = [told, *(one for one in told.values() if isinstance(one, Mapping))]
    return next((str(one["exception_message"]) for one in each if one.get("exception_message")), None)


def _examples(frame: DataFrame, given: Any) -> list[str]:
    """The first rows that the query of an expectation finds."""
    view = "recount_examples"
    frame.createOrReplaceTempView(view)
    rows = frame.sparkSession.sql(given[QUERY].format(batch=view)).limit(EXAMPLES).collect()
    return [str(row.asDict()) for row in rows]
