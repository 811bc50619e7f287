"""The DAGs of a project, as its run settings say: quick to parse, without network, Spark or Great Expectations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pendulum
import pytest
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID
from airflow.serialization.decoders import decode_timetable
from airflow.serialization.encoders import encode_timetable
from airflow.timetables.base import DataInterval, TimeRestriction

from recount.airflow import notices
from recount.airflow.dag_factory import KINDS, Resources, RunSettings, recount_dags
from recount.airflow.links import FIRST_HOUR, MINUTES, nightly
from recount.airflow.roles import dag_ids
from recount.declare.groups import LONGEST_GROUP, TASKS_OF_A_NIGHT
from recount.declare.registry import declared
from recount.profile.dag_runs import nights_of, streams_of
from recount.profile.home import Project
from recount.runtime.errors import InvalidDeclaration, Terminal

PARSE_LIMIT = 7
"""In yardsticks of ``parse_dags.py``: twice what the slowest file took beside other work."""
PARSE = Path(__file__).with_name("parse_dags.py")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ``parse_dags.py`` says of each DAG file, by the file's name."""
    root = Project.containing(Path(__file__).parent).root
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow"))}
    files = sorted(str(file) for file in (root / "dags").glob("*.py"))
    command = [sys.executable, str(PARSE), *files]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert answer.returncode == 0, answer.stderr
    lines = [json.loads(line[7:]) for line in answer.stdout.splitlines() if line.startswith("PARSED ")]
    return {Path(found["file"]).stem: found for found in lines}


@pytest.fixture(scope="module")
def parsed(files: dict[str, Any]) -> dict[str, Any]:
    """What it says of all DAGs, whatever their file: tasks, groups, first runs, rules, whether paused."""
    kinds = ("dags", "groups", "first_runs", "rules", "paused")
    return {kind: {name: one for found in files.values() for name, one in found[kind].items()} for kind in kinds}


def test_a_dag_file_is_parsed_quickly_beside_a_fixed_piece_of_work(files: dict[str, Any]) -> None:
    assert {name: found["errors"] for name, found in files.items() if found["errors"]} == {}
    assert {name: found["yardsticks"] for name, found in files.items() if found["yardsticks"] > PARSE_LIMIT} == {}


def test_a_dag_file_imports_nothing_heavy(files: dict[str, Any]) -> None:
    assert {name: found["heavy"] for name, found in files.items() if found["heavy"]} == {}


def test_every_stream_has_a_dag_and_every_topology_an_audit_and_a_backfill(parsed: dict[str, Any]) -> None:
    declarations = declared()
    of_topologies = {
        f"{kind}__{name}" for kind in ("audit", "backfill", "findings") for name in declarations.topologies
    }
    of_streams = {f"stream__{name}" for name in declarations.streams}
    of_groups = {f"night__{name}" for name in declarations.groups}
    others = {"stream_control", "topics", "maintenance"}
    assert set(parsed["dags"]) == of_topologies | of_streams | of_groups | others
    assert set(streams_of(declarations)) == of_streams
    assert set(nights_of(declarations)) == of_groups, "every stream of the shop shares a driver"


TASKS = {
    # a stream is held before it runs
    "stream": {"hold": ["run"], "run": []},
    # item 1.2: a violation fails the audit task, and does not keep misses from being announced
    "audit": {
        "audit": ["expectations", "grace_misses", "limits", "panels", "proved"],
        "expectations": ["grace_misses", "proved"],
        "grace_misses": ["proved"],
        "limits": ["proved"],
        "panels": [],
        "proved": [],
    },
    # a repair is shown first, approved, then audited
    "backfill": {
        "dry_run": ["how"],
        "how": ["approval", "repair"],
        "approval": ["repair"],
        "repair": ["audit_again"],
        "audit_again": [],
    },
    # item 1.1: a person accepts, with name and reason
    "findings": {"open_findings": ["approval"], "approval": ["accept"], "accept": []},
}


@pytest.mark.parametrize("kind", TASKS)
def test_the_tasks_of_a_dag_follow_each_other(parsed: dict[str, Any], kind: str) -> None:
    assert parsed["dags"][f"{kind}__revenue-by-region"] == TASKS[kind]
    rules = parsed["rules"]["audit__revenue-by-region"]
    assert {rules[task] for task in ("expectations", "grace_misses", "panels")} == {"all_done"}
    # a last task fails when the audit did: otherwise the run would be green
    assert rules["proved"] == "none_failed_min_one_success"


def test_every_topology_is_audited_by_one_schedule_that_of_its_group_or_its_own(parsed: dict[str, Any]) -> None:
    groups, first_runs = declared().groups, parsed["first_runs"]
    grouped = {name: group.name for group in groups.values() for name in group.members}
    scheduled = {name for name, first in first_runs.items() if first and name.startswith("audit__")}
    assert scheduled == {f"audit__{name}" for name in declared().topologies if name not in grouped}
    assert all(first_runs[f"night__{name}"] for name in groups)
    of_streams = {name: group for name, group in parsed["groups"].items() if group}
    assert of_streams == {f"stream__{name}": group for name, group in grouped.items()}
    # Airflow pauses what is new unless the DAG says otherwise: no night and no backfill runs by itself
    unpaused = {name for name, paused in parsed["paused"].items() if paused is False}
    assert unpaused == {f"audit__{name}" for name in grouped} & parsed["dags"].keys()


def test_the_night_of_a_group_has_a_task_group_for_each_of_its_topologies(parsed: dict[str, Any]) -> None:
    for name, group in declared().groups.items():
        tasks = parsed["dags"][f"night__{name}"]
        topologies = {stream for stream in group.members if stream in declared().topologies}
        assert set(tasks["audit"]) == {"panels", *(f"{stream}.verdict" for stream in topologies)}
    rules = parsed["rules"]["night__orders"]
    # a stream that could not be judged, or was, does not keep the others from saying what was found of them
    assert rules["revenue-by-region.verdict"] == "all_done"
    assert rules["revenue-by-region.proved"] == "none_failed_min_one_success"


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


def test_a_file_may_have_some_kinds_only_and_a_task_makes_its_own_dag_only(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dags, parts = made(file), [made(file, only=[kind]) for kind in KINDS]
    assert {dag.fileloc for dag in dags.values()} == {str(file)}
    assert sorted(name for part in parts for name in part) == sorted(dags), "each is made once"
    # a job of the project goes before that of Recount
    assert dags[f"audit__{STREAM}"].get_task("audit").application == str(file.parents[1] / "spark_jobs" / "audit.py")
    of_recount = Path(dags[f"stream__{STREAM}"].get_task("run").application)
    assert of_recount.is_file() and of_recount.name == "stream.py" and file.parents[1] not in of_recount.parents
    # as Airflow's task runner says which DAG it parses a file for
    monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_DAG_ID, f"audit__{STREAM}")
    assert made(file).keys() == {f"audit__{STREAM}"}


def test_what_is_not_declared_is_refused_when_the_dags_are_made(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidDeclaration):
        made(file, only=["stream"])
    with pytest.raises(InvalidDeclaration) as unknown:
        made(file, settings=[RunSettings(streams=["parcels"])])
    assert unknown.value.given == "parcels"
    with pytest.raises(Terminal):
        made(file, settings=[RunSettings(streams=[STREAM], notifiers="nowhere:pager")])
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
    by_hand = RunSettings(streams=["order-counts"], audit_schedule="never")
    dags = made(file, settings=[settings, by_hand])
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
    other = dags["audit__order-counts"]
    assert (other.schedule, other.get_task("audit").pool) == (None, "default_pool")
    assert dags["backfill__order-counts"].params["approve"] == "human"


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


NO_CATCHUP = TimeRestriction(earliest=None, latest=None, catchup=False)
DAY = timedelta(days=1)


def next_run(name: str, now: datetime, last: datetime | None) -> datetime:
    """When the scheduler starts the next run of a DAG whose last automated one was due at ``last``."""
    timetable = decode_timetable(encode_timetable(nightly(name)))
    before = None if last is None else DataInterval(pendulum.instance(last - DAY), pendulum.instance(last))
    with patch("airflow.timetables.trigger.utcnow", return_value=now):
        run = timetable.next_dagrun_info(last_automated_data_interval=before, restriction=NO_CATCHUP)
    assert run
    return run.run_after


def night_of(name: str, day: int) -> datetime:
    """When the night of that day in November begins."""
    return next_run(name, datetime(2026, 11, day, tzinfo=UTC), None)


def test_nights_begin_apart_and_each_at_its_own_time() -> None:
    names = ("orders", "customers", "page-views", "revenue-by-region")
    begins = [night_of(name, 25) for name in names]
    assert len(set(begins)) == len(names)
    first = datetime(2026, 11, 25, FIRST_HOUR, tzinfo=UTC)
    assert all(first <= begin < first + timedelta(minutes=MINUTES) for begin in begins)
    assert [night_of(name, 26) - DAY for name in names] == begins


def test_nights_that_were_missed_are_made_up_for_once_and_at_once_and_what_is_new_waits_for_the_next() -> None:
    due = night_of("orders", 25)
    morning = due.replace(hour=9)
    assert next_run("orders", morning, due - 3 * DAY) == due
    assert next_run("orders", morning, due) == due + DAY
    assert next_run("orders", due + timedelta(minutes=10), None) == due + DAY
