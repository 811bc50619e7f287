"""One line in a dags folder makes the DAGs of a project, as its run settings say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID

from recount.airflow import notices
from recount.airflow.dag_factory import KINDS, Resources, RunSettings, recount_dags
from recount.airflow.roles import dag_ids
from recount.declare.groups import LONGEST_GROUP, TASKS_OF_A_NIGHT
from recount.declare.registry import declared
from recount.runtime.errors import InvalidDeclaration, Terminal

MODULES = "topologies.orders"
STREAM = "revenue-by-region"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the dags folder of a project that has a job of its own."""
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", MODULES)
    (tmp_path / "dags").mkdir()
    (tmp_path / "spark_jobs").mkdir()
    (tmp_path / "spark_jobs" / "audit.py").touch()
    return tmp_path / "dags" / "recount.py"


def made(file: Path, **more: Any) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__file__": str(file)}
    recount_dags(namespace, MODULES, **more)
    return {name: one for name, one in namespace.items() if name != "__file__"}


def test_each_kind_of_a_dag_is_made_once(file: Path) -> None:
    dags = made(file)
    names = declared(MODULES).topologies
    others = {"stream_control", "topics", "maintenance", "stream__archive-orders"}
    assert (
        dags.keys() == {f"{kind}__{n}" for kind in ("stream", "audit", "backfill", "findings") for n in names} | others
    )
    assert {dag.fileloc for dag in dags.values()} == {str(file)}


def test_a_file_may_have_some_kinds_only(file: Path) -> None:
    parts = [made(file, only=[kind]) for kind in KINDS]
    assert sum(map(len, parts)) == len(made(file))


def test_a_kind_that_there_is_not_is_refused(file: Path) -> None:
    with pytest.raises(InvalidDeclaration):
        made(file, only=["stream"])


def test_a_task_makes_its_own_dag_only(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # as Airflow's task runner says which DAG it parses a file for
    monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_DAG_ID, f"audit__{STREAM}")
    assert made(file).keys() == {f"audit__{STREAM}"}


def test_a_job_of_the_project_goes_before_that_of_recount(file: Path) -> None:
    dags = made(file)
    assert dags[f"audit__{STREAM}"].get_task("audit").application == str(file.parents[1] / "spark_jobs" / "audit.py")
    of_recount = Path(dags[f"stream__{STREAM}"].get_task("run").application)
    assert of_recount.is_file() and of_recount.name == "stream.py" and file.parents[1] not in of_recount.parents


def test_modules_that_are_not_those_of_the_environment_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", "topologies.clicks")
    with pytest.raises(Terminal) as refused:
        made(file)
    assert f"RECOUNT_TOPOLOGIES={MODULES}" in refused.value.remedy


def test_settings_of_the_call_reach_dags_and_tasks(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "pager", print, raising=False)
    place = "recount.airflow.notices:pager"
    settings = RunSettings(
        streams=[STREAM],
        driver=Resources(executors=3, conf={"spark.locality.wait": "0"}),
        audit=Resources(driver_memory="3g"),
        run_options=["--max-offsets", "500"],
        audit_schedule="15 4 * * *",
        audit_pool="nights",
        approve="automatic",
        approvers=["ann"],
        notifiers=place,
    )
    dags = made(file, settings=[settings])
    run = dags[f"stream__{STREAM}"].get_task("run")
    assert (run.spark_resources.executors, run.spark_resources.driver_memory) == (3, "2g")
    assert run.spark_resources.conf == {"spark.locality.wait": "0"}
    assert (run.run_options, run.notifiers) == (["--max-offsets", "500"], place)
    audit = dags[f"audit__{STREAM}"]
    assert audit.timetable.expression == "15 4 * * *"
    task = audit.get_task("audit")
    assert (task.pool, task.spark_resources.driver_memory) == ("nights", "3g")
    backfill = dags[f"backfill__{STREAM}"]
    assert backfill.params["approve"] == "automatic"
    assert backfill.get_task("approval").retries, "Airflow itself can fail a task that waits: it is asked again"
    for kind in ("backfill", "findings"):
        approval = dags[f"{kind}__{STREAM}"].get_task("approval")
        assert [user["id"] for user in approval.assigned_users] == ["ann"]
        assert approval.notifiers[0].of_stream == place
        assert dags[f"{kind}__{STREAM}"].default_args["on_failure_callback"] == [print]
    other = dags["audit__order-counts"].get_task("audit")
    assert (other.pool, dags["backfill__order-counts"].params["approve"]) == ("default_pool", "human")


def test_an_audit_can_be_by_hand_only(file: Path) -> None:
    dags = made(file, settings=[RunSettings(streams=[STREAM], audit_schedule="never")])
    assert dags[f"audit__{STREAM}"].schedule is None


def test_settings_of_a_stream_that_is_not_declared_are_refused(file: Path) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        made(file, settings=[RunSettings(streams=["parcels"])])
    assert refused.value.given == "parcels"


def test_notifiers_that_are_nowhere_are_refused_when_the_dags_are_made(file: Path) -> None:
    with pytest.raises(Terminal):
        made(file, settings=[RunSettings(streams=[STREAM], notifiers="nowhere:pager")])


def test_the_settings_of_a_group_are_those_of_its_driver_its_night_and_its_streams(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", "topologies")
    namespace: dict[str, Any] = {"__file__": str(file)}
    group = declared().groups["orders"]
    settings = [
        RunSettings(streams=["orders"], driver=Resources(executors=2), audit_schedule="0 5 * * *", approve="automatic"),
        RunSettings(streams=[STREAM], approvers=["ann"]),
    ]
    recount_dags(namespace, settings=settings)
    run = namespace[f"stream__{STREAM}"].get_task("run")
    assert (run.spark_resources.executors, run.spark_resources.driver_memory) == (2, group.driver_memory)
    assert namespace["night__orders"].timetable.expression == "0 5 * * *"
    # a stream with settings of its own has none of its group's but the driver
    assert namespace[f"backfill__{STREAM}"].params["approve"] == "human"
    neighbour = next(name for name in group.members if name != STREAM and f"backfill__{name}" in namespace)
    assert namespace[f"backfill__{neighbour}"].params["approve"] == "automatic"


LONGEST = """
from recount.declare.groups import Archive, LONGEST_ARCHIVED
from recount.declare.groups import LONGEST_GROUP, StreamGroup
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import LONGEST_STREAM, Topology, stream

read = Topic(name="r" * LONGEST_ARCHIVED, key="id", value=RecordSchema.of(n=LONG))
kept = Archive(topic=read)
copied = Topology(name="c" * LONGEST_STREAM, sinks=[stream(read).to(Topic(name="out", key="id"))])
both = StreamGroup(name="g" * LONGEST_GROUP, streams=[kept, copied])
"""


def of_module(file: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> dict[str, Any]:
    """What ``recount_dags`` makes of a module of that name."""
    (file.parent / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(file.parent)
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", name)
    namespace: dict[str, Any] = {"__file__": str(file)}
    recount_dags(namespace, name)
    return namespace


def test_names_as_long_as_they_may_be_have_dags(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is too long takes all DAGs of its file away."""
    namespace = of_module(file, monkeypatch, "longest_names", LONGEST)
    assert max(map(len, namespace)) == 250
    night = namespace[f"night__{'g' * LONGEST_GROUP}"]
    assert {task for task in night.task_ids if "." not in task} == set(TASKS_OF_A_NIGHT)


SHOWN = """
from recount.declare.groups import StreamGroup
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream

read = stream(Topic(name="payments", key="id", value=RecordSchema.of(cents=LONG)))
shown = Topology(name="shown", actions=[read.foreach(print)])
copied = Topology(name="copied", sinks=[read.to(Topic(name="out", key="id"))])
both = StreamGroup(name="both", streams=[shown, copied])
"""


def test_a_stream_that_writes_nothing_runs_and_is_not_audited(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = of_module(file, monkeypatch, "shown_payments", SHOWN)
    assert [name for name in namespace if name.endswith("__shown")] == ["stream__shown"]
    night = namespace["night__both"]
    assert "copied.verdict" in night.task_ids
    assert not [task for task in night.task_ids if task.startswith("shown.")]
    declarations = declared("shown_payments")
    ids = {dag for kind in dag_ids(declarations).values() for dag in kind}
    assert {"audit__copied", "backfill__copied", "findings__copied", "stream__shown"} < ids
    assert not {"audit__shown", "backfill__shown", "findings__shown"} & ids
