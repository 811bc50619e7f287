"""What OpenLineage is told: events that the provider's own adapter makes of our operators, and the file has them."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from airflow.providers.openlineage import conf
from airflow.providers.openlineage.extractors.base import DefaultExtractor
from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from openlineage.client import OpenLineageClient, generated
from openlineage.client.event_v2 import RunEvent
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.uuid import generate_new_uuid
from tests.unit.airflow.test_nights import Task, issue

from recount.airflow.audits import VerdictOperator
from recount.airflow.lineage import StreamLineage
from recount.airflow.streams import StreamOperator
from recount.declare.limits import Health
from recount.declare.registry import declared
from recount.runtime.settings import Settings

SHOP = declared()
BROKERS = "kafka://kafka-1:9092"
JOB = Path("job.py")
TIME = "2026-11-25T01:00:00Z"


@pytest.fixture(name="settings")
def _settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    made = replace(settings, bootstrap_servers="kafka-1:9092,kafka-2:9092")
    for name, value in made.to_environment().items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def adapter(tmp_path: Path) -> OpenLineageAdapter:
    """The provider's, with the file transport."""
    transport = FileTransport(FileConfig(log_file_path=str(tmp_path / "events.json"), append=True))
    return OpenLineageAdapter(client=OpenLineageClient(transport=transport))


def written(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "events.json").read_text().splitlines()]


def start(adapter: OpenLineageAdapter, operator: BaseOperator, tmp_path: Path) -> dict[str, Any]:
    """The event of its start, as the file has it."""
    adapter.start_task(
        run_id=str(generate_new_uuid()),
        job_name=f"dag.{operator.task_id}",
        event_time=TIME,
        job_description=None,
        nominal_start_time=TIME,
        nominal_end_time=TIME,
        owners=["orders"],
        tags=["recount"],
        task=DefaultExtractor(operator).extract(),
    )
    return written(tmp_path)[-1]


def stream_operator(stream: str) -> StreamOperator:
    return StreamOperator(task_id="run", stream=stream, application=JOB, limits=Health())


def names(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["namespace"], one["name"]) for one in datasets]


def facet_classes() -> dict[str, type]:
    """The classes that OpenLineage's Python package has, made of its JSON schema, by the address of their schema."""
    modules = [
        importlib.import_module(f"{generated.__name__}.{one.name}") for one in pkgutil.iter_modules(generated.__path__)
    ]
    found = [one for module in modules for one in vars(module).values() if hasattr(one, "_get_schema")]
    return {one._get_schema(): one for one in found}


def require_valid(event: dict[str, Any]) -> int:
    """Raise unless the event, its datasets and each facet with a schema have the fields and types of their schema."""
    classes, checked = facet_classes(), 0
    msgspec.convert(event, RunEvent)
    for holder in (event["run"], event["job"], *event["inputs"], *event["outputs"]):
        for name in ("facets", "inputFacets", "outputFacets"):
            for facet in holder.get(name, {}).values():
                if facet["_schemaURL"] in classes:
                    kind = classes[facet["_schemaURL"]]
                    msgspec.convert(facet, kind)
                    known = {one.name for one in kind.__attrs_attrs__}  # type: ignore[attr-defined]
                    assert facet.keys() <= known, f"{kind.__name__}: {facet.keys() - known}"
                    checked += 1
    return checked


def test_a_stream_is_told_with_its_topics_tables_and_fields(
    settings: Settings, adapter: OpenLineageAdapter, tmp_path: Path
) -> None:
    event = start(adapter, stream_operator("high-value-orders"), tmp_path)
    assert event["eventType"] == "START"
    assert names(event["inputs"]) == [(BROKERS, "orders")]
    assert names(event["outputs"]) == [
        (BROKERS, "high-value-orders"),
        ("file", f"{settings.data}/outputs/high_value_orders"),
        (BROKERS, "vip-orders"),
        ("file", f"{settings.data}/outputs/vip_orders"),
    ]
    [source] = event["inputs"]
    types = {one["name"]: one["type"] for one in source["facets"]["schema"]["fields"]}
    assert (types["amount"], types["vip"]) == ("decimal(15, 2)", "boolean")
    archive = start(adapter, stream_operator("archive-orders"), tmp_path)
    assert names(archive["inputs"]) == [(BROKERS, "orders")]
    assert names(archive["outputs"]) == [("file", f"{settings.data}/archive/orders")]
    # and each field with what it is made of
    event = start(adapter, stream_operator("revenue-by-region"), tmp_path)
    for output in event["outputs"]:
        columns = output["facets"]["columnLineage"]
        assert {name: one["inputFields"] for name, one in columns["fields"].items()} == {
            "region": [place("orders", "region", "DIRECT")],
            "revenue": [place("orders", "amount", "DIRECT")],
        }, "a count is made of no field"
        assert columns["dataset"] == [place("orders", "region", "INDIRECT")]


def place(topic: str, field: str, kind: str) -> dict[str, Any]:
    return {"namespace": BROKERS, "name": topic, "field": field, "transformations": [{"type": kind}]}


@pytest.mark.parametrize("stream", SHOP.streams)
def test_the_events_of_every_stream_are_as_the_schema_says(
    settings: Settings, adapter: OpenLineageAdapter, tmp_path: Path, stream: str
) -> None:
    assert require_valid(start(adapter, stream_operator(stream), tmp_path)) > 0


@pytest.mark.parametrize("outcome", ["match", "violation"])
def test_an_audit_is_told_with_its_certificate_and_what_it_found(
    settings: Settings, adapter: OpenLineageAdapter, tmp_path: Path, outcome: str
) -> None:
    issue(settings, "revenue-by-region", "a-1", outcome=outcome)
    verdict = VerdictOperator(task_id="verdict", stream="revenue-by-region", audit="a-1", left_out="")
    task = Task((), 1)
    context: Any = {"ti": task, "outlet_events": {outlet: type("Event", (), {}) for outlet in verdict.outlets}}
    before = start(adapter, verdict, tmp_path)
    assert before["outputs"] == []
    error: BaseException | None = None
    try:
        verdict.execute(context)
    except AirflowFailException as failure:
        error = failure
    assert (error is None) == (outcome == "match")
    told: dict[str, Any] = {"run_id": str(generate_new_uuid()), "job_name": "night__orders.verdict", "end_time": TIME}
    told |= dict.fromkeys(("nominal_start_time", "nominal_end_time", "job_description")) | {"owners": [], "tags": []}
    extractor = DefaultExtractor(verdict)
    if error is None:
        adapter.complete_task(task=extractor.extract_on_complete(task), **told)
    else:
        adapter.fail_task(task=extractor.extract_on_failure(task), error=error, **told)
    after = written(tmp_path)[-1]
    assert require_valid(after) > 0
    assert names(after["outputs"]) == [("file", f"{settings.reports}/certificates/revenue-by-region/a-1.json")]
    [judged] = [one for one in after["inputs"] if one["name"].endswith("outputs/windowed_revenue")]
    [assertion] = judged["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (assertion["assertion"], assertion["success"]) == ("recount_audit", outcome == "match")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/srv/tables/x", ("file", "/srv/tables/x")),
        ("file:///srv/x", ("file", "/srv/x")),
        ("s3a://bucket/tables/x", ("s3://bucket", "tables/x")),
        ("hdfs://name:8020/x", ("hdfs://name:8020", "/x")),
    ],
)
def test_a_table_has_the_name_that_openlineage_gives_to_its_place(path: str, expected: tuple[str, str]) -> None:
    assert StreamLineage._file(path) == expected


def test_nothing_is_told_where_no_transport_is_configured_and_operators_import_nothing_of_openlineage() -> None:
    assert conf.is_disabled()
    source = "import sys, recount.airflow.streams, recount.airflow.nights, recount.airflow.approvals\n"
    source += "print([name for name in sys.modules if name.startswith('openlineage')])"
    found = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert found.stdout.strip().splitlines()[-1] == "[]"
