"""The suites of ``expectations/*.json`` put to the tables of an audit; the results become Data Docs.

Run as ``python -m recount.audit.expectations --stream S --audit ID``: exit code 0 when all hold, 3 when one fails. Only
here is Great Expectations imported, which takes ten seconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet as pq
import typer

from recount.audit.verdict_tables import TABLES, folder_of
from recount.core.errors import Terminal
from recount.core.settings import Settings

EXIT_FAILED = 3
SUITES = Path(__file__).resolve().parents[3] / "expectations"
_DATASOURCE = "verdicts"


def validate(reports: str, stream: str, audit: str, suites: Path = SUITES) -> dict[str, bool]:
    """Put each suite to its table of ``audit`` and build the Data Docs; returns which suites hold.

    The file context lies in ``<reports>/gx``, the Data Docs in its ``uncommitted/data_docs/local_site``.
    """
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx

    tables = {name: _table(folder_of(reports, stream, audit), name) for name in TABLES}
    context = gx.get_context(mode="file", project_root_dir=reports)
    source = context.data_sources.add_or_update_pandas(_DATASOURCE)
    outcome = {}
    for name, table in tables.items():
        suite = context.suites.add_or_update(_suite(gx, suites / f"{name}.json", f"{stream}.{name}"))
        asset = source.add_dataframe_asset(f"{stream}.{name}")
        batch = asset.add_batch_definition_whole_dataframe("all")
        definition = gx.ValidationDefinition(name=f"{stream}.{name}", data=batch, suite=suite)
        checkpoint = gx.Checkpoint(
            name=f"{stream}.{name}",
            validation_definitions=[context.validation_definitions.add_or_update(definition)],
            result_format="COMPLETE",
        )
        run = gx.RunIdentifier(run_name=audit)
        result = context.checkpoints.add_or_update(checkpoint).run(batch_parameters={"dataframe": table}, run_id=run)
        outcome[name] = bool(result.success)
    context.build_data_docs()
    return outcome


def data_docs(reports: str) -> Path:
    """The first page of the Data Docs."""
    return Path(reports) / "gx" / "uncommitted" / "data_docs" / "local_site" / "index.html"


def main(
    stream: Annotated[str, typer.Option(help="The audited stream.")],
    audit: Annotated[str, typer.Option(help="The audit whose tables are validated.")],
    suites: Annotated[Path, typer.Option(help="The folder of the suites.")] = SUITES,
) -> None:
    """Validate the tables of an audit and publish Data Docs."""
    settings = Settings.from_environment(os.environ)
    outcome = validate(settings.reports, stream, audit, suites)
    for name, holds in outcome.items():
        print(f"{name}: {'holds' if holds else 'FAILED'}")
    print(data_docs(settings.reports))
    if not all(outcome.values()):
        raise typer.Exit(EXIT_FAILED)


def _suite(gx: Any, path: Path, name: str) -> Any:
    declared: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return gx.ExpectationSuite(name=name, expectations=declared["expectations"])


def _table(folder: Path, name: str) -> Any:
    path = folder / f"{name}.parquet"
    if not path.exists():
        raise Terminal(
            "no tables of this audit", given=str(path), expected="the tables of a complete audit", remedy="audit first"
        )
    return pq.read_table(path).to_pandas()


if __name__ == "__main__":
    typer.run(main)
